"""Who carries maintenance out, as the settings say."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import Final, TypeAlias, assert_never

from forewarn.clocks import SystemClock
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.topology import VirtualMachine
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.store import Store
from forewarn.settings import ExecutorKind, Settings, environment_with

_IMPACTS: Final = "impacts"
_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))

ExecutorMaker: TypeAlias = Callable[[Store, Clock], AbstractContextManager[Executor]]
"""Makes the executor of a server on top of its store; it is closed with the server."""


def choose_executor(settings: Settings) -> ExecutorMaker:
    """Return how to make the executor of *settings*, or refuse what its file says."""
    match settings.executor:
        case ExecutorKind.MANUAL:
            return _manual
        case ExecutorKind.SIMULATED:
            return _simulated(settings)
        case ExecutorKind.COMMAND:
            return _command(settings)
        case ExecutorKind.WEBHOOK:
            return _webhook(settings)
        case _:
            assert_never(settings.executor)


@contextmanager
def _manual(_store: Store, _clock: Clock) -> Iterator[Executor]:
    yield ManualExecutor()


def _simulated(settings: Settings) -> ExecutorMaker:
    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Executor]:
        def failure_of(name: VmName) -> str:
            vm = _find(store, name)
            return vm.labels.get("simulated-failure", "") if vm else ""

        yield SimulatedExecutor(store, clock, speed=settings.speed, failure_of=failure_of)

    return make


def _command(settings: Settings) -> ExecutorMaker:
    # These need a POSIX system; the rest of the server does not.
    from forewarn.executors.command import CommandExecutor  # noqa: PLC0415
    from forewarn.executors.configuration import read_commands  # noqa: PLC0415
    from forewarn.executors.records import Records  # noqa: PLC0415

    environment = environment_with({})
    commands = read_commands(settings.executor_file, environment.get("PATH", ""))

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Executor]:
        executor = CommandExecutor(
            commands,
            records=Records(settings.state_directory / _IMPACTS),
            host_of=_host_in(store),
            environment=environment,
            clock=clock,
        )
        with closing(executor):
            yield executor

    return make


def _webhook(settings: Settings) -> ExecutorMaker:
    from forewarn.executors.configuration import read_targets  # noqa: PLC0415 - as above
    from forewarn.executors.records import Records  # noqa: PLC0415
    from forewarn.executors.webhook import WebhookExecutor  # noqa: PLC0415

    targets = read_targets(settings.executor_file)

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Executor]:
        executor = WebhookExecutor(
            targets,
            records=Records(settings.state_directory / _IMPACTS),
            host_of=_host_in(store),
            clock=clock,
            wall=SystemClock(),
            wait=lambda failures: _ASKING.wait(max(failures, 1), random.random()),  # noqa: S311
        )
        with closing(executor):
            yield executor

    return make


def _host_in(store: Store) -> Callable[[VmName], HostName | None]:
    def host_of(name: VmName) -> HostName | None:
        vm = _find(store, name)
        return vm.host if vm else None

    return host_of


def _find(store: Store, name: VmName) -> VirtualMachine | None:
    return store.read(lambda reading: reading.topology().virtual_machines.get(name))
