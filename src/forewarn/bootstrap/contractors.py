"""Scripts and webhooks that carry maintenance out, as the file of executors says.

They need a POSIX system; the rest of the server does not, and imports this only where it has to.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog

from forewarn.bootstrap.order_records import HOST_ORDERS, IMPACT_ORDERS, OrderRecords
from forewarn.bootstrap.workforce import ExecutorMaker, HostWorkerMaker
from forewarn.clocks import SystemClock
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.topology import Host
from forewarn.environment import environment_with
from forewarn.executors.command import Command, ScriptContractor
from forewarn.executors.configuration import read_commands, read_host_works, read_targets
from forewarn.executors.host_tasks import ContractedHostWorker, HostWork, find_for_host
from forewarn.executors.impacts import ContractedExecutor, find_among
from forewarn.executors.orders import Contractor
from forewarn.executors.targets import ImpactTarget
from forewarn.executors.webhook import WebhookContractor
from forewarn.files.tables import TablesError
from forewarn.outbound.client import Outbound
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Store
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind, ExecutorKind

log = structlog.get_logger()

_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agency:
    """What the contractors for one kind of orders have in common."""

    records: OrderRecords
    clock: Clock
    outbound: Outbound

    def scripts(self, find: Callable[[Mapping[str, Any]], Command | None]) -> Contractor:
        return ScriptContractor(
            find,
            kind=self.records.kind,
            records=self.records.for_scripts(),
            environment=environment_with({}),
            clock=self.clock,
        )

    def webhooks(self, find: Callable[[Mapping[str, Any]], ImpactTarget | None]) -> Contractor:
        return WebhookContractor(
            find,
            kind=self.records.kind,
            records=self.records.for_webhooks(),
            outbound=self.outbound,
            clock=self.clock,
            wall=SystemClock(),
            wait=lambda failures: _ASKING.wait(max(failures, 1), random.random()),  # noqa: S311
        )


def contracted_executor(settings: Settings, outbound: Outbound) -> ExecutorMaker:
    """Return how to make who has scripts or webhooks do it, or refuse what the file says."""
    hire = _choose_contractor(settings)

    def make(store: Store, clock: Clock, stack: ExitStack) -> Executor:
        def host_of(name: VmName) -> HostName | None:
            vm = store.read(lambda reading: reading.topology().virtual_machines.get(name))
            return vm.host if vm else None

        records = OrderRecords(IMPACT_ORDERS, settings.state_directory, store)
        contractor = hire(_Agency(records=records, clock=clock, outbound=outbound))
        return stack.enter_context(closing(ContractedExecutor(contractor, host_of=host_of)))

    return make


def contracted_host_worker(settings: Settings, outbound: Outbound) -> HostWorkerMaker:
    """Return how to make who works on hosts, if any host has work, or refuse what the file says."""
    works = read_host_works(settings.executor_file, _search_path())
    if works and settings.clock is ClockKind.VIRTUAL:
        raise TablesError(
            f"{settings.executor_file} has [[host_work]], which cannot be done with clock virtual; "
            "use the executor simulated."
        )

    def make(store: Store, clock: Clock, stack: ExitStack) -> HostWorker | None:
        if not works:
            return None
        records = OrderRecords(HOST_ORDERS, settings.state_directory, store)
        agency = _Agency(records=records, clock=clock, outbound=outbound)
        contractors = _contractors(works, agency, store)
        return stack.enter_context(closing(ContractedHostWorker(works, contractors)))

    return make


def _choose_contractor(settings: Settings) -> Callable[[_Agency], Contractor]:
    if settings.executor is ExecutorKind.COMMAND:
        commands = find_among(read_commands(settings.executor_file, _search_path()))
        return lambda agency: agency.scripts(commands)
    targets = find_among(read_targets(settings.executor_file))
    return lambda agency: agency.webhooks(targets)


def _contractors(works: Sequence[HostWork], agency: _Agency, store: Store) -> Sequence[Contractor]:
    """Return the contractors that *works* need: those for webhooks have threads of their own."""

    def host_of(name: HostName) -> Host:
        known = store.read(lambda reading: reading.topology().hosts.get(name))
        return known or Host(name=name)

    needed = {type(means) for work in works for means in work.means.values()}
    contractors = []
    if Command in needed:
        contractors.append(agency.scripts(find_for_host(works, host_of, Command)))
    if ImpactTarget in needed:
        contractors.append(agency.webhooks(find_for_host(works, host_of, ImpactTarget)))
    return contractors


def _search_path() -> str:
    return environment_with({}).get("PATH", "")
