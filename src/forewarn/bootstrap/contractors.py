"""Scripts, webhooks and libvirt, which carry maintenance out, as the file of executors says.

They need a POSIX system; the rest of the server does not, and imports this only where it has to.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from forewarn.bootstrap.order_records import HOST_ORDERS, IMPACT_ORDERS, OrderRecords, Orders
from forewarn.bootstrap.workforce import Workforce, WorkforceMaker
from forewarn.clocks import SystemClock
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.topology import Host
from forewarn.environment import environment_with
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.configuration import read_roster
from forewarn.executors.fetched import FetchedByHost, OfferContractor
from forewarn.executors.host_tasks import ContractedHostWorker, HostWork, find_for_host
from forewarn.executors.impacts import ContractedExecutor, SimulatedContractor, find_among
from forewarn.executors.libvirt.hypervisors import (
    Hypervisor,
    KnownFleet,
    hypervisor_among,
    stewards,
)
from forewarn.executors.orders import Contractor, Contractors, Means
from forewarn.executors.processes import ProcessContractor, Trade
from forewarn.executors.records import Records
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.executors.targets import ImpactTarget
from forewarn.executors.webhook import WebhookContractor
from forewarn.files.tables import TablesError
from forewarn.outbound.client import Outbound
from forewarn.ports.clock import Clock
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Reading, Store
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind

log = structlog.get_logger()

M = TypeVar("M")

_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agency:
    """What the contractors for one kind of orders have in common."""

    records: OrderRecords
    clock: Clock
    outbound: Outbound

    def scripts(self, find: Callable[[Mapping[str, Any]], Command | None]) -> Contractor:
        return self._processes(find, SCRIPTS, self.records.for_scripts())

    def stewards(
        self,
        find: Callable[[Mapping[str, Any]], Hypervisor | None],
        trade: Trade[Hypervisor],
    ) -> Contractor:
        # Whoever begins an impact again finds its mark in the domain.
        return self._processes(find, trade, self.records.for_webhooks())

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

    def _processes(
        self, find: Callable[[Mapping[str, Any]], M | None], trade: Trade[M], records: Records
    ) -> Contractor:
        return ProcessContractor(
            find,
            trade,
            kind=self.records.kind,
            records=records,
            environment=environment_with({}),
            clock=self.clock,
        )


def contracted(settings: Settings, path: Path, outbound: Outbound) -> WorkforceMaker:
    """Return how to make the workforce that the file at *path* names, or refuse what it says."""
    roster = read_roster(path, environment_with({}).get("PATH", ""))
    if settings.clock is ClockKind.VIRTUAL and (roster.means or roster.host_works):
        raise TablesError(
            f"{path} is for real machines and cannot be used with the virtual clock; use the "
            "executor simulated."
        )

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Workforce]:
        def agency(orders: Orders) -> _Agency:
            records = OrderRecords(orders, settings.state_directory, store)
            return _Agency(records=records, clock=clock, outbound=outbound)

        with ExitStack() as stack:
            agencies = [agency(IMPACT_ORDERS)]
            executor = _executor(roster.means, agencies[0], store)
            stack.enter_context(closing(executor))
            worker: HostWorker | None = None
            if roster.host_works:
                agencies.append(agency(HOST_ORDERS))
                worker = _host_worker(roster.host_works, agencies[-1], store)
                stack.enter_context(closing(worker))
            archives = tuple(each.records for each in agencies)
            yield Workforce(executor=executor, host_worker=worker, archives=archives)

    return make


def _executor(means: Sequence[Means], agency: _Agency, store: Store) -> ContractedExecutor:
    def host_of(name: VmName) -> HostName | None:
        vm = store.read(lambda reading: reading.topology().virtual_machines.get(name))
        return vm.host if vm else None

    host_called = _host_finder(store)
    # Also those that no table is for: an order that one of them was given before stays with it.
    contractors = (
        SimulatedContractor(SimulatedExecutor(store, agency.clock)),
        agency.scripts(find_among(means, Command, host_called)),
        agency.webhooks(find_among(means, ImpactTarget, host_called)),
        agency.stewards(
            find_among(means, Hypervisor, host_called),
            stewards(lambda: store.read(_known_fleet), hypervisor_among(means)),
        ),
    )
    return ContractedExecutor(
        Contractors(contractors),
        event_called=lambda event_id: store.read(lambda reading: reading.event(event_id)),
        host_of=host_of,
    )


def _known_fleet(reading: Reading) -> KnownFleet:
    at_work = {
        each.host
        for each in reading.operations_under_way()
        if each.phase not in {HostPhase.ANNOUNCED, HostPhase.OVER}
    }
    return KnownFleet(fleet=reading.topology(), at_work=at_work)


def _host_worker(works: Sequence[HostWork], agency: _Agency, store: Store) -> ContractedHostWorker:
    host_called = _host_finder(store)
    contractors = (
        agency.scripts(find_for_host(works, host_called, Command)),
        agency.webhooks(find_for_host(works, host_called, ImpactTarget)),
        OfferContractor(
            find_for_host(works, host_called, FetchedByHost),
            store=store,
            clock=agency.clock,
            wall=SystemClock(),
        ),
    )
    return ContractedHostWorker(works, contractors)


def _host_finder(store: Store) -> Callable[[HostName], Host]:
    def find(name: HostName) -> Host:
        known = store.read(lambda reading: reading.topology().hosts.get(name))
        return known or Host(name=name)

    return find
