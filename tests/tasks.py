"""Tasks without runners: they are reserved as the leader does, and begun and ended by the test."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from forewarn.clocks import VirtualClock
from forewarn.domain.actions import Decisions, ReserveTask
from forewarn.domain.decisions import finished_tasks
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostWorkRule, Undertaking
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import Owner, Ownership, Task, TaskKey, TaskState
from forewarn.domain.topology import Topology
from forewarn.operations.tasks import begin_task, report_tasks
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Store, Transaction
from forewarn.scheduler.scheduler import Lull, Scheduler

NODE: Final = "n1"
COMMAND: Final = Assignment(runner="command")


def owned(snapshot: Snapshot, at: datetime) -> Snapshot:
    """Return *snapshot* as the leader sees it, which owns every task."""
    return replace(snapshot, ownership=Ownership(node=NODE, at=at, epoch=1))


def reserved(
    snapshot: Snapshot,
    decisions: Decisions,
    *,
    at: datetime,
    assign: Callable[[Undertaking], Assignment] = lambda _: COMMAND,
) -> Snapshot:
    """Return *snapshot* with the tasks that are reserved, and without those that are closed."""
    rows = dict(snapshot.rows)
    for action in decisions.actions:
        if isinstance(action, ReserveTask):
            task = _reserve(action.about, assign(action.about), at)
            assert rows.get(task.key) is None, "a task is reserved once"
            rows[task.key] = task
    closed = {task.key for task in finished_tasks(replace(snapshot, rows=rows))}
    return snapshot.with_rows({key: row for key, row in rows.items() if key not in closed})


def _reserve(about: Undertaking, assignment: Assignment, at: datetime) -> Task:
    is_begun = assignment.said.status is ImpactStatus.RUNNING
    vm: VmName | None
    host: HostName | None = None
    if isinstance(about, HostTask):
        subject, name, vm, host = str(about.operation_id), about.name, about.vm, about.host
    else:
        (subject, vm), name = about, str(about[1])
    return Task(
        subject=subject,
        name=name,
        vm=vm,
        host=host,
        runner=assignment.runner,
        state=TaskState.BEGUN if is_begun else TaskState.RESERVED,
        node=NODE,
        epoch=1,
        said=assignment.said,
        reserved_at=at,
        begun_at=at if is_begun else None,
        details=assignment.details,
    )


def changed(snapshot: Snapshot, *tasks: Task) -> Snapshot:
    """Return *snapshot* with *tasks* as they are now."""
    return snapshot.with_rows({**snapshot.rows, **{task.key: task for task in tasks}})


def word(status: ImpactStatus, reason: str = "") -> Impact:
    """Return what is said of a task."""
    return Impact(status=status, reason=reason)


@dataclass(frozen=True)
class Assigner:
    """Has one runner for everything, which nothing outside belongs to."""

    rules: Sequence[HostWorkRule] = ()
    assignment: Assignment = COMMAND

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        del event, vm, topology, now
        return self.assignment

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        del task, topology, now
        return self.assignment


RUNNING: Final = word(ImpactStatus.RUNNING)
DONE: Final = word(ImpactStatus.DONE)


class Workers:
    """Whoever carries out the tasks of *node*: begins them, and says what *says* returns."""

    def __init__(
        self, store: Store, says: Callable[[Task], Impact] = lambda _: DONE, *, node: str = ""
    ) -> None:
        self.store = store
        self.says = says
        self.begun: Counter[TaskKey] = Counter()
        # Never away.
        self.owner = Owner(
            node=node, name=node, generation=1, heard_at=datetime(3000, 1, 1, tzinfo=UTC)
        )
        store.write(lambda tx: tx.put_owner(self.owner))

    def attend(self, now: datetime) -> bool:
        """Begin and report once, with the verbs of an owner; tell whether anything is new."""
        before = self.open_tasks()
        for task in before:
            if task.state is TaskState.RESERVED:
                is_begun = self.store.write(partial(self._begin, task=task, now=now))
                self.begun[task.key] += is_begun
        for task in self.open_tasks():
            if task.state is not TaskState.RESERVED:
                self.store.write(partial(self._report, task=task, now=now))
        return self.open_tasks() != before

    def settle(self, scheduler: Scheduler, now: Callable[[], datetime]) -> Lull:
        """Have *scheduler* and the workers do all that is due."""
        lull = scheduler.settle()
        while self.attend(now()):
            lull = scheduler.settle()
        return lull

    def advance(self, scheduler: Scheduler, clock: VirtualClock, duration: timedelta) -> None:
        """Let virtual time pass, with all that is due on the way."""
        target = clock.now() + duration
        while (moment := self.settle(scheduler, clock.now).ends_at) and moment <= target:
            clock.move_to(moment)
        clock.move_to(target)
        self.settle(scheduler, clock.now)

    def open_tasks(self) -> tuple[Task, ...]:
        tasks = self.store.read(lambda reading: reading.open_tasks(self.owner.node))
        return tuple(task for task in tasks if task.runner == COMMAND.runner)

    def _begin(self, tx: Transaction, *, task: Task, now: datetime) -> bool:
        return begin_task(tx, self.owner, task, now)

    def _report(self, tx: Transaction, *, task: Task, now: datetime) -> None:
        report_tasks(tx, self.owner, [(task, self.says(task))], now)
