"""Scripts, webhooks and libvirt, which carry maintenance out, as the file of executors says.

They need a POSIX system; the rest of the server does not, and imports this only where it has to.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from forewarn.bootstrap.runners import RunnersMaker
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.task import TIMEOUT_SECONDS
from forewarn.domain.topology import Host, Topology
from forewarn.environment import environment_with
from forewarn.executors.command import EXECUTOR as COMMAND
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.configuration import (
    ByHand,
    Executors,
    FetchedByHost,
    ImpactExecutor,
    read_executors,
)
from forewarn.executors.libvirt.hypervisors import EXECUTOR as LIBVIRT
from forewarn.executors.libvirt.hypervisors import (
    Hypervisor,
    KnownFleet,
    hypervisor_among,
    stewards,
)
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.simulated import MANUALLY
from forewarn.executors.task_input import Runner, TaskInput
from forewarn.executors.task_log import TaskLog
from forewarn.executors.webhook import EXECUTOR as WEBHOOK
from forewarn.executors.webhook import WebhookRunner, WebhookTarget
from forewarn.files.tables import TablesError
from forewarn.outbound.client import Outbound
from forewarn.ports.clock import Clock
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Reading, Store
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind

M = TypeVar("M", Command, WebhookTarget, Hypervisor)

_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))
_NAMES: Final[Mapping[type, str]] = {Command: COMMAND, WebhookTarget: WEBHOOK, Hypervisor: LIBVIRT}
"""The runner of each kind of executor."""


def file_runners(settings: Settings, path: Path, outbound: Outbound) -> RunnersMaker:
    """Return how to make the runners that the file at *path* names, or refuse what it says."""
    executors = read_executors(path, environment_with({}).get("PATH", ""))
    if settings.clock is ClockKind.VIRTUAL and (executors.impacts or executors.host_works):
        raise TablesError(
            f"{path} is for real machines and cannot be used with the virtual clock; use the "
            "executor simulated."
        )

    @contextmanager
    def make(store: Store, clock: Clock, records: TaskLog) -> Iterator[FileRunners]:
        made = FileRunners(executors, store, clock, records, outbound)
        with closing(made):
            yield made

    return make


class FileRunners:
    """All runners for *executors*: one that no table names any more may have begun tasks."""

    def __init__(
        self, executors: Executors, store: Store, clock: Clock, records: TaskLog, outbound: Outbound
    ) -> None:
        self._executors = executors
        self._store = store
        environment = environment_with({})
        plans = stewards(lambda: store.read(_known_fleet), hypervisor_among(executors.impacts))
        self._runners: Mapping[str, Runner] = {
            COMMAND: ProcessRunner(
                self._finder(Command),
                SCRIPTS,
                log=records,
                environment=environment,
                clock=clock,
            ),
            LIBVIRT: ProcessRunner(
                self._finder(Hypervisor), plans, log=records, environment=environment, clock=clock
            ),
            WEBHOOK: WebhookRunner(
                self._finder(WebhookTarget),
                log=records,
                outbound=outbound,
                clock=clock,
                wall=SystemClock(),
                wait=lambda failures: _ASKING.wait(max(failures, 1), random.random()),  # noqa: S311
            ),
        }

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        """Which hosts have work, in the order of the file."""
        return tuple(work.rule for work in self._executors.host_works)

    def runner(self, name: str) -> Runner | None:
        """Return the runner of that name, if there is one."""
        return self._runners.get(name)

    def close(self) -> None:
        """Close the runners. What was begun is not stopped."""
        for each in self._runners.values():
            each.close()

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        """Return the runner of the first table that fits; without one, an operator does it."""
        del now
        known = topology.virtual_machines.get(vm)
        name = (known.host if known else None) or event.host
        return _assign(self._executors.find_impact(event.event_type, _host(topology, name)))

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Return the runner that the table of the host names for *task*."""
        del now
        host = topology.hosts.get(task.host) or Host(name=task.host)
        executor = self._executors.find_host_task(task.kind, host)
        if isinstance(executor, FetchedByHost):
            return executor.assign(task)
        if executor is None:
            reason = f"the executor file has no {task.kind} for host {task.host}"
            return Assignment(runner="", said=Impact(status=ImpactStatus.FAILED, reason=reason))
        return _assign(executor)

    def _finder(self, kind: type[M]) -> Callable[[TaskInput], M | None]:
        """Return how to find the executor of a task if it is of that *kind*."""

        def find(task: TaskInput) -> M | None:
            topology = self._store.read(lambda reading: reading.topology())
            host, found = _host(topology, task.host), object()
            if task.kind is None:
                found = self._executors.find_impact(task.event_type, host)
            elif host is not None:
                found = self._executors.find_host_task(task.kind, host)
            return found if isinstance(found, kind) else None

        return find


def _assign(executor: ImpactExecutor | None) -> Assignment:
    if executor is None or isinstance(executor, ByHand):
        return MANUALLY
    details = {TIMEOUT_SECONDS: executor.timeout.total_seconds()}
    return Assignment(runner=_NAMES[type(executor)], details=details)


def _host(topology: Topology, name: HostName | None) -> Host | None:
    return None if name is None else topology.hosts.get(name) or Host(name=name)


def _known_fleet(reading: Reading) -> KnownFleet:
    at_work = {
        each.host
        for each in reading.operations_under_way()
        if each.phase not in {HostPhase.ANNOUNCED, HostPhase.OVER}
    }
    return KnownFleet(fleet=reading.topology(), at_work=at_work)
