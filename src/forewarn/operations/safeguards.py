"""What keeps a declaration from doing harm: machines in flight stay, and fleets do not vanish."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from forewarn.domain.errors import ConflictError, DomainError, says
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
)
from forewarn.files.fleet import DeclaredVirtualMachine, Fleet
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId

FREE_REMOVALS: Final = 20
"""How many machines may be removed without being allowed by number."""
FREE_PERCENT: Final = 10
"""How many of a hundred machines may be removed without being allowed by number."""


@says("{vm} has events in flight ({event_ids}); move or remove it after they have ended.")
class VirtualMachineBusyError(ConflictError):
    """A virtual machine that cannot be moved or removed while it is in an event."""

    vm: VmName
    event_ids: tuple[EventId, ...]


@says("{host} is part of Maintenance {maintenance_id}; remove it after its step has ended.")
class HostBusyError(ConflictError):
    """A host that cannot be removed while a Maintenance is at it."""

    host: HostName
    maintenance_id: MaintenanceId


@says(
    "This would remove {removals} of {machines} virtual machines; "
    "to confirm, allow at least {removals} removals."
)
class TooManyRemovalsError(ConflictError):
    """A declaration that would remove more machines than were allowed."""

    removals: int
    machines: int


@says("The fleet declares no virtual machine, and pruning never removes all {machines}.")
class EmptyFleetError(ConflictError):
    """A declaration without a virtual machine that would remove all there are."""

    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """How a declaration is applied.

    *prune* removes what it leaves out, *allow_removals* machines at most where that is many;
    *skip_busy* leaves machines and hosts as they are that cannot be moved or removed now, and
    machines whose new host does not take them. *as_is* states facts: the machines are on these
    hosts already, so nothing that a host is doing refuses them. *remove* are machines to remove,
    too.
    """

    prune: bool = False
    skip_busy: bool = False
    allow_removals: int = 0
    as_is: bool = False
    remove: tuple[VmName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedEntry:
    """A virtual machine or a host that was left as it is, and why."""

    vm: VmName | None = None
    host: HostName | None = None
    reason: str
    event_ids: tuple[EventId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The machines and hosts that a change may not move or remove now, each with the refusal."""

    machines: Mapping[VmName, DomainError] = field(default_factory=dict)
    hosts: Mapping[HostName, HostBusyError] = field(default_factory=dict)

    def __or__(self, other: "Busy") -> "Busy":
        return Busy(
            machines={**self.machines, **other.machines}, hosts={**self.hosts, **other.hosts}
        )

    def __bool__(self) -> bool:
        return bool(self.machines or self.hosts)

    def refuse(self) -> None:
        """Raise the first refusal, if there is any."""
        for refusal in (*self.machines.values(), *self.hosts.values()):
            raise refusal

    def skipped(self) -> tuple[SkippedEntry, ...]:
        """Return what is left as it is."""
        return (
            *(
                SkippedEntry(vm=vm, reason=str(refusal), event_ids=_event_ids_of(refusal))
                for vm, refusal in self.machines.items()
            ),
            *(SkippedEntry(host=host, reason=str(refusal)) for host, refusal in self.hosts.items()),
        )


def _event_ids_of(refusal: DomainError) -> tuple[EventId, ...]:
    return refusal.event_ids if isinstance(refusal, VirtualMachineBusyError) else ()


def find_busy(reading: Reading, before: Topology, after: Topology) -> Busy:
    """Return what *after* moves or removes while something is done to it."""
    gone = set(after.revision_of(before).gone.hosts)
    return Busy(
        machines=_find_busy_machines(reading.events_in_flight(), before, after),
        hosts={
            each.host: HostBusyError(each.host, each.maintenance_id)
            for each in (reading.operations_under_way() if gone else ())
            if each.host in gone and not each.is_over
        },
    )


def leave_as_is(fleet: Fleet, before: Topology, busy: Busy) -> Fleet:
    """Return *fleet* with what is *busy*, and the sets and hosts it is in, as in *before*."""
    names = busy.machines.keys()
    vms = [before.virtual_machines[name] for name in names if name in before.virtual_machines]
    declared_scopes = {scope.scope_id for scope in fleet.scopes}
    declared_hosts = {host.name for host in fleet.hosts}
    scopes = {_set_of(before, vm) for vm in vms} - {None}
    return replace(
        fleet,
        scopes=(
            *fleet.scopes,
            *(
                scope
                for scope in before.scopes.values()
                if scope in scopes and scope.scope_id not in declared_scopes
            ),
        ),
        virtual_machines=(
            *(each for each in fleet.virtual_machines if each.vm.name not in names),
            *(_as_declared(vm, before.scopes[vm.scope_id]) for vm in vms),
        ),
        hosts=(
            *fleet.hosts,
            *(
                before.hosts[host]
                for host in dict.fromkeys([*(vm.host for vm in vms if vm.host), *busy.hosts])
                if host not in declared_hosts
            ),
        ),
    )


def needed_removals(before: Topology, removed: Collection[VmName]) -> int:
    """Return how many removals have to be allowed by number; 0 where they are few."""
    are_few = len(removed) * 100 <= len(before.virtual_machines) * FREE_PERCENT
    return 0 if are_few and len(removed) <= FREE_REMOVALS else len(removed)


def check_not_emptied(fleet: Fleet, before: Topology, options: ApplyOptions) -> None:
    """Refuse to prune by a *fleet* without machines, which is rather a mistake than a wish."""
    if options.prune and before.virtual_machines and not fleet.virtual_machines:
        raise EmptyFleetError(len(before.virtual_machines))


def _find_busy_machines(
    in_flight: Iterable[ScheduledEvent], before: Topology, after: Topology
) -> dict[VmName, VirtualMachineBusyError]:
    events: dict[VmName, list[EventId]] = {}
    for event in in_flight:
        for vm in event.resources:
            events.setdefault(vm, []).append(event.event_id)
    old, new = before.virtual_machines, after.virtual_machines
    return {
        vm: VirtualMachineBusyError(vm, tuple(event_ids))
        for vm, event_ids in events.items()
        if _place(old.get(vm)) != _place(new.get(vm))
    }


def _place(vm: VirtualMachine | None) -> tuple[ScopeId, int, HostName | None] | None:
    return None if vm is None else (vm.scope_id, vm.update_domain, vm.host)


def _set_of(topology: Topology, vm: VirtualMachine) -> DeliveryScope | None:
    """Return the set, service or scale set of *vm* as a fleet file declares it."""
    scope = topology.scopes[vm.scope_id]
    return None if scope.kind is ScopeKind.VIRTUAL_MACHINE else replace(scope, placement_group=None)


def _as_declared(vm: VirtualMachine, scope: DeliveryScope) -> DeclaredVirtualMachine:
    return DeclaredVirtualMachine(
        vm=vm, scope=scope, update_domain=vm.update_domain, fault_domain=vm.fault_domain
    )
