"""Hosts: what is on them, and whether they take more virtual machines."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from forewarn.domain.amending import amend
from forewarn.domain.errors import ConflictError, UnknownHostError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance, remaining_steps
from forewarn.domain.names import HostName, VmName, name_key
from forewarn.domain.phrases import say_names
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Closure, FleetKeys, Host, Topology
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.operations.safeguards import HostBusyError, find_busy
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading, Transaction


class HostInUseError(ConflictError):
    """A host that cannot be removed while it carries virtual machines."""

    def __init__(self, host: HostName, vms: Sequence[VmName]) -> None:
        super().__init__(
            f"{host} still has virtual machines: {say_names(vms)}. Move or remove them first."
        )
        self.host = host
        self.vms = tuple(vms)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """A host with the virtual machines on it and the events in flight there."""

    host: Host
    virtual_machines: tuple[VmName, ...]
    events: tuple[ScheduledEvent, ...]


def find_host(hosts: Iterable[Host], name: str) -> Host:
    """Return the one of *hosts* that is called *name*, in any case, or refuse."""
    wanted = name_key(name)
    for host in hosts:
        if name_key(host.name) == wanted:
            return host
    raise UnknownHostError(name)


def find_loads(reading: Reading) -> dict[HostName, HostLoad]:
    """Return what is on every host, in fleet order."""
    topology = reading.topology()
    carried: dict[HostName, list[VmName]] = {name: [] for name in topology.hosts}
    for vm in topology.virtual_machines.values():
        if vm.host is not None:
            carried[vm.host].append(vm.name)
    events: dict[HostName, list[ScheduledEvent]] = {name: [] for name in topology.hosts}
    for event in reading.events_in_flight():
        for name in _hosts_of(event, topology):
            events[name].append(event)
    return {
        name: HostLoad(host=host, virtual_machines=tuple(carried[name]), events=tuple(events[name]))
        for name, host in topology.hosts.items()
    }


def find_load(reading: Reading, name: str) -> HostLoad:
    """Return what is on one host, or refuse a name that none has."""
    topology = reading.topology()
    host = find_host(topology.hosts.values(), name)
    vms = topology.virtual_machines.values()
    in_flight = reading.events_in_flight()
    return HostLoad(
        host=host,
        virtual_machines=tuple(vm.name for vm in vms if vm.host == host.name),
        events=tuple(event for event in in_flight if host.name in _hosts_of(event, topology)),
    )


def declare_hosts(before: Topology, declared: Iterable[Host]) -> dict[HostName, Host]:
    """Return the *declared* hosts; a declaration says nothing about who is closed."""
    known = before.hosts
    return {
        each.name: replace(each, closure=known.get(each.name, each).closure) for each in declared
    }


def forget_hosts(before: Topology, declared: Collection[HostName]) -> list[HostName]:
    """Return the hosts that are not *declared* any more.

    A closed host stays known until it is opened: forgotten, it would be implied as an open one.
    """
    hosts = before.hosts.items()
    return [name for name, host in hosts if name not in declared and host.closure is None]


def close_host(tx: Transaction, context: Context, name: str, *, reason: str = "") -> Host:
    """Have a host take no more virtual machines; those it has stay.

    One that is closed already stays closed since then, by whom it was; a new reason replaces the
    old one.
    """
    host = find_host(tx.topology().hosts.values(), name)
    closure = host.closure or Closure(closed_at=context.now, closed_by=context.who)
    closed = replace(host, closure=replace(closure, closed_reason=reason or closure.closed_reason))
    return _put(tx, context, host, closed, "host close")


def open_host(tx: Transaction, context: Context, name: str) -> Host:
    """Have a host take virtual machines again."""
    host = find_host(tx.topology().hosts.values(), name)
    return _put(tx, context, host, replace(host, closure=None), "host open")


def remove_host(tx: Transaction, context: Context, name: str) -> None:
    """Forget a host that carries no virtual machine and that no Maintenance needs."""
    before = tx.topology()
    load = find_load(tx, name)
    host = load.host.name
    if load.virtual_machines:
        raise HostInUseError(host, load.virtual_machines)
    after = amend(before, gone=FleetKeys(hosts=(host,)))
    find_busy(tx, before, after).refuse()
    snapshot = look(tx, context)
    for maintenance in snapshot.maintenances.values():
        if not maintenance.is_aborted and host in _hosts_ahead(maintenance, snapshot):
            raise HostBusyError(host, maintenance.maintenance_id)
    tx.put_topology(after)
    record_audit(tx, context, "host remove", host)


def _hosts_ahead(maintenance: Maintenance, snapshot: Snapshot) -> set[HostName | None]:
    events, operations = snapshot.events.values(), snapshot.operations.values()
    return {
        step.host for step in remaining_steps(maintenance, snapshot.topology, events, operations)
    }


def _hosts_of(event: ScheduledEvent, topology: Topology) -> Iterable[HostName]:
    vms = (topology.virtual_machines.get(name) for name in event.resources)
    hosts = (event.host, *(vm.host for vm in vms if vm is not None))
    return [host for host in dict.fromkeys(hosts) if host is not None and host in topology.hosts]


def _put(tx: Transaction, context: Context, before: Host, after: Host, action: str) -> Host:
    if after != before:
        tx.put_topology(amend(tx.topology(), hosts=[after]))
        reason = after.closure.closed_reason if after.closure else ""
        record_audit(tx, context, action, after.name, detail=reason)
    return after
