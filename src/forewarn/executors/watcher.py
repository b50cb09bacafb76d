"""Carries out the tasks of one node: begins what is reserved for it, and writes down how each ends.

It is part of the Replica: a node that does not lead still reports what it has begun.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from forewarn.domain.host_operation import task_called
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import OperationId
from forewarn.domain.task import (
    LATE,
    ROWS_ONLY,
    STATUS_URL,
    Owner,
    Task,
    TaskState,
    may_report_late,
)
from forewarn.executors.task_input import (
    PAUSED,
    Runner,
    TaskInput,
    host_task_input,
    impact_input,
)
from forewarn.executors.task_log import TaskLog
from forewarn.operations.pausing import find_pause
from forewarn.operations.tasks import (
    OwnerForgottenError,
    OwnerReplacedError,
    begin_task,
    give_back_task,
    is_still_begun,
    note_replaced,
    report_tasks,
)
from forewarn.ports.changes import StoreChange
from forewarn.ports.clock import WallClock
from forewarn.ports.store import Reading, Store, StoreError
from forewarn.protocol.vocabulary import EventId
from forewarn.rounds import Rounds

log = structlog.get_logger(__name__)

T = TypeVar("T")

_EVERY: Final = 1.0
_NO_RECORD: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the records of the server do not say whether it was begun"
)


class KnownRunners(Protocol):
    """The runners that the executor file names, and those of what was begun before."""

    @property
    def problem(self) -> str:
        """What is wrong with the file; nothing begins meanwhile."""

    def runner(self, name: str) -> Runner | None:
        """Return the runner of that name, if there is one."""


class TaskWatcher:
    """Has *runners* carry out the tasks of one node, whose records are in *records*.

    *register* makes this server the owner; it is called again if that owner was forgotten.
    """

    def __init__(
        self,
        store: Store,
        *,
        runners: KnownRunners,
        register: Callable[[], Owner],
        records: TaskLog,
        wall: WallClock,
    ) -> None:
        self.store = store
        self.runners = runners
        self.records = records
        self.wall = wall
        self.register = register
        self._registering = threading.Lock()
        self.owner = register()
        self.is_replaced = False
        """Whether another server was started with a copy of the state directory."""
        self.rests: Callable[[], bool] = lambda: False
        """Tells whether this server has just handed over, and begins nothing for now."""
        # No change tells it which tasks of others have become its own.
        self.rounds: Final = Rounds("tasks", self.attend, every=10.0)

    def note(self, change: StoreChange) -> None:
        """Look again if there may be something to begin, or to look for in the records."""
        if change.has_tasks:
            self.rounds.wake()

    def attend(self) -> float | None:
        """Begin, ask, and write down what was said; return when to look again."""
        if self.is_replaced:
            return None
        found, is_paused = self.store.read(self._look)
        words = list(self._ask(found, is_paused=is_paused))
        if words:
            now = self.wall.now()
            report = partial(report_tasks, owner=self.owner, words=words, now=now)
            self.as_owner(partial(self.store.write, report), None)
        return _EVERY if found else None

    def _look(self, reading: Reading) -> tuple[list[tuple[Task, TaskInput]], bool]:
        """Return the tasks that runners of this node carry out, and whether the server is paused.

        Tasks that were settled in its absence are among them until their end is reported.
        """
        node = self.owner.node
        settled = (task for task in reading.settled_tasks(node) if may_report_late(task))
        tasks = (t for t in (*reading.open_tasks(node), *settled) if t.runner not in ROWS_ONLY)
        inputs = ((task, input_of(reading, task)) for task in tasks)
        found = [
            (task, replace(given, is_settled=task.state is TaskState.SETTLED))
            for task, given in inputs
            if given is not None
        ]
        return found, bool(found) and find_pause(reading) is not None

    def _ask(
        self, tasks: Sequence[tuple[Task, TaskInput]], *, is_paused: bool
    ) -> Iterator[tuple[Task, Impact]]:
        """Yield each task of which there is news, with it."""
        for task, given in tasks:
            runner = self.runners.runner(task.runner)
            if runner is None or (task.state is TaskState.RESERVED and self.rests()):
                continue
            said = self._hear(task, partial(self._attend, task, runner, given, is_paused=is_paused))
            if said is not None and said.status_url == task.details.get(STATUS_URL):
                said = replace(said, status_url=None)
            if said is not None and said.status is ImpactStatus.RUNNING:
                said = replace(said, ask_again_at=None)  # every second, which is not worth a word
            is_other = task.state in {TaskState.UNKNOWN, TaskState.SETTLED}
            if said is not None and (is_other or is_news(said, task.said)):
                yield task, said

    def _attend(
        self, task: Task, runner: Runner, given: TaskInput, *, is_paused: bool
    ) -> Impact | None:
        if task.state is TaskState.RESERVED:
            if is_paused or self.runners.problem:
                reason = PAUSED if is_paused else self.runners.problem.partition("\n")[0]
                return Impact(status=ImpactStatus.NOT_BEGUN, reason=reason)
            return runner.begin(given, _StorePermit(self, task))
        said = runner.inquire(given)
        if task.state is TaskState.SETTLED:
            return said if said.status != task.details.get(LATE) else None
        if self.runners.problem and (said.is_stuck or said.status is ImpactStatus.NOT_BEGUN):
            return None  # it may be known again when the file is corrected
        if said.status is not ImpactStatus.NOT_BEGUN:
            return said if _is_worth_saying(task, said) else None
        if runner.repeats and task.state is TaskState.BEGUN:
            return runner.begin(given, _StorePermit(self, task, ImpactStatus.UNKNOWN))
        if task.begun_at is not None and self.records.is_intended(task.key):
            now = self.wall.now()
            self.store.write(lambda tx: give_back_task(tx, self.owner, task, now))
            self.rounds.wake()
            return None
        return _NO_RECORD if _is_worth_saying(task, _NO_RECORD) else None

    def _hear(self, task: Task, ask: Callable[[], Impact | None]) -> Impact | None:
        """Return what *ask* says; one task in trouble stops no other."""
        try:
            return self.as_owner(ask, None)
        except StoreError:
            raise
        except Exception as error:
            if task.said.reason != str(error):
                log.exception("executor_failed", task=task.key)
            if task.state is TaskState.RESERVED:
                return Impact(status=ImpactStatus.NOT_BEGUN, reason=str(error))
            # It may be over with the trouble.
            return Impact(
                status=ImpactStatus.UNKNOWN, reason=str(error), ask_again_at=self.wall.now()
            )

    def as_owner(self, act: Callable[[], T], otherwise: T) -> T:
        """Return what *act* does, or *otherwise* if this server is not the owner it was."""
        try:
            return act()
        except (OwnerReplacedError, OwnerForgottenError) as error:
            self._step_down(error)
            return otherwise

    def _step_down(self, error: OwnerReplacedError | OwnerForgottenError) -> None:
        """Act no more for this owner; one that was forgotten registers again, once."""
        with self._registering:
            owner, now = self.owner, self.wall.now()
            if error.generation != owner.generation:
                return  # another thread was told before, and has registered again
            if isinstance(error, OwnerForgottenError):
                log.warning("owner_forgotten", node=owner.node)
                self.owner = self.register()
                self.rounds.wake()
            elif not self.is_replaced:
                self.is_replaced = True
                log.error("state_directory_replaced", node=owner.node)
                self.store.write(lambda tx: note_replaced(tx, owner, now))


@dataclass(frozen=True, slots=True)
class _StorePermit:
    """The right to begin *task*, or to repeat what was begun before, which the store gives."""

    watcher: TaskWatcher
    task: Task
    refusal: ImpactStatus = ImpactStatus.FAILED

    def obtain(self) -> bool:
        if self.refusal is ImpactStatus.UNKNOWN:
            return self.is_valid()
        owner, now = self.watcher.owner, self.watcher.wall.now()
        begin = partial(begin_task, owner=owner, task=self.task, now=now)
        return self.watcher.as_owner(partial(self.watcher.store.write, begin), otherwise=False)

    def is_valid(self) -> bool:
        def look(reading: Reading) -> bool:
            is_paused = find_pause(reading) is not None
            return not is_paused and is_still_begun(reading, self.watcher.owner, self.task)

        return self.watcher.as_owner(partial(self.watcher.store.read, look), otherwise=False)


def input_of(reading: Reading, task: Task) -> TaskInput | None:
    """Return *task* as its runner gets it."""
    url = task.details.get(STATUS_URL)
    if task.is_impact and task.vm is not None:
        event = reading.event(EventId(task.subject))
        if event is None:
            return None
        return impact_input(event, task.vm, task.host, epoch=task.epoch, status_url=url)
    operation = reading.host_operation(OperationId(task.subject))
    if operation is None:
        return None
    called = task_called(task.name, operation)
    return host_task_input(called, epoch=task.epoch, status_url=url)


def _is_worth_saying(task: Task, said: Impact) -> bool:
    """Tell whether *said* changes anything: what is unknown stays so until it has ended.

    But whether its owner will ever know decides whether an operator may say that it has.
    """
    if task.state is TaskState.BEGUN or said.is_over:
        return True
    is_final = bool(task.details.get("is_final"))
    return said.status is ImpactStatus.RUNNING if is_final else said.is_stuck


def is_news(said: Impact, known: Impact) -> bool:
    """Tell whether *said* differs from what is known. When it is asked again is not news."""
    if (said.ask_again_at is None) is not (known.ask_again_at is None):
        return True
    return replace(said, ask_again_at=known.ask_again_at) != known
