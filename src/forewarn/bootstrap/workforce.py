"""Who carries maintenance out, as the settings say, and anew when their file is read again."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeAlias, assert_never

import structlog

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor, SimulatedHostWorker
from forewarn.outbound.client import Outbound
from forewarn.ports.archive import Archive
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Store
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId
from forewarn.settings import Settings
from forewarn.settings_table import ExecutorKind

log = structlog.get_logger()

_ASK_AGAIN_AFTER: Final = timedelta(seconds=10)


class Employer(Protocol):
    """Whoever has somebody to carry maintenance out."""

    @property
    def executor(self) -> Executor: ...

    @property
    def host_worker(self) -> HostWorker | None: ...

    @property
    def archives(self) -> Sequence[Archive]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """Who carries maintenance out: on virtual machines, and on hosts if any have work.

    *archives* are the records they keep on disk.
    """

    executor: Executor
    host_worker: HostWorker | None = None
    archives: Sequence[Archive] = ()


WorkforceMaker: TypeAlias = Callable[[Store, Clock], AbstractContextManager[Workforce]]
"""Makes the workforce of a server on top of its store; it is closed with the server."""


def choose_workforce(settings: Settings, outbound: Outbound) -> WorkforceMaker:
    """Return how to make the workforce of *settings*, or refuse what its file says."""
    match settings.executor:
        case ExecutorKind.SIMULATED:
            return _simulated(settings)
        case ExecutorKind.MANUAL if settings.executor_file is None:
            return lambda *_: nullcontext(Workforce(executor=ManualExecutor()))
        case ExecutorKind.MANUAL:
            from forewarn.bootstrap.contractors import contracted  # noqa: PLC0415 - POSIX

            return contracted(settings, settings.executor_file, outbound)
        case _:
            assert_never(settings.executor)


class ReloadableWorkforce:
    """Executors that are made anew when their file is read again.

    While the file is wrong, everything they are asked about is unknown, with what is wrong as the
    reason. A file that becomes wrong while a server runs changes nothing.
    """

    def __init__(self, settings: Settings, store: Store, clock: Clock, outbound: Outbound) -> None:
        self._settings = settings
        self._outbound = outbound
        self._store = store
        self._clock = clock
        self._turn = threading.Lock()
        self._closing = ExitStack()
        self._current: Workforce | None = None
        self.problem = ""
        """What is wrong with the file; nothing while the executors work."""
        self.executor: Executor = _Executor(self)
        self.host_worker: HostWorker = _HostWorker(self)
        self.reload()

    def reload(self) -> None:
        """Read the file, and make the executors anew unless it is wrong."""
        try:
            make = choose_workforce(self._settings, self._outbound)
        except ForewarnError as error:
            if self._current is None:
                self.problem = str(error)
            log.error("executor_file_wrong", error=str(error), works=self._current is not None)  # noqa: TRY400 - the sentence says it all
            return
        opened = ExitStack()
        current = opened.enter_context(make(self._store, self._clock))
        with self._turn:
            former, self._closing, self._current = self._closing, opened, current
            self.problem = ""
        # Whoever still asks the former executors does no harm: what was begun is on disk.
        former.close()

    def close(self) -> None:
        """Close the executors. What was begun is not stopped."""
        with self._turn:
            self._closing.close()

    @property
    def current(self) -> Workforce | None:
        """The executors, unless their file is wrong."""
        with self._turn:
            return self._current

    @property
    def archives(self) -> Sequence[Archive]:
        """The records of the executors, unless their file is wrong."""
        current = self.current
        return current.archives if current else ()

    def unknown(self) -> Impact:
        """Say that nothing can be known while the file is wrong, and its first mistake."""
        first, *others = self.problem.splitlines() or [""]
        again = self._clock.now() + _ASK_AGAIN_AFTER
        return Impact(
            status=ImpactStatus.UNKNOWN,
            reason=f"{first.removesuffix('.')} (and {len(others)} more)." if others else first,
            ask_again_at=again,
            has_no_executor=True,
        )


class _Executor:
    def __init__(self, workforce: ReloadableWorkforce) -> None:
        self._workforce = workforce

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        now = self._workforce.current
        return now.executor.begin(event, vm, epoch=epoch) if now else self._workforce.unknown()

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        now = self._workforce.current
        return now.executor.inquire(event_id, vm) if now else self._workforce.unknown()


class _HostWorker:
    def __init__(self, workforce: ReloadableWorkforce) -> None:
        self._workforce = workforce

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        current = self._workforce.current
        if current is None:
            # Any host may have work. Without the file nobody knows, and none is taken for done.
            return (HostWorkRule(),)
        return current.host_worker.rules if current.host_worker else ()

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        worker = self._worker()
        return worker.begin(task, epoch=epoch) if worker else self._unknown()

    def inquire(self, task: HostTask) -> Impact:
        worker = self._worker()
        return worker.inquire(task) if worker else self._unknown()

    def _worker(self) -> HostWorker | None:
        current = self._workforce.current
        return current.host_worker if current else None

    def _unknown(self) -> Impact:
        if self._workforce.problem:
            return self._workforce.unknown()
        reason = "the executor file no longer defines [[host_work]] for the host"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)


def _simulated(settings: Settings) -> WorkforceMaker:
    """Return how to make a workforce that touches nothing, whatever the file says."""
    rules: Sequence[HostWorkRule] = ()
    if settings.executor_file is not None:
        from forewarn.executors.configuration import read_host_work_rules  # noqa: PLC0415 - POSIX

        rules = read_host_work_rules(settings.executor_file)
    speed = settings.speed

    def make(store: Store, clock: Clock) -> Workforce:
        executor = SimulatedExecutor(store, clock, speed=speed, failure_of=_failure_of_impact)
        worker = SimulatedHostWorker(
            store, clock, rules=rules, speed=speed, failure_of=_failure_of_task
        )
        return Workforce(executor=executor, host_worker=worker if rules else None)

    return lambda store, clock: nullcontext(make(store, clock))


def _failure_of_impact(fleet: Topology, name: VmName) -> str:
    vm = fleet.virtual_machines.get(name)
    return vm.labels.get("simulated-failure", "") if vm else ""


def _failure_of_task(fleet: Topology, task: HostTask) -> str:
    host = fleet.hosts.get(task.host)
    return host.labels.get(f"simulated-{task.kind}-failure", "") if host else ""
