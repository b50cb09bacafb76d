"""Maintenances: an operator's intent over many virtual machines."""

from dataclasses import dataclass

from forewarn.domain.errors import DomainError, PlanError, UnknownHostError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceStatus,
    Step,
    held_scopes,
    plan,
    remaining_steps,
    status,
)
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName, name_key
from forewarn.domain.topology import Topology
from forewarn.operations.context import Context
from forewarn.operations.inventory import find_scope_ids, find_vms
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventType


class UnknownMaintenanceError(DomainError):
    """A Maintenance nobody has started."""

    def __init__(self, maintenance_id: str) -> None:
        super().__init__(f"There is no maintenance {maintenance_id!r}.")
        self.maintenance_id = maintenance_id


class UnknownSelectionError(DomainError):
    """A delivery scope that does not exist was selected."""

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"There is no set, service, scale set or virtual machine called {scope!r}."
        )
        self.scope = scope


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrder:
    """What an operator wants done, and to what: to virtual machines or scopes, or to hosts."""

    event_type: EventType
    scopes: tuple[str, ...] = ()
    virtual_machines: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    description: str = "Host server is undergoing maintenance."
    duration_in_seconds: int | None = None
    hold_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """Where a Maintenance is."""

    maintenance: Maintenance
    status: MaintenanceStatus
    events: tuple[ScheduledEvent, ...]
    remaining: tuple[Step, ...]
    held: dict[ScopeId, ScheduledEvent]


def start_maintenance(tx: Transaction, context: Context, order: MaintenanceOrder) -> Maintenance:
    """Begin a Maintenance, or refuse with the reason it cannot be walked."""
    if order.hosts and (order.scopes or order.virtual_machines):
        raise PlanError("Select hosts, or scopes and virtual machines, but not both.")
    topology = tx.topology()
    maintenance = Maintenance(
        maintenance_id=MaintenanceId(context.new_id().lower()),
        event_type=order.event_type,
        description=order.description,
        duration_in_seconds=order.duration_in_seconds,
        resources=_selected_vms(topology, order),
        hosts=_selected_hosts(topology, order),
        hold_all=order.hold_all,
    )
    plan(maintenance, topology)
    tx.put_maintenance(maintenance)
    record_audit(tx, context, "maintenance start", maintenance.maintenance_id)
    return maintenance


def report_maintenance(reading: Reading, maintenance_id: str) -> MaintenanceReport:
    """Say where a Maintenance is, what it has done and what remains."""
    return _report(reading, _find(reading, maintenance_id))


def report_maintenances(
    reading: Reading, *, older_than: str | None = None, limit: int | None = None
) -> tuple[MaintenanceReport, ...]:
    """Say where every Maintenance is, or the newest before one that was seen, oldest first."""
    seen = None if older_than is None else _find(reading, older_than).maintenance_id
    found = reading.maintenances(older_than=seen, limit=limit)
    return tuple(_report(reading, maintenance) for maintenance in found)


def _find(reading: Reading, maintenance_id: str) -> Maintenance:
    maintenance = reading.maintenance(MaintenanceId(maintenance_id))
    if maintenance is None:
        raise UnknownMaintenanceError(maintenance_id)
    return maintenance


def _report(reading: Reading, maintenance: Maintenance) -> MaintenanceReport:
    topology = reading.topology()
    events = reading.events_of([maintenance.maintenance_id])
    is_over = maintenance.is_aborted or maintenance.finished_at is not None
    return MaintenanceReport(
        maintenance=maintenance,
        status=status(maintenance, topology, events),
        events=events,
        remaining=() if is_over else remaining_steps(maintenance, topology, events),
        held=held_scopes(maintenance, events),
    )


def _selected_vms(topology: Topology, order: MaintenanceOrder) -> tuple[VmName, ...]:
    names = dict.fromkeys(vm.name for vm in find_vms(topology, order.virtual_machines))
    for wanted in order.scopes:
        scope_ids = find_scope_ids(topology, wanted)
        if not scope_ids:
            raise UnknownSelectionError(wanted)
        members = [vm for vm in topology.virtual_machines.values() if vm.scope_id in scope_ids]
        names |= dict.fromkeys(vm.name for vm in members)
    return tuple(names)


def _selected_hosts(topology: Topology, order: MaintenanceOrder) -> tuple[HostName, ...]:
    known = {name_key(host): host for host in topology.hosts}
    try:
        return tuple(dict.fromkeys(known[name_key(host)] for host in order.hosts))
    except KeyError as error:
        raise UnknownHostError(str(error.args[0])) from None
