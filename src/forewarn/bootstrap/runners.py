"""The runners of a server, as the settings say, and anew when their file is read again."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Protocol, TypeAlias, assert_never

import structlog

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology
from forewarn.executors.simulated import Manual, Simulated
from forewarn.executors.task_input import Runner
from forewarn.executors.task_log import TaskLog
from forewarn.outbound.client import Outbound
from forewarn.ports.clock import Clock
from forewarn.ports.runner import Assigner, Assignment
from forewarn.ports.store import Store
from forewarn.protocol.errors import ForewarnError
from forewarn.settings import Settings
from forewarn.settings_table import ExecutorKind

log = structlog.get_logger()

_TRY_AGAIN_AFTER: Final = timedelta(seconds=10)


class Runners(Assigner, Protocol):
    """Tells which runner a task is for, and has these."""

    def runner(self, name: str) -> Runner | None:
        """Return the runner of that name, if there is one."""


RunnersMaker: TypeAlias = Callable[[Store, Clock, TaskLog], AbstractContextManager[Runners]]
"""Makes the runners of a server on top of its store and its records."""


def choose_runners(settings: Settings, outbound: Outbound) -> RunnersMaker:
    """Return how to make the runners of *settings*, or refuse what their file says."""
    match settings.executor:
        case ExecutorKind.SIMULATED:
            simulated = Simulated(rules=_rules_in_file(settings), speed=settings.speed)
            return lambda *_: nullcontext(simulated)
        case ExecutorKind.MANUAL if settings.executor_file is None:
            return lambda *_: nullcontext(Manual())
        case ExecutorKind.MANUAL:
            from forewarn.bootstrap.file_runners import file_runners  # noqa: PLC0415 - POSIX

            return file_runners(settings, settings.executor_file, outbound)
        case _:
            assert_never(settings.executor)


def _rules_in_file(settings: Settings) -> Sequence[HostWorkRule]:
    if settings.executor_file is None:
        return ()
    from forewarn.executors.configuration import read_host_work_rules  # noqa: PLC0415 - POSIX

    return read_host_work_rules(settings.executor_file)


class ReloadableRunners:
    """Runners that are made anew when their file is read again.

    While the file is wrong, everything waits, with what is wrong as the reason. A file that becomes
    wrong while a server runs changes nothing.
    """

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, records: TaskLog, outbound: Outbound
    ) -> None:
        self._settings = settings
        self._outbound = outbound
        self._store = store
        self._clock = clock
        self._records = records
        self._changing = threading.Lock()
        self._closing = ExitStack()
        self._current: Runners | None = None
        self.problem = ""
        """What is wrong with the file; nothing while the runners work."""
        self.reload()

    def reload(self) -> None:
        """Read the file, and make the runners anew unless it is wrong."""
        try:
            make = choose_runners(self._settings, self._outbound)
        except ForewarnError as error:
            if self._current is None:
                self.problem = str(error)
            log.error("executor_file_wrong", error=str(error), works=self._current is not None)  # noqa: TRY400 - the sentence says it all
            return
        opened = ExitStack()
        current = opened.enter_context(make(self._store, self._clock, self._records))
        with self._changing:
            former, self._closing, self._current = self._closing, opened, current
            self.problem = ""
        # What the former runners have begun is on disk.
        former.close()

    def close(self) -> None:
        """Close the runners. What was begun is not stopped."""
        with self._changing:
            self._closing.close()

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        """Which hosts have work. While the file is wrong, every host may have some."""
        current = self._current
        return current.rules if current else (HostWorkRule(),)

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        """Return the runner for the impact of *event* on *vm*."""
        current = self._current
        return current.assign_impact(event, vm, topology, now) if current else self._unassigned(now)

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Return the runner for *task*."""
        current = self._current
        return current.assign_host_task(task, topology, now) if current else self._unassigned(now)

    def runner(self, name: str) -> Runner | None:
        """Return the runner of that name; one that no file names knows what it has begun."""
        current = self._current
        return (current and current.runner(name)) or self._without_file.runner(name)

    @cached_property
    def _without_file(self) -> Runners:
        from forewarn.bootstrap.file_runners import FileRunners  # noqa: PLC0415 - imports this
        from forewarn.executors.configuration import Executors  # noqa: PLC0415 - imported with it

        return FileRunners(Executors(), self._store, self._clock, self._records, self._outbound)

    def _unassigned(self, now: datetime) -> Assignment:
        """Say that nothing can be done while the file is wrong, and its first mistake."""
        first, *others = self.problem.splitlines() or [""]
        said = Impact(
            status=ImpactStatus.UNKNOWN,
            reason=f"{first.removesuffix('.')} (and {len(others)} more)." if others else first,
            ask_again_at=now + _TRY_AGAIN_AFTER,
            has_no_executor=True,
        )
        return Assignment(runner="", said=said)
