"""Who carries maintenance out, as the settings say."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, assert_never

from forewarn.domain.host_work import HostTask
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor, SimulatedHostWorker
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Store
from forewarn.settings import Settings
from forewarn.settings_table import ExecutorKind


class Employer(Protocol):
    """Whoever has somebody to carry maintenance out."""

    @property
    def executor(self) -> Executor: ...

    @property
    def host_worker(self) -> HostWorker | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """Who carries maintenance out: on virtual machines, and on hosts if any have work."""

    executor: Executor
    host_worker: HostWorker | None = None


WorkforceMaker: TypeAlias = Callable[[Store, Clock], AbstractContextManager[Workforce]]
"""Makes the workforce of a server on top of its store; it is closed with the server."""

_ExecutorMaker: TypeAlias = Callable[[Store, Clock], AbstractContextManager[Executor]]
_HostWorkerMaker: TypeAlias = Callable[[Store, Clock], AbstractContextManager[HostWorker | None]]


def choose_workforce(settings: Settings) -> WorkforceMaker:
    """Return how to make the workforce of *settings*, or refuse what its file says."""
    make_executor, make_host_worker = _choose_executor(settings), _choose_host_worker(settings)

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Workforce]:
        with make_executor(store, clock) as executor, make_host_worker(store, clock) as host_worker:
            yield Workforce(executor=executor, host_worker=host_worker)

    return make


def _choose_executor(settings: Settings) -> _ExecutorMaker:
    match settings.executor:
        case ExecutorKind.MANUAL:
            return _manual
        case ExecutorKind.SIMULATED:
            return _simulated(settings)
        case ExecutorKind.COMMAND:
            from forewarn.bootstrap.contracting import command_executor  # noqa: PLC0415 - POSIX

            return command_executor(settings)
        case ExecutorKind.WEBHOOK:
            from forewarn.bootstrap.contracting import webhook_executor  # noqa: PLC0415 - POSIX

            return webhook_executor(settings)
        case _:
            assert_never(settings.executor)


def _choose_host_worker(settings: Settings) -> _HostWorkerMaker:
    if settings.executor_file is None:
        return _no_host_worker
    from forewarn.bootstrap.contracting import host_work_rules, host_worker  # noqa: PLC0415 - POSIX

    if settings.executor is not ExecutorKind.SIMULATED:
        return host_worker(settings)
    rules = host_work_rules(settings)

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[HostWorker | None]:
        made = SimulatedHostWorker(
            store, clock, rules=rules, speed=settings.speed, failure_of=_failure_of_task
        )
        yield made if rules else None

    return make


@contextmanager
def _no_host_worker(_store: Store, _clock: Clock) -> Iterator[HostWorker | None]:
    yield None


@contextmanager
def _manual(_store: Store, _clock: Clock) -> Iterator[Executor]:
    yield ManualExecutor()


def _simulated(settings: Settings) -> _ExecutorMaker:
    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Executor]:
        yield SimulatedExecutor(store, clock, speed=settings.speed, failure_of=_failure_of_impact)

    return make


def _failure_of_impact(fleet: Topology, name: VmName) -> str:
    vm = fleet.virtual_machines.get(name)
    return vm.labels.get("simulated-failure", "") if vm else ""


def _failure_of_task(fleet: Topology, task: HostTask) -> str:
    host = fleet.hosts.get(task.host)
    return host.labels.get(f"simulated-{task.kind}-failure", "") if host else ""
