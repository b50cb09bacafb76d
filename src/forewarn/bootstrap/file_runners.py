"""Scripts, webhooks and libvirt, which carry maintenance out, as the file of executors says.

They need a POSIX system; the rest of the server does not, and imports this only where it has to.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from forewarn.bootstrap.runners import RunnersMaker
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.task import TIMEOUT_SECONDS
from forewarn.domain.topology import Host, Topology
from forewarn.environment import environment_with
from forewarn.executors.command import EXECUTOR as COMMAND
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.configuration import Roster, find_work, read_roster
from forewarn.executors.fetched import FetchedByHost
from forewarn.executors.host_tasks import HostOrder
from forewarn.executors.impacts import find_means
from forewarn.executors.libvirt.hypervisors import EXECUTOR as LIBVIRT
from forewarn.executors.libvirt.hypervisors import (
    Hypervisor,
    KnownFleet,
    hypervisor_among,
    stewards,
)
from forewarn.executors.orders import Means, Runner
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.simulated import MANUALLY
from forewarn.executors.targets import ImpactTarget
from forewarn.executors.task_log import TaskLog
from forewarn.executors.webhook import EXECUTOR as WEBHOOK
from forewarn.executors.webhook import WebhookRunner
from forewarn.files.tables import TablesError
from forewarn.outbound.client import Outbound
from forewarn.ports.clock import Clock
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Reading, Store
from forewarn.protocol.vocabulary import EventType
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind

M = TypeVar("M", Command, ImpactTarget, Hypervisor)

_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))
_NAMES: Final[Mapping[type, str]] = {Command: COMMAND, ImpactTarget: WEBHOOK, Hypervisor: LIBVIRT}
"""The runner of each kind of means."""


def file_runners(settings: Settings, path: Path, outbound: Outbound) -> RunnersMaker:
    """Return how to make the runners that the file at *path* names, or refuse what it says."""
    roster = read_roster(path, environment_with({}).get("PATH", ""))
    if settings.clock is ClockKind.VIRTUAL and (roster.means or roster.host_works):
        raise TablesError(
            f"{path} is for real machines and cannot be used with the virtual clock; use the "
            "executor simulated."
        )

    @contextmanager
    def make(store: Store, clock: Clock, records: TaskLog) -> Iterator[FileRunners]:
        made = FileRunners(roster, store, clock, records, outbound)
        with closing(made):
            yield made

    return make


class FileRunners:
    """The runners of a *roster*, all of them: also one that no table names may have begun tasks."""

    def __init__(
        self, roster: Roster, store: Store, clock: Clock, records: TaskLog, outbound: Outbound
    ) -> None:
        self._roster = roster
        self._store = store
        environment = environment_with({})
        plans = stewards(lambda: store.read(_known_fleet), hypervisor_among(roster.means))
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
                self._finder(ImpactTarget),
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
        return tuple(work.rule for work in self._roster.host_works)

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
        means = find_means(self._roster.means, event.event_type, _host(topology, name))
        return MANUALLY if means is None else _assign(means)

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Return the runner that the table of the host names for *task*."""
        del now
        host = topology.hosts.get(task.host) or Host(name=task.host)
        work = find_work(self._roster.host_works, host)
        means = None if work is None else work.means.get(task.kind)
        if isinstance(means, FetchedByHost):
            return means.assign(task, HostOrder(task=task, epoch=0).describe())
        if means is None:
            reason = f"the executor file has no {task.kind} for host {task.host}"
            return Assignment(runner="", said=Impact(status=ImpactStatus.FAILED, reason=reason))
        return _assign(means)

    def _finder(self, kind: type[M]) -> Callable[[Mapping[str, Any]], M | None]:
        """Return how to find the means of that *kind*, from what an order is about."""

        def find(about: Mapping[str, Any]) -> M | None:
            topology = self._store.read(lambda reading: reading.topology())
            name = None if about["host"] is None else HostName(about["host"])
            host = _host(topology, name)
            found: object
            if "task" in about:
                work = find_work(self._roster.host_works, host or Host(name=HostName("")))
                found = work.means.get(HostTaskKind(about["task"])) if work else None
            else:
                found = find_means(self._roster.means, EventType(about["event_type"]), host)
            return found if isinstance(found, kind) else None

        return find


def _assign(means: Means | Command | ImpactTarget) -> Assignment:
    if not isinstance(means, Command | ImpactTarget | Hypervisor):
        return MANUALLY
    details = {TIMEOUT_SECONDS: means.timeout.total_seconds()}
    return Assignment(runner=_NAMES[type(means)], details=details)


def _host(topology: Topology, name: HostName | None) -> Host | None:
    return None if name is None else topology.hosts.get(name) or Host(name=name)


def _known_fleet(reading: Reading) -> KnownFleet:
    at_work = {
        each.host
        for each in reading.operations_under_way()
        if each.phase not in {HostPhase.ANNOUNCED, HostPhase.OVER}
    }
    return KnownFleet(fleet=reading.topology(), at_work=at_work)
