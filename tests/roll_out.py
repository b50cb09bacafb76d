"""A Maintenance by host on a real store, in virtual time, whose tasks the test carries out itself.

It stands for the replicas and for what they run: `running` is what really runs, whatever the
database says. What is out of service is counted by that, and by the events in flight.
"""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, TypeVar

from forewarn.clocks import VirtualClock
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation, OperationOutcome
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.standing import Standing
from forewarn.domain.task import OWNER_GRACE, Owner, Task, TaskKey, TaskState
from forewarn.domain.topology import Topology
from forewarn.executors.simulated import MANUALLY
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import complete_event, start_event
from forewarn.operations.explain import (
    Explanation,
    MaintenanceExplanation,
    explain_event,
    explain_maintenance,
)
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    MaintenanceReport,
    abort_maintenance,
    end_host_turn,
    report_maintenance,
    resume_maintenance,
    retry_failures,
    skip_failures,
    start_maintenance,
)
from forewarn.operations.pausing import resume_server
from forewarn.operations.safeguards import ApplyOptions
from forewarn.operations.tasks import (
    TaskSelection,
    begin_task,
    give_back_task,
    report_tasks,
    settle_selected,
)
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventId, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.wording.command_lines import say_blocker, say_reason, say_verdict

T = TypeVar("T")

MONDAY: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)
WORK: Final = HostWorkRule(has_verify=True, has_return=True, verify_within=timedelta(hours=9))
DONE: Final = Impact(status=ImpactStatus.DONE)
FAILED: Final = Impact(status=ImpactStatus.FAILED, reason="exit code 1")
CANNOT_KNOW: Final = Impact(status=ImpactStatus.UNKNOWN, reason="its process is gone")
COMMAND: Final = Assignment(runner="command")


class Commands:
    """Gives every task to commands of the leader, but for impacts that are done *by_hand*."""

    def __init__(self) -> None:
        self.rules: Sequence[HostWorkRule] = ()
        self.by_hand: frozenset[VmName] = frozenset()

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        del event, topology, now
        return MANUALLY if vm in self.by_hand else COMMAND

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        del task, topology, now
        return COMMAND


class RollOut:
    """Replicas a and b without their network, of which one leads, and what they run."""

    def __init__(self, store: Store, fleet: str, *, rules: Sequence[HostWorkRule] = ()) -> None:
        self.store = store
        self.clock = VirtualClock(MONDAY)
        self.real = MONDAY - timedelta(days=1)
        self.commands = Commands()
        self.commands.rules = tuple(rules)
        self.rules = Rules(host_works=tuple(rules))
        self.alive = {"a", "b"}
        self.running: dict[TaskKey, Task] = {}
        self.begun: Counter[TaskKey] = Counter()
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        self.maintenance_id = MaintenanceId("")
        self.hear("a", "b")
        self.lead("a")
        self.apply(fleet)

    def context(self, who: str = "alice") -> Context:
        return Context(
            who=who,
            now=self.clock.now(),
            at=self.real,
            new_id=self._ids.__next__,
            rules=self.rules,
        )

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do *work* and everything that is due after it."""
        result = self.store.write(work)
        self.scheduler.settle()
        return result

    def apply(self, fleet: str, **options: Any) -> None:
        declared, chosen = read_fleet_file(fleet), ApplyOptions(**options)
        self.write(lambda tx: apply_fleet(tx, self.context(), declared, options=chosen))

    def lead(self, node: str) -> None:
        """Have *node* take over, which knows nothing but what is stored."""
        self.rules = replace(self.rules, node=node)
        self.scheduler = Scheduler(
            store=self.store,
            assigner=self.commands,
            context=lambda: self.context("scheduler"),
            epoch=self.store.write(lambda tx: tx.next_epoch()),
        )
        self.scheduler.settle()

    def hear(self, *nodes: str) -> None:
        """Have the replicas say that they are there."""
        for node in nodes:
            self.store.write(lambda tx, node=node: tx.put_owner(self.owner(node)))  # type: ignore[misc]

    def owner(self, node: str) -> Owner:
        return Owner(node=node, name=f"replica-{node}", generation=1, heard_at=self.real)

    def pass_real_time(self, duration: timedelta) -> None:
        """Let *duration* pass on the wall, where only those who are alive are heard of."""
        self.real += duration
        self.hear(*self.alive)
        self.scheduler.settle()

    def lose(self, node: str) -> None:
        """Have *node* be away for so long that nobody waits for it any more; the other leads."""
        self.alive.discard(node)
        if self.rules.node == node:
            self.lead(min(self.alive))
        self.pass_real_time(OWNER_GRACE)

    def bring_back(self, node: str) -> None:
        """Have *node* be heard of again."""
        self.alive.add(node)
        self.hear(node)
        self.scheduler.settle()

    def start(self, *hosts: str, **course: object) -> None:
        order = MaintenanceOrder(
            event_type=EventType.REBOOT,
            hosts=hosts,
            course=Course(**course),  # type: ignore[arg-type]
        )
        begun = self.write(lambda tx: start_maintenance(tx, self.context(), order))
        self.maintenance_id = begun.maintenance_id

    def advance(self, **duration: float) -> None:
        self.scheduler.advance(timedelta(**duration), move_to=self.clock.move_to)

    def begin(self, task: Task) -> bool:
        """Have the owner of *task* begin it, if it may."""
        owner = self.owner(task.node)
        if not self.write(lambda tx: begin_task(tx, owner, task, self.real)):
            return False
        self.running[task.key] = task
        self.begun[task.key] += 1
        return True

    def end(self, task: Task, said: Impact = DONE) -> None:
        """Have what really runs end; its owner says so."""
        self.running.pop(task.key, None)
        self.say(task, said)

    def say(self, task: Task, said: Impact) -> None:
        """Have the owner say something of *task*."""
        owner = self.owner(task.node)
        self.write(lambda tx: report_tasks(tx, owner, [(task, said)], self.real))

    def give_back(self, task: Task) -> None:
        """Have the owner say that it stopped before it did what it had been permitted to do."""
        self.running.pop(task.key, None)
        self.begun[task.key] -= 1
        self.write(lambda tx: give_back_task(tx, self.owner(task.node), task, self.real))

    def carry_out(self, said: Impact = DONE) -> None:
        """Begin and end all that is reserved, but nothing that this leads to."""
        for task in self.open():
            if self.begin(task):
                self.end(task, said)

    def carry_on(self) -> None:
        """Carry out everything there is to do, until all is over or waits for an operator."""
        for _ in range(40):
            self.carry_out()
            self.check()
            is_idle = all(task.state is not TaskState.RESERVED for task in self.open())
            if is_idle and self.scheduler.settle().ends_at is None:
                return
            self.advance(minutes=10 if is_idle else 0)

    def open(self) -> tuple[Task, ...]:
        """Return the tasks that are not over."""
        return tuple(task for task in self.tasks() if not task.is_over)

    def tasks(self) -> Sequence[Task]:
        return self.store.read(lambda reading: reading.tasks())

    def task(self, key: TaskKey) -> Task:
        found = self.store.read(lambda reading: reading.task(key))
        assert found is not None
        return found

    def report(self) -> MaintenanceReport:
        return self.store.read(
            lambda reading: report_maintenance(reading, self.context(), self.maintenance_id)
        )

    def explain(self) -> MaintenanceExplanation:
        return self.store.read(
            lambda reading: explain_maintenance(reading, self.context(), self.maintenance_id)
        )

    def operation(self, host: str) -> HostOperation:
        """Return the last operation on *host*."""
        return [each for each in self.report().operations if each.host == host][-1]

    def standing(self, host: str) -> Standing:
        return self.report().standings[HostName(host)]

    def event(self, vm: str) -> ScheduledEvent:
        """Return the last event of *vm*."""
        return [each for each in self.report().events if vm in each.resources][-1]

    def printed(self) -> tuple[str, ...]:
        """Return the commands that `explain` prints, of the Maintenance and of its events."""
        found = self.explain().standstill
        said = [say_verdict(found.verdict)]
        said += [text for each in found.blockers for text in say_blocker(each, self.maintenance_id)]
        for event in self.report().events:
            if event.is_in_flight:
                explained = self._explain_event(event)
                said += [say_reason(reason) for reason in explained.reasons]
        return tuple(dict.fromkeys(each for text in said for each in COMMAND_LINE.findall(text)))

    def _explain_event(self, event: ScheduledEvent) -> Explanation:
        return self.store.read(lambda read: explain_event(read, self.context(), event.event_id))

    def type(self, command: str) -> None:
        """Do what an operator does who types *command*."""
        self.write(lambda tx: carry_out_command(tx, self.context(), command))

    def try_out(self, command: str) -> None:
        """Fail unless *command* is accepted now; nothing remains of it."""

        def work(tx: Transaction) -> None:
            carry_out_command(tx, self.context(), command)
            raise _UndoneError

        with contextlib.suppress(_UndoneError):
            self.store.write(work)

    def in_flight(self) -> set[str]:
        """Return the machines with an event in flight."""
        events = self.store.read(lambda reading: reading.events_in_flight())
        return {vm for event in events for vm in event.resources}

    def out_of_service(self) -> set[str]:
        """Return the machines with an event in flight, and those that something really touches."""
        vms = self.store.read(lambda reading: reading.topology()).virtual_machines.values()
        touched = {
            vm.name
            for task in self.running.values()
            for vm in vms
            if vm.name == task.vm or (task.vm is None and vm.host == task.host)
        }
        return self.in_flight() | touched

    def check(self) -> None:
        """Fail if two update domains of a scope are out of service, or more than half of one."""
        vms = self.store.read(lambda reading: reading.topology()).virtual_machines
        out = self.out_of_service()
        domains: defaultdict[ScopeId, set[int]] = defaultdict(set)
        for vm in vms.values():
            if vm.name in out and vm.update_domain is not None:
                domains[vm.scope_id].add(vm.update_domain)
        assert all(len(each) == 1 for each in domains.values()), f"out of service: {sorted(out)}"
        twice = {key: number for key, number in self.begun.items() if number > 1}
        assert not twice, f"begun twice: {twice}"


class _UndoneError(Exception):
    pass


COMMAND_LINE: Final = re.compile(
    r"forewarn (?:resume|maintenance [a-z]+ [\w-]+(?: [\w/-]*\d[\w/-]*)?"
    r"|event [a-z]+ [\w-]+|task settle [\w/-]+ [a-z]+)"
)


def carry_out_command(tx: Transaction, context: Context, command: str) -> None:
    match command.split()[1:]:
        case ["resume"]:
            resume_server(tx, context)
        case ["maintenance", "resume", maintenance_id]:
            resume_maintenance(tx, context, maintenance_id)
        case ["maintenance", "retry", maintenance_id, *places]:
            retry_failures(tx, context, maintenance_id, places)
        case ["maintenance", "skip", maintenance_id, *places]:
            skip_failures(tx, context, maintenance_id, places)
        case ["maintenance", "abort", maintenance_id]:
            abort_maintenance(tx, context, maintenance_id)
        case ["maintenance", "complete" | "fail" as verb, maintenance_id, host]:
            outcome = OperationOutcome.FAILED if verb == "fail" else OperationOutcome.SUCCEEDED
            end_host_turn(tx, context, maintenance_id, host, outcome)
        case ["event", "complete", event_id]:
            complete_event(tx, context, EventId(event_id))
        case ["event", "start", event_id]:
            start_event(tx, context, EventId(event_id))
        case ["task", "settle", task_id, word]:
            chosen = TaskSelection(task_ids=(task_id,))
            settle_selected(tx, context, chosen, is_done=word == "done")
        case _:
            raise ValueError(command)
