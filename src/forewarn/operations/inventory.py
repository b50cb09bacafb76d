"""The fleet: declaring it, changing it, and what may not change while an event is in flight."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from forewarn.domain.errors import (
    NameTakenError,
    TopologyError,
    UnknownVirtualMachineError,
)
from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
    assign_domains,
    build_topology,
    scope_mistakes,
)
from forewarn.files.fleet import DeclaredVirtualMachine, Fleet, refuse_mistakes
from forewarn.operations.context import Context
from forewarn.operations.differences import Alteration, Difference, find_differences
from forewarn.operations.hosts import merge_hosts
from forewarn.operations.incarnations import keep_incarnations_rising, note_departures
from forewarn.operations.placements import find_misplaced, tell_arrivals
from forewarn.operations.recording import record_audit
from forewarn.operations.safeguards import (
    ApplyOptions,
    Busy,
    SkippedEntry,
    TooManyRemovalsError,
    check_not_emptied,
    find_busy,
    leave_as_is,
    needed_removals,
)
from forewarn.ports.entries import Membership
from forewarn.ports.fleet import PreparedTopology
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError

_USUAL_OPTIONS: Final = ApplyOptions()
_APPLY: Final = "fleet apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """What a declaration changed, entry by entry; *changed_scopes* have other settings now.

    *needed_removals* is how many have to be allowed by number, 0 where they are few.
    *undeclared_hosts* are new, though a declaration that has hosts does not have them.
    """

    differences: tuple[Difference, ...] = ()
    changed_scopes: tuple[ScopeId, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    needed_removals: int = 0
    undeclared_hosts: tuple[HostName, ...] = ()

    @property
    def added(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.ADDED)

    @property
    def changed(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.CHANGED)

    @property
    def removed(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.REMOVED)

    def _machines(self, alteration: Alteration) -> tuple[VmName, ...]:
        return tuple(
            VmName(each.name)
            for each in self.differences
            if each.table == "virtual_machine" and each.alteration is alteration
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a declaration makes of a fleet, before anything is written."""

    before: Topology
    after: Topology
    change: FleetChange
    prepared: PreparedTopology | None = None


def find_vm(topology: Topology, name: str) -> VirtualMachine:
    """Return the virtual machine called *name*, in any case, or refuse."""
    (vm,) = find_vms(topology, [name])
    return vm


def find_vms(topology: Topology, names: Iterable[str]) -> list[VirtualMachine]:
    """Return the virtual machines called *names*, in any case, or refuse the first unknown one."""
    wanted = tuple(names)
    exact = [topology.virtual_machines.get(VmName(name)) for name in wanted]
    if None not in exact:
        return [vm for vm in exact if vm is not None]
    known = {name_key(vm.name): vm for vm in topology.virtual_machines.values()}
    for name in wanted:
        if name_key(name) not in known:
            raise UnknownVirtualMachineError(name)
    return [known[name_key(name)] for name in wanted]


def apply_fleet(
    tx: Transaction,
    context: Context,
    fleet: Fleet,
    *,
    options: ApplyOptions = _USUAL_OPTIONS,
    action: str = _APPLY,
    plan: FleetPlan | None = None,
) -> FleetChange:
    """Make the fleet as declared. What is not declared stays, unless it is to be pruned.

    A *plan* that was made before need not be made while others wait, unless the fleet has changed.
    """
    before = tx.topology()
    is_stale = plan is None or plan.before is not before
    if plan is None or is_stale or _find_refused(tx, context, before, plan.after, options):
        plan = plan_fleet(tx, context, fleet, options)
    if plan.change.needed_removals > options.allow_removals:
        raise TooManyRemovalsError(plan.change.needed_removals, len(before.virtual_machines))
    after = plan.after
    if after != before:
        note_departures(tx, before, after)
        tx.put_topology(after, plan.prepared)
        keep_incarnations_rising(tx, context, before, after)
        tell_arrivals(tx, context, before, after)
        _record_moves(tx, context, before, after)
        detail = "stated as a fact" if options.as_is else ""
        record_audit(tx, context, action, _subject(action, fleet, plan.change), detail=detail)
    return plan.change


def plan_fleet(
    reading: Reading, context: Context, fleet: Fleet, options: ApplyOptions = _USUAL_OPTIONS
) -> FleetPlan:
    """Return what `apply_fleet` would change, or refuse what cannot be.

    How many removals are allowed is not looked at, so that they can be seen before.
    """
    before = reading.topology()
    after = declare(before, fleet, context, prune=options.prune)
    check_not_emptied(fleet, before, options)
    skipped = Busy()
    # Without some machines, others may get update domains that are refused in turn.
    while refused := _find_refused(reading, context, before, after, options):
        if not options.skip_busy:
            refused.refuse()
        skipped |= refused
        rest = leave_as_is(fleet, before, skipped)
        after = declare(before, rest, context, prune=options.prune)
    change = _compare(before, after)
    needed = needed_removals(before, change.removed)
    change = replace(
        change,
        skipped=skipped.skipped(),
        needed_removals=needed,
        undeclared_hosts=_undeclared_hosts(before, after, fleet),
    )
    return FleetPlan(before=before, after=after, change=change)


def _undeclared_hosts(before: Topology, after: Topology, fleet: Fleet) -> tuple[HostName, ...]:
    if not fleet.hosts:  # all hosts are only implied
        return ()
    known = before.hosts.keys() | {host.name for host in fleet.hosts}
    return tuple(name for name in after.hosts if name not in known)


def _find_refused(
    reading: Reading, context: Context, before: Topology, after: Topology, options: ApplyOptions
) -> Busy:
    """Return what cannot be where *after* has it, and why."""
    busy = find_busy(reading, before, after)
    if options.as_is:
        return busy
    return Busy(machines=find_misplaced(reading, context, before, after)) | busy


def remove_vm(tx: Transaction, context: Context, name: str) -> FleetChange:
    """Take a virtual machine out of the fleet."""
    before = tx.topology()
    vm = find_vm(before, name)
    rest = [other for other in before.virtual_machines.values() if other.name != vm.name]
    after = build_topology(
        scopes=_used_scopes(before.scopes.values(), rest),
        virtual_machines=rest,
        hosts=before.hosts.values(),
    )
    find_busy(tx, before, after).refuse()
    note_departures(tx, before, after)
    tx.put_topology(after)
    _record_moves(tx, context, before, after)
    record_audit(tx, context, "vm remove", vm.name)
    return _compare(before, after)


def declare(before: Topology, fleet: Fleet, context: Context, *, prune: bool) -> Topology:
    """Return the topology after *fleet* was declared on top of *before*."""
    declared = {each.vm.name: each for each in fleet.virtual_machines}
    staying = {
        name: vm for name, vm in before.virtual_machines.items() if name in declared or not prune
    }
    scopes = _merge_scopes(before, fleet, prune=prune)
    places = _assign_domains(fleet, scopes, staying.values())
    made = {
        name: _virtual_machine(each.vm, staying.get(name), places[name], context)
        for name, each in declared.items()
    }
    # What was there keeps its place in fleet order.
    vms = {**staying, **made}
    return build_topology(
        scopes=_used_scopes(scopes.values(), vms.values()),
        virtual_machines=vms.values(),
        hosts=merge_hosts(before, fleet.hosts, prune=prune),
        refuse=lambda found: refuse_mistakes(_all_mistakes(fleet, found)),
    )


def _all_mistakes(fleet: Fleet, found: Iterable[TopologyError]) -> Iterator[ForewarnError]:
    yield from fleet.mistakes
    twice = {name_key(mistake.name): mistake for mistake in _declared_twice(fleet)}
    yield from twice.values()
    for mistake in found:
        if not (isinstance(mistake, NameTakenError) and name_key(mistake.name) in twice):
            yield mistake


def _declared_twice(fleet: Fleet) -> Iterator[NameTakenError]:
    for noun, names in (
        ("virtual machine", [each.vm.name for each in fleet.virtual_machines]),
        ("set, service or scale set", [scope.name for scope in fleet.scopes]),
        ("host", [host.name for host in fleet.hosts]),
    ):
        for name, times in Counter(map(name_key, names)).items():
            if times > 1:
                yield NameTakenError(noun, name, _advise_on_instances(fleet, name))


def _advise_on_instances(fleet: Fleet, name: str) -> str:
    """Return what to call instances of two cloud services that have one *name*."""
    qualified = [
        f"{each.scope.name}.{each.vm.name}"
        for each in fleet.virtual_machines
        if name_key(each.vm.name) == name and each.scope.kind is ScopeKind.CLOUD_SERVICE
    ]
    return f" Call them {' and '.join(qualified)}." if len(set(qualified)) > 1 else ""


def _merge_scopes(before: Topology, fleet: Fleet, *, prune: bool) -> dict[ScopeId, DeliveryScope]:
    scopes = {} if prune else dict(before.scopes)
    scopes |= {scope.scope_id: scope for scope in fleet.scopes}
    places = {each.vm.scope_id: each.scope for each in fleet.virtual_machines}
    scopes |= {
        scope_id: scope
        for scope_id, scope in places.items()
        if scope.kind is ScopeKind.VIRTUAL_MACHINE
    }
    # Each placement group of a scale set is a scope of its own, with the settings of the set.
    sets = {scope.name: scope for scope in scopes.values() if scope.placement_group is None}
    groups = {
        (scope.name, scope.placement_group)
        for scope in (*scopes.values(), *places.values())
        if scope.placement_group
    }
    for name, group in sorted(groups):
        if name in sets:
            scope = replace(sets[name], placement_group=group)
            scopes[scope.scope_id] = scope
    return scopes


def _assign_domains(
    fleet: Fleet,
    scopes: Mapping[ScopeId, DeliveryScope],
    staying: Iterable[VirtualMachine],
) -> dict[VmName, tuple[int, int]]:
    known: dict[ScopeId, list[VirtualMachine]] = {}
    for vm in staying:
        known.setdefault(vm.scope_id, []).append(vm)
    wanted: dict[ScopeId, list[DeclaredVirtualMachine]] = {}
    for declared in fleet.virtual_machines:
        wanted.setdefault(declared.vm.scope_id, []).append(declared)
    places: dict[VmName, tuple[int, int]] = {}
    for scope_id, vms in wanted.items():
        scope = scopes.get(scope_id)
        is_alone = vms[0].scope.kind is ScopeKind.VIRTUAL_MACHINE
        # Without a scope, or with one that cannot be, there is nothing to choose from.
        if scope is None or is_alone or any(scope_mistakes(scope)):
            places |= {each.vm.name: (each.vm.update_domain, each.vm.fault_domain) for each in vms}
            continue
        update = assign_domains(
            {each.vm.name: each.update_domain for each in vms},
            domains=scope.update_domains,
            known={vm.name: vm.update_domain for vm in known.get(scope_id, [])},
        )
        fault = assign_domains(
            {each.vm.name: each.fault_domain for each in vms},
            domains=scope.fault_domains,
            known={vm.name: vm.fault_domain for vm in known.get(scope_id, [])},
        )
        for each in vms:
            places[each.vm.name] = (update[each.vm.name], fault[each.vm.name])
    return places


def _virtual_machine(
    declared: VirtualMachine,
    known: VirtualMachine | None,
    place: tuple[int, int],
    context: Context,
) -> VirtualMachine:
    vm_id = declared.vm_id or (known.vm_id if known else context.new_id().lower())
    return replace(declared, update_domain=place[0], fault_domain=place[1], vm_id=vm_id)


def _used_scopes(
    scopes: Iterable[DeliveryScope], vms: Iterable[VirtualMachine]
) -> list[DeliveryScope]:
    used = {vm.scope_id for vm in vms}
    return [
        scope
        for scope in scopes
        if scope.kind is not ScopeKind.VIRTUAL_MACHINE or scope.scope_id in used
    ]


def _compare(before: Topology, after: Topology) -> FleetChange:
    return FleetChange(
        differences=find_differences(before, after),
        changed_scopes=tuple(
            scope_id
            for scope_id, scope in after.scopes.items()
            if before.scopes.get(scope_id, scope) != scope
        ),
    )


def _record_moves(tx: Transaction, context: Context, before: Topology, after: Topology) -> None:
    old, new = before.virtual_machines, after.virtual_machines
    left = (name for name in old if name not in new)
    joined = (
        name for name, vm in new.items() if name not in old or old[name].scope_id != vm.scope_id
    )
    # Who comes back in the same moment, under the same name in another case, has not left.
    moves = {**dict.fromkeys(left), **{name: new[name].scope_id for name in joined}}
    tx.put_memberships(
        Membership(vm=name, since=context.now, scope_id=scope_id)
        for name, scope_id in moves.items()
    )


def _subject(action: str, fleet: Fleet, change: FleetChange) -> str:
    if action != _APPLY:  # of one machine, one host or one set
        vms, hosts, scopes = fleet.virtual_machines, fleet.hosts, fleet.scopes
        return (vms[0].vm if vms else hosts[0] if hosts else scopes[0]).name
    return (
        f"{len(change.added)} added, {len(change.changed)} changed, "
        f"{len(change.removed)} removed, {len(change.changed_scopes)} scopes changed"
    )
