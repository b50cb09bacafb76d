"""Maintenances: an operator's intent over many virtual machines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from forewarn.domain.course import Course
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
from forewarn.domain.topology import Host, Topology, VirtualMachine
from forewarn.operations.context import Context
from forewarn.operations.inventory import find_scope_ids, find_vms
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventType

Labelled = TypeVar("Labelled", VirtualMachine, Host)


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


class UnknownLabelsError(DomainError):
    """Labels that nothing carries were selected."""

    def __init__(self, noun: str, labels: Mapping[str, str]) -> None:
        given = ", ".join(f"{key}={value}" for key, value in labels.items())
        super().__init__(f"No {noun} is labelled {given}.")
        self.labels = dict(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrder:
    """What an operator wants done, and to what: to virtual machines or scopes, or to hosts.

    Those are selected by name, and those that carry all of *labels* or *host_labels* besides.
    """

    event_type: EventType
    scopes: tuple[str, ...] = ()
    virtual_machines: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    host_labels: Mapping[str, str] = field(default_factory=dict)
    description: str = "Host server is undergoing maintenance."
    duration_in_seconds: int | None = None
    course: Course = field(default_factory=Course)


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
    topology = tx.topology()
    maintenance = draft_maintenance(topology, context, order)
    plan(maintenance, topology)
    tx.put_maintenance(maintenance)
    record_audit(tx, context, "maintenance start", maintenance.maintenance_id)
    return maintenance


def draft_maintenance(
    topology: Topology, context: Context, order: MaintenanceOrder
) -> Maintenance:
    """Return the Maintenance that *order* asks for, with what it selects; nothing has begun."""
    by_host = order.hosts or order.host_labels
    if by_host and (order.scopes or order.virtual_machines or order.labels):
        raise PlanError("Select hosts, or scopes and virtual machines, but not both.")
    return Maintenance(
        maintenance_id=MaintenanceId(context.new_id().lower()),
        event_type=order.event_type,
        started_at=context.now,
        description=order.description,
        duration_in_seconds=order.duration_in_seconds,
        resources=_selected_vms(topology, order),
        hosts=_selected_hosts(topology, order),
        course=order.course,
    )


def report_maintenance(reading: Reading, maintenance_id: str) -> MaintenanceReport:
    """Say where a Maintenance is, what it has done and what remains."""
    maintenance = reading.maintenance(MaintenanceId(maintenance_id))
    if maintenance is None:
        raise UnknownMaintenanceError(maintenance_id)
    return _report(reading, maintenance)


def report_maintenances(reading: Reading) -> tuple[MaintenanceReport, ...]:
    """Say where every Maintenance is, oldest first."""
    return tuple(_report(reading, maintenance) for maintenance in reading.maintenances())


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
    vms = topology.virtual_machines.values()
    for wanted in order.scopes:
        scope_ids = find_scope_ids(topology, wanted)
        if not scope_ids:
            raise UnknownSelectionError(wanted)
        names |= dict.fromkeys(vm.name for vm in vms if vm.scope_id in scope_ids)
    if order.labels:
        names |= dict.fromkeys(vm.name for vm in _labelled("virtual machine", vms, order.labels))
    return tuple(names)


def _selected_hosts(topology: Topology, order: MaintenanceOrder) -> tuple[HostName, ...]:
    known = {name_key(host): host for host in topology.hosts}
    try:
        names = dict.fromkeys(known[name_key(host)] for host in order.hosts)
    except KeyError as error:
        raise UnknownHostError(str(error.args[0])) from None
    if order.host_labels:
        hosts = topology.hosts.values()
        names |= dict.fromkeys(host.name for host in _labelled("host", hosts, order.host_labels))
    return tuple(names)


def _labelled(noun: str, all_: Iterable[Labelled], labels: Mapping[str, str]) -> Iterable[Labelled]:
    found = [each for each in all_ if labels.items() <= each.labels.items()]
    if not found:
        raise UnknownLabelsError(noun, labels)
    return found
