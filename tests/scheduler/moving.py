"""A server without its network, whose executor says where virtual machines are."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from forewarn.clocks import VirtualClock
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import HostName, VmName
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import start_maintenance
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType, event_id
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
RUNNING = Impact(status=ImpactStatus.RUNNING)
NOT_BEGUN = Impact(status=ImpactStatus.NOT_BEGUN)


def ended(host: str | None = None, status: ImpactStatus = ImpactStatus.DONE) -> Impact:
    """Return what an executor says in the end."""
    return Impact(status=status, moved_to=None if host is None else HostName(host))


@dataclass
class Mover:
    """Does nothing, says what it is told to say, and counts what it had to begin."""

    clock: VirtualClock
    begun: Counter[tuple[EventId, VmName]] = field(default_factory=Counter)
    says: dict[tuple[EventId, VmName], Impact] = field(default_factory=dict)

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        assert epoch
        self.begun[event.event_id, vm] += 1
        return self.inquire(event.event_id, vm)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        if not self.begun[event_id, vm]:
            return NOT_BEGUN
        said = self.says.get((event_id, vm), RUNNING)
        soon = self.clock.now() + timedelta(seconds=1)
        return said if said.is_over else replace(said, ask_again_at=soon)


@dataclass
class Crew:
    """Works on hosts in no time, and returns virtual machines when it is told to."""

    clock: VirtualClock
    rules: tuple[HostWorkRule, ...] = (HostWorkRule(has_return=True),)
    returns: dict[VmName, Impact] = field(default_factory=dict)

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        assert epoch
        return self.inquire(task)

    def inquire(self, task: HostTask) -> Impact:
        if task.kind is not HostTaskKind.RETURN or task.vm is None:
            return ended()
        soon = self.clock.now() + timedelta(seconds=1)
        return self.returns.get(task.vm, replace(RUNNING, ask_again_at=soon))


class Moves:
    """The server, one leader after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(datetime(2026, 1, 5, 8, tzinfo=UTC))
        self.executor, self.crew = Mover(self.clock), Crew(self.clock)
        self.rules = Rules()
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        store.write(lambda tx: apply_fleet(tx, self.context(), read_fleet_file(FLEET)))
        self.scheduler = self.lead()

    def context(self, who: str = "alice") -> Context:
        now = self.clock.now()
        return Context(who=who, now=now, at=now, new_id=self._ids.__next__, rules=self.rules)

    def lead(self) -> Scheduler:
        """Take over, knowing nothing but what is stored."""
        self.scheduler = Scheduler(
            store=self.store,
            executor=self.executor,
            context=lambda: self.context("scheduler"),
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            host_worker=self.crew,
        )
        return self.scheduler

    def advance(self, **duration: float) -> None:
        self.scheduler.advance(timedelta(**duration), move_to=self.clock.move_to)

    def begin(self, *names: str) -> ScheduledEvent:
        """Have the impact of a new event on these begin."""
        order = EventOrder(event_type=EventType.REDEPLOY, resources=names, started=True)
        (event,) = self.store.write(lambda tx: create_events(tx, self.context(), order))
        self.scheduler.settle()
        return event

    def say(self, event: ScheduledEvent, vm: str, said: Impact) -> None:
        """Have the executor say so, and the scheduler hear it."""
        self.executor.says[event.event_id, VmName(vm)] = said
        self.advance(seconds=1)

    def maintain(self, *hosts: str, at_once: int = 1) -> None:
        order = MaintenanceOrder(
            event_type=EventType.FREEZE, hosts=hosts, course=Course(at_once=at_once)
        )
        self.store.write(lambda tx: start_maintenance(tx, self.context(), order))
        self.scheduler.settle()

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
