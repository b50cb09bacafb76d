"""The fleet: declaring it, changing it, and what may not change while an event is in flight."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from forewarn.domain.amending import amend, scope_mistakes
from forewarn.domain.errors import (
    NameTakenError,
    TopologyError,
    UnknownVirtualMachineError,
)
from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.domain.topology import (
    DeliveryScope,
    FleetKeys,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
    assign_domains,
    make_scope_id,
)
from forewarn.files.fleet import DeclaredVirtualMachine, Fleet, refuse_mistakes
from forewarn.operations.context import Context
from forewarn.operations.differences import Alteration, Difference, find_differences
from forewarn.operations.hosts import declare_hosts, forget_hosts
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
    found: list[VirtualMachine] = []
    for name in names:
        exact = topology.virtual_machines.get(VmName(name))
        vm = exact or topology.directory.by_name.get(name_key(name))
        if vm is None:
            raise UnknownVirtualMachineError(name)
        found.append(vm)
    return found


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
    if after.revision_of(before):
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
    declared = {host.name for host in fleet.hosts}
    put = after.revision_of(before).put.hosts
    return tuple(name for name in put if name not in before.hosts and name not in declared)


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
    gone = FleetKeys(virtual_machines=(vm.name,), scopes=_own_scope(before, vm))
    after = amend(before, gone=gone)
    find_busy(tx, before, after).refuse()
    note_departures(tx, before, after)
    tx.put_topology(after)
    _record_moves(tx, context, before, after)
    record_audit(tx, context, "vm remove", vm.name)
    return _compare(before, after)


def declare(before: Topology, fleet: Fleet, context: Context, *, prune: bool) -> Topology:
    """Return the topology after *fleet* was declared on top of *before*."""
    declared = {each.vm.name: each for each in fleet.virtual_machines}
    known = before.virtual_machines
    scopes = _declare_scopes(before, fleet, prune=prune)
    places = _assign_domains(before, fleet, scopes, prune=prune)
    made = {
        name: _virtual_machine(each.vm, known.get(name), places[name], context)
        for name, each in declared.items()
    }
    hosts = declare_hosts(before, fleet.hosts)
    gone = _moved_out(before, made.values())
    if prune:
        carrying = {vm.host for vm in made.values()}
        forgotten = forget_hosts(before, hosts)
        hosts |= {name: Host(name=name) for name in forgotten if name in carrying}
        gone = FleetKeys(
            virtual_machines=tuple(name for name in known if name not in made),
            scopes=tuple(scope_id for scope_id in before.scopes if scope_id not in scopes),
            hosts=tuple(name for name in forgotten if name not in carrying),
        )
    return amend(
        before,
        scopes=scopes.values(),
        virtual_machines=made.values(),
        hosts=hosts.values(),
        gone=gone,
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


def _declare_scopes(before: Topology, fleet: Fleet, *, prune: bool) -> dict[ScopeId, DeliveryScope]:
    """Return the scopes that *fleet* declares, and those that its machines are in by themselves."""
    scopes = {scope.scope_id: scope for scope in fleet.scopes}
    places = {each.vm.scope_id: each.scope for each in fleet.virtual_machines}
    scopes |= {key: each for key, each in places.items() if each.kind is ScopeKind.VIRTUAL_MACHINE}
    known = {} if prune else before.scopes
    # Each placement group of a scale set is a scope of its own, with the settings of the set.
    groups = [scope for scope in places.values() if scope.placement_group]
    if any(scope.kind is ScopeKind.SCALE_SET for scope in fleet.scopes):
        groups += [scope for scope in known.values() if scope.placement_group]
    for group in sorted(groups, key=lambda scope: (scope.name, scope.placement_group or "")):
        whole_id = make_scope_id(group.kind, group.name)
        whole = scopes.get(whole_id) or known.get(whole_id)
        if whole is not None:
            scopes[group.scope_id] = replace(whole, placement_group=group.placement_group)
    return scopes


def _assign_domains(
    before: Topology, fleet: Fleet, scopes: Mapping[ScopeId, DeliveryScope], *, prune: bool
) -> dict[VmName, tuple[int, int]]:
    wanted: dict[ScopeId, list[DeclaredVirtualMachine]] = {}
    for declared in fleet.virtual_machines:
        wanted.setdefault(declared.vm.scope_id, []).append(declared)
    known_scopes = {} if prune else before.scopes
    places: dict[VmName, tuple[int, int]] = {}
    choosing: dict[ScopeId, DeliveryScope] = {}
    for scope_id, vms in wanted.items():
        scope = scopes.get(scope_id) or known_scopes.get(scope_id)
        is_alone = vms[0].scope.kind is ScopeKind.VIRTUAL_MACHINE
        # Without a scope, or with one that cannot be, there is nothing to choose from.
        if scope is None or is_alone or any(scope_mistakes(scope)):
            places |= {each.vm.name: (each.vm.update_domain, each.vm.fault_domain) for each in vms}
        else:
            choosing[scope_id] = scope
    staying = {each.vm.name for each in fleet.virtual_machines} if prune else None
    known = _find_members(before, choosing, staying)
    for scope_id, scope in choosing.items():
        vms = wanted[scope_id]
        update = assign_domains(
            {each.vm.name: each.update_domain for each in vms},
            domains=scope.update_domains,
            known={vm.name: vm.update_domain for vm in known[scope_id]},
        )
        fault = assign_domains(
            {each.vm.name: each.fault_domain for each in vms},
            domains=scope.fault_domains,
            known={vm.name: vm.fault_domain for vm in known[scope_id]},
        )
        places |= {each.vm.name: (update[each.vm.name], fault[each.vm.name]) for each in vms}
    return places


def _find_members(
    before: Topology, scope_ids: Iterable[ScopeId], names: Container[VmName] | None
) -> dict[ScopeId, list[VirtualMachine]]:
    """Return the machines of these scopes; only those with one of *names*, if there are any."""
    members: dict[ScopeId, list[VirtualMachine]] = {scope_id: [] for scope_id in scope_ids}
    for vm in before.virtual_machines.values() if members else ():
        if vm.scope_id in members and (names is None or vm.name in names):
            members[vm.scope_id].append(vm)
    return members


def _virtual_machine(
    declared: VirtualMachine,
    known: VirtualMachine | None,
    place: tuple[int, int],
    context: Context,
) -> VirtualMachine:
    vm_id = declared.vm_id or (known.vm_id if known else context.new_id().lower())
    return replace(declared, update_domain=place[0], fault_domain=place[1], vm_id=vm_id)


def _moved_out(before: Topology, vms: Iterable[VirtualMachine]) -> FleetKeys:
    """Return the scopes of their own that machines leave behind when they join a set."""
    known = ((vm, before.virtual_machines.get(vm.name)) for vm in vms)
    moved = (old for vm, old in known if old is not None and old.scope_id != vm.scope_id)
    return FleetKeys(scopes=tuple(key for old in moved for key in _own_scope(before, old)))


def _own_scope(before: Topology, vm: VirtualMachine) -> tuple[ScopeId, ...]:
    is_own = before.scopes[vm.scope_id].kind is ScopeKind.VIRTUAL_MACHINE
    return (vm.scope_id,) if is_own else ()


def _compare(before: Topology, after: Topology) -> FleetChange:
    return FleetChange(
        differences=find_differences(before, after),
        changed_scopes=tuple(
            scope_id
            for scope_id in after.revision_of(before).put.scopes
            if scope_id in before.scopes
        ),
    )


def _record_moves(tx: Transaction, context: Context, before: Topology, after: Topology) -> None:
    old, new, revision = before.virtual_machines, after.virtual_machines, after.revision_of(before)
    left = revision.gone.virtual_machines
    joined = (
        name
        for name in revision.put.virtual_machines
        if name not in old or old[name].scope_id != new[name].scope_id
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
