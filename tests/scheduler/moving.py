"""A server without its network, which is told where virtual machines are."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

from tests.tasks import RUNNING, Assigner, Workers

from forewarn.clocks import VirtualClock
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import HostName, VmName
from forewarn.domain.task import Task, TaskKey
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import start_maintenance
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType, event_id
from forewarn.scheduler.scheduler import Scheduler

FLEET = """
[[availability_set]]
name = "web"
update_domains = 1
[[host]]
name = "kvm-3"
[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-1"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
host = "kvm-1"
[[virtual_machine]]
name = "db"
host = "kvm-2"
"""


def ended(host: str | None = None, status: ImpactStatus = ImpactStatus.DONE) -> Impact:
    """Return what an executor says in the end."""
    return Impact(status=status, moved_to=None if host is None else HostName(host))


class Outside:
    """Says of impacts and of returns what it is told to say, and does other work in no time."""

    def __init__(self, store: Store) -> None:
        self.workers = Workers(store, self.word_on)
        self.says: dict[TaskKey, Impact] = {}
        self.returns: dict[VmName, Impact] = {}

    @property
    def begun(self) -> Counter[TaskKey]:
        return self.workers.begun

    def word_on(self, task: Task) -> Impact:
        if task.is_impact:
            return self.says.get(task.key, RUNNING)
        if task.vm is None:
            return ended()
        return self.returns.get(task.vm, RUNNING)


class Moves:
    """The server, one leader after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(datetime(2026, 1, 5, 8, tzinfo=UTC))
        self.outside = Outside(store)
        self.rules = Rules()
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        store.write(lambda tx: apply_fleet(tx, self.context(), read_fleet_file(FLEET)))
        self.scheduler = self.lead()

    def context(self, who: str = "alice") -> Context:
        now = self.clock.now()
        return Context(who=who, now=now, at=now, new_id=self._ids.__next__, rules=self.rules)

    def lead(self) -> Scheduler:
        """Take over, knowing nothing but what is stored, and having done nothing yet."""
        self.scheduler = Scheduler(
            store=self.store,
            assigner=Assigner(),
            context=lambda: self.context("scheduler"),
            epoch=self.store.write(lambda tx: tx.next_epoch()),
        )
        return self.scheduler

    def advance(self, **duration: float) -> None:
        self.outside.workers.advance(self.scheduler, self.clock, timedelta(**duration))

    def settle(self) -> None:
        self.outside.workers.settle(self.scheduler, self.clock.now)

    def begin(self, *names: str) -> ScheduledEvent:
        """Have the impact of a new event on these begin."""
        order = EventOrder(event_type=EventType.REDEPLOY, resources=names, started=True)
        (event,) = self.store.write(lambda tx: create_events(tx, self.context(), order))
        self.settle()
        return event

    def say(self, event: ScheduledEvent, vm: str, said: Impact) -> None:
        """Have the owner of the impact say so, and the scheduler see it."""
        self.clock.move_to(self.clock.now() + timedelta(seconds=1))
        self.outside.says[event.event_id, vm] = said
        self.settle()

    def maintain(self, *hosts: str, at_once: int = 1) -> None:
        order = MaintenanceOrder(
            event_type=EventType.FREEZE, hosts=hosts, course=Course(at_once=at_once)
        )
        self.store.write(lambda tx: start_maintenance(tx, self.context(), order))
        self.settle()

    def hosts(self) -> dict[str, str | None]:
        vms = self.store.read(lambda reading: reading.topology().virtual_machines)
        return {name: vm.host for name, vm in vms.items()}

    def event(self, event: ScheduledEvent) -> ScheduledEvent:
        found = self.store.read(lambda reading: reading.event(event.event_id))
        assert found is not None
        return found

    def in_flight(self, vm: str) -> list[ScheduledEvent]:
        events = self.store.read(lambda reading: reading.events_in_flight())
        return [event for event in events if vm in event.resources]

    def ledger(self, event: ScheduledEvent) -> list[tuple[str, str]]:
        entries = self.store.read(lambda reading: reading.ledger(event.event_id))
        return [(entry.what.value, entry.detail) for entry in entries]
