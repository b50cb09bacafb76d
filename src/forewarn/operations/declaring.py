"""What a fleet becomes when entries of it are declared, before anything is written."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from forewarn.domain.amending import amend, scope_mistakes
from forewarn.domain.errors import NameTakenError, TopologyError
from forewarn.domain.names import ScopeId, VmName, name_key
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
from forewarn.operations.hosts import declare_hosts, forget_hosts
from forewarn.protocol.errors import ForewarnError


def declare(
    before: Topology,
    fleet: Fleet,
    context: Context,
    *,
    prune: bool,
    remove: Iterable[VmName] = (),
) -> Topology:
    """Return the topology after *fleet* was declared on top of *before*.

    Machines to *remove* that it declares stay.
    """
    declared = {each.vm.name: each for each in fleet.virtual_machines}
    known = before.virtual_machines
    scopes = _declare_scopes(before, fleet, prune=prune)
    places = _assign_domains(before, fleet, scopes, prune=prune)
    made = {
        name: _virtual_machine(each.vm, known.get(name), places[name], context)
        for name, each in declared.items()
    }
    hosts = declare_hosts(before, fleet.hosts)
    gone = _left(before, made, remove)
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
    return f" Use {' and '.join(qualified)}." if len(set(qualified)) > 1 else ""


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
    chosen = {scope_id: [each.vm.name for each in wanted[scope_id]] for scope_id in choosing}
    known = _find_members(before, chosen, staying)
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
    before: Topology,
    declared: Mapping[ScopeId, Sequence[VmName]],
    staying: Container[VmName] | None,
) -> dict[ScopeId, list[VirtualMachine]]:
    """Return which of the *declared* machines are in these scopes; where some are not, all who are.

    With *staying*, only these.
    """
    known = before.virtual_machines
    members = {
        scope_id: [
            known[name] for name in names if name in known and known[name].scope_id == scope_id
        ]
        for scope_id, names in declared.items()
    }
    joined = {
        key: list[VirtualMachine]() for key, vms in members.items() if len(vms) < len(declared[key])
    }
    for vm in known.values() if joined else ():
        if vm.scope_id in joined and (staying is None or vm.name in staying):
            joined[vm.scope_id].append(vm)
    return members | joined


def _virtual_machine(
    declared: VirtualMachine,
    known: VirtualMachine | None,
    place: tuple[int, int],
    context: Context,
) -> VirtualMachine:
    vm_id = declared.vm_id or (known.vm_id if known else context.new_id().lower())
    return replace(declared, update_domain=place[0], fault_domain=place[1], vm_id=vm_id)


def _left(
    before: Topology, made: Mapping[VmName, VirtualMachine], remove: Iterable[VmName]
) -> FleetKeys:
    """Return the machines to *remove*, and the scopes of their own that machines leave behind.

    They leave them when they are removed, and when they join a set.
    """
    removed = tuple(name for name in remove if name not in made)
    known = ((vm, before.virtual_machines.get(name)) for name, vm in made.items())
    moved = [old for vm, old in known if old is not None and old.scope_id != vm.scope_id]
    leaving = (*moved, *(before.virtual_machines[name] for name in removed))
    scopes = tuple(key for old in leaving for key in own_scope(before, old))
    return FleetKeys(virtual_machines=removed, scopes=scopes)


def own_scope(before: Topology, vm: VirtualMachine) -> tuple[ScopeId, ...]:
    """Return the scope that only *vm* is in, if it is alone."""
    is_own = before.scopes[vm.scope_id].kind is ScopeKind.VIRTUAL_MACHINE
    return (vm.scope_id,) if is_own else ()
