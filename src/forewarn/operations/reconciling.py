"""What a source has counted, compared with the fleet: what to add, to change and to remove.

A source decides about the virtual machines that it brought, and about no others. It adds sets and
hosts, and never changes or removes one. What looks like a failure of the source changes nothing.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from forewarn.domain.names import HostName, VmName, name_key
from forewarn.domain.phrases import say_names
from forewarn.domain.topology import (
    VM_FIELDS,
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
    find_special_purpose,
    make_scope_id,
    normalise_address,
)
from forewarn.files.declarations import USUAL_POLICY
from forewarn.files.fleet import DeclaredVirtualMachine, Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOwners:
    """The owners of addresses, from those that machines have in the fleet and those *stated* now.

    *successors* has the names that machines of the fleet have now. Those *gone* are removed, those
    *stopped* use no address, and *claims* are machines that state theirs themselves.
    """

    known: Topology
    stated: Mapping[VmName, Sequence[str]]
    successors: Mapping[VmName, VmName]
    gone: Container[VmName]
    stopped: Container[VmName]
    claims: Container[VmName]

    def find(self) -> dict[str, VmName]:
        """Return the owner of each address that is stated."""
        owners: dict[str, VmName] = {}
        for name in sorted(self.stated, key=lambda each: each in self.claims):
            for key in self.stated[name]:
                owners.setdefault(key, self._find_owner(key, name))
        return owners

    def _find_owner(self, key: str, name: VmName) -> VmName:
        holder = self.known.directory.by_address.get(key)
        if holder is None:
            return name
        now = self.successors.get(holder.name)
        if now is None:  # it belongs to somebody else, or is missing for now
            return name if holder.name in self.gone else holder.name
        return now if self._keeps(now, key, name) else name

    def _keeps(self, holder: VmName, key: str, other: VmName) -> bool:
        """Tell whether *holder* keeps an address that *other* states."""
        if key in self.stated[holder]:
            return holder not in self.claims or other in self.claims
        if self.stated[holder]:
            return False
        return holder not in self.stopped or other in self.claims


def settle_addresses(
    known: Topology,
    found: Sequence[DeclaredVirtualMachine],
    *,
    formers: Mapping[VmName, VirtualMachine],
    gone: Container[VmName],
    stopped: Container[VmName],
    claims: Container[VmName],
) -> tuple[list[DeclaredVirtualMachine], list[str]]:
    """Give each address to one machine, and each machine that states none those it had.

    *formers* has what machines were before.
    """
    remarks: list[str] = []
    stated: dict[VmName, tuple[str, ...]] = {}
    for each in found:
        name, before = each.vm.name, formers.get(each.vm.name)
        # What the fleet has already was looked at when it came, or an operator wants it so.
        fresh = [it for it in each.vm.addresses if before is None or it not in before.addresses]
        special = {it: purpose for it in fresh if (purpose := find_special_purpose(it))}
        remarks += [
            f"{name}: address {it} is left out: it is {purpose}, so it does not identify one "
            "machine."
            for it, purpose in special.items()
        ]
        stated[name] = tuple(it for it in each.vm.addresses if it not in special)
    owners = AddressOwners(
        known=known,
        stated={name: tuple(map(_key_of, addresses)) for name, addresses in stated.items()},
        successors={former.name: name for name, former in formers.items()},
        gone=gone,
        stopped=stopped,
        claims=claims,
    ).find()
    settled = []
    for each in found:
        name, before = each.vm.name, formers.get(each.vm.name)
        addresses = stated[name] or (before.addresses if before else ())
        lost = [it for it in addresses if owners.get(_key_of(it), name) != name]
        remarks += [f"{name}: address {it} belongs to {owners[_key_of(it)]}." for it in lost]
        kept = tuple(dict.fromkeys(it for it in addresses if it not in lost))
        # Of a large fleet hardly any machine changes, and a copy costs more than all the rest.
        is_same = kept == each.vm.addresses
        settled.append(each if is_same else replace(each, vm=replace(each.vm, addresses=kept)))
    return settled, remarks


def _key_of(address: str) -> str:
    try:
        return normalise_address(address)
    except ValueError:
        return address  # whoever checks the fleet says what is wrong with it


_DECIDED: Final = frozenset({"update_domain", "fault_domain", "vm_id"})
_plain_fields: Final = attrgetter(*(name for name in VM_FIELDS if name not in _DECIDED))
"""The fields of a machine that are what is declared, whatever the fleet has."""

OWNER_LABEL: Final = "discovery"
"""The label of a virtual machine that has the name of the source that brought it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The virtual machines that a source has counted.

    With a *trouble* the source could not look everywhere, and a machine that is missing may still
    be there. Those *stopped* are defined but not running. *claims* are machines whose addresses
    nobody but the machine itself has told. *left_out* are the names and ids of machines that are
    there and cannot be declared. *remarks* are for operators.
    """

    fleet: Fleet
    trouble: str = ""
    stopped: frozenset[VmName] = frozenset()
    claims: frozenset[VmName] = frozenset()
    left_out: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether the source could not look everywhere."""
        return bool(self.trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How far a *source* is believed when machines are missing from its answers.

    A machine is removed when it was missing from *remove_after* complete answers in a row. An
    answer without more than *most_missing* percent of the source's machines is not believed.
    """

    source: str
    remove_after: int = 3
    most_missing: int = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What to do about a census: declare *fleet*, remove those who are *gone*.

    *renamed* has the new names of those that are still there under another one. *absences* counts
    the answers in a row without a machine. With a *refusal* nothing is done.
    """

    fleet: Fleet = field(default_factory=Fleet)
    gone: tuple[VmName, ...] = ()
    renamed: Mapping[VmName, VmName] = field(default_factory=dict)
    absences: Mapping[VmName, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether the fleet has to change."""
        fleet = self.fleet
        return bool(fleet.virtual_machines or fleet.scopes or fleet.hosts or self.gone)


def owned_by(known: Topology, source: str) -> dict[VmName, VirtualMachine]:
    """Return the virtual machines of the fleet that *source* brought."""
    vms = known.virtual_machines.items()
    return {name: vm for name, vm in vms if vm.labels.get(OWNER_LABEL) == source}


def reconcile(
    known: Topology,
    census: Census,
    terms: Terms,
    *,
    absences: Mapping[VmName, int],
    busy: Container[VmName],
) -> Reconciliation:
    """Return what follows from *census*; a *busy* machine is neither removed nor renamed."""
    own = owned_by(known, terms.source)
    hosts = _spellings(known, census.fleet)
    roster = _Roster(known=known, own=own, census=census, busy=busy, hosts=hosts)
    found, remarks = roster.take_in(census.fleet.virtual_machines)
    missing = roster.missing()
    if refusal := _find_refusal(census, terms, len(own), len(missing)):
        return Reconciliation(absences=absences, refusal=refusal)
    counted = _count(missing, absences, busy, is_partial=census.is_partial)
    is_whole = not census.is_partial
    gone = {name for name, times in counted.items() if is_whole and times >= terms.remove_after}
    names = {each.vm.name for each in found}
    renamed = {old: new for old, new in roster.renamed(found) if old not in names}
    gone |= renamed.keys()
    formers = roster.formers(found)
    joined = [roster.join(each, formers.get(each.vm.name), terms) for each in found]
    settled, taken = settle_addresses(
        known,
        joined,
        formers=formers,
        gone=gone,
        stopped=census.stopped,
        claims=census.claims,
    )
    changed = tuple(each for each in settled if _differs(known, each))
    return Reconciliation(
        fleet=Fleet(
            scopes=tuple(_new_scopes(known, census.fleet, changed)),
            virtual_machines=changed,
            hosts=tuple(
                host for host in census.fleet.hosts if hosts[name_key(host.name)] not in known.hosts
            ),
        ),
        gone=tuple(name for name in own if name in gone),
        renamed=renamed,
        absences={name: times for name, times in counted.items() if name not in gone},
        remarks=(*census.remarks, *remarks, *taken),
    )


def _find_refusal(census: Census, terms: Terms, own: int, missing: int) -> str:
    """Return why a complete census is rather a failure of its source than the truth."""
    if census.is_partial or not missing:
        return ""
    advice = "If they no longer exist, remove them from the fleet."
    if not census.fleet.virtual_machines:
        return f"The source reports no virtual machine, but the fleet has {own} from it. {advice}"
    if missing > max(1, own * terms.most_missing // 100):
        return (
            f"The source no longer reports {missing} of the {own} virtual machines that the "
            "fleet has "
            f"from it, more than {terms.most_missing} percent. {advice}"
        )
    return ""


def _count(
    missing: Iterable[VmName],
    absences: Mapping[VmName, int],
    busy: Container[VmName],
    *,
    is_partial: bool,
) -> dict[VmName, int]:
    """Count the answers without each machine; an event that is at it may hide it for a while."""
    step = 0 if is_partial else 1
    counted = {name: absences.get(name, 0) + step for name in missing if name not in busy}
    return {name: times for name, times in counted.items() if times}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roster:
    """Who is who: the machines that a source reports, and those that the fleet has."""

    known: Topology
    own: Mapping[VmName, VirtualMachine]
    census: Census
    busy: Container[VmName]
    hosts: Mapping[str, HostName]

    def take_in(
        self, declared: Sequence[DeclaredVirtualMachine]
    ) -> tuple[list[DeclaredVirtualMachine], list[str]]:
        """Return those that the source may decide about, each once, and remarks on the others."""
        found: dict[str, DeclaredVirtualMachine] = {}
        ids: set[str] = set()
        foreign, twice, waiting = [], [], []
        for each in sorted(declared, key=self._is_stranger):
            key, vm_id = name_key(each.vm.name), name_key(self._vm_id_of(each.vm))
            if key in found or (vm_id and vm_id in ids):
                twice.append(each.vm.name)
            elif self._is_foreign(each.vm):
                foreign.append(each.vm.name)
            elif self._must_wait(each.vm):
                waiting.append(each.vm.name)
            else:
                found[key] = each
                ids.add(vm_id)
        remarks = [
            f"{say_names(sorted(names))}: {problem}."
            for names, problem in (
                (foreign, "declared elsewhere, so left unchanged"),
                (twice, "reported more than once with the same name or vm_id"),
                (waiting, "a new name or vm_id cannot be applied yet"),
            )
            if names
        ]
        order = {name_key(each.vm.name): number for number, each in enumerate(declared)}
        return sorted(found.values(), key=lambda each: order[name_key(each.vm.name)]), remarks

    def missing(self) -> list[VmName]:
        """Return which machines of the source it does not report, under any name."""
        reported = self.census.fleet.virtual_machines
        others = set(map(name_key, self.census.left_out))
        names = {name_key(each.vm.name) for each in reported} | others
        ids = ({name_key(each.vm.vm_id) for each in reported} | others) - {""}
        return [
            name
            for name, vm in self.own.items()
            if name_key(name) not in names and name_key(vm.vm_id) not in ids
        ]

    def renamed(self, found: Iterable[DeclaredVirtualMachine]) -> Iterator[tuple[VmName, VmName]]:
        """Yield the names that machines of the source had, and the other ones they have now."""
        for each in found:
            for old in self._namesakes(each.vm):
                if old.name != each.vm.name:
                    yield old.name, each.vm.name

    def formers(self, found: Iterable[DeclaredVirtualMachine]) -> dict[VmName, VirtualMachine]:
        """Return what each machine was before: what has its id, or else its name."""
        by_vm_id = self.known.directory.by_vm_id
        same = {
            each.vm.name: by_vm_id.get(name_key(each.vm.vm_id)) for each in found if each.vm.vm_id
        }
        formers = {name: vm for name, vm in same.items() if vm is not None}
        known = {vm.name for vm in formers.values()}
        for each in found:
            before = self.own.get(each.vm.name)
            if before is not None and before.name not in known:
                formers.setdefault(each.vm.name, before)
        return formers

    def join(
        self, declared: DeclaredVirtualMachine, before: VirtualMachine | None, terms: Terms
    ) -> DeclaredVirtualMachine:
        """Return *declared* as the source's own, with what it does not say as it was *before*."""
        vm = declared.vm
        host = vm.host and self.hosts[name_key(vm.host)]
        if before is not None and self.census.is_partial and vm.name in self.census.stopped:
            # Where it runs may be just where nobody could look.
            host = before.host
        owned = declared if before is None else _with_place(declared, before)
        scope = owned.scope
        if scope.kind is ScopeKind.VIRTUAL_MACHINE and scope.policy == USUAL_POLICY:
            scope = self.known.scopes.get(scope.scope_id, scope)
            owned = owned if scope is owned.scope else replace(owned, scope=scope)
        labels = {**vm.labels, OWNER_LABEL: terms.source}
        return replace(owned, vm=replace(vm, host=host, labels=labels))

    def _namesakes(self, vm: VirtualMachine) -> Iterator[VirtualMachine]:
        """Yield the machines of the fleet with the name or the vm_id of *vm*."""
        directory = self.known.directory
        by_name = directory.by_name.get(name_key(vm.name))
        by_vm_id = directory.by_vm_id.get(name_key(vm.vm_id)) if vm.vm_id else None
        if by_name is not None:
            yield by_name
        if by_vm_id is not None and by_vm_id is not by_name:
            yield by_vm_id

    def _is_foreign(self, vm: VirtualMachine) -> bool:
        return any(each.name not in self.own for each in self._namesakes(vm))

    def _must_wait(self, vm: VirtualMachine) -> bool:
        """Tell whether *vm* is another machine than before, of which nothing is known for sure."""
        others = [each for each in self._namesakes(vm) if each.name != vm.name]
        before = self.own.get(vm.name)
        is_other = before is not None and bool(vm.vm_id) and not _is_same(before.vm_id, vm.vm_id)
        if self.census.is_partial and (is_other or others):
            return True
        return any(each.name in self.busy for each in others) or (is_other and vm.name in self.busy)

    def _is_stranger(self, declared: DeclaredVirtualMachine) -> bool:
        """Tell whether it is not the machine that has its name now: of two, that one counts."""
        before = self.own.get(declared.vm.name)
        return before is None or not _is_same(before.vm_id, self._vm_id_of(declared.vm))

    def _vm_id_of(self, vm: VirtualMachine) -> str:
        """Return the vm_id that *vm* states, or keeps."""
        before = self.own.get(vm.name)
        return vm.vm_id or (before.vm_id if before else "")


def _spellings(known: Topology, fleet: Fleet) -> dict[str, HostName]:
    """Return how each host is spelled: as in the fleet, or else as it is first mentioned."""
    spellings = {name_key(name): name for name in known.hosts}
    mentioned = (each.vm.host for each in fleet.virtual_machines if each.vm.host)
    for name in (*(host.name for host in fleet.hosts), *mentioned):
        spellings.setdefault(name_key(name), name)
    return spellings


def _with_place(declared: DeclaredVirtualMachine, before: VirtualMachine) -> DeclaredVirtualMachine:
    """Return *declared* with the domains that it had under another name in the same set."""
    if before.name == declared.vm.name or before.scope_id != declared.vm.scope_id:
        return declared
    update, fault = declared.update_domain, declared.fault_domain
    return replace(
        declared,
        update_domain=before.update_domain if update is None else update,
        fault_domain=before.fault_domain if fault is None else fault,
    )


def _is_same(one: str, other: str) -> bool:
    return name_key(one) == name_key(other)


def _differs(known: Topology, declared: DeclaredVirtualMachine) -> bool:
    vm, before = declared.vm, known.virtual_machines.get(declared.vm.name)
    if before is None or _plain_fields(vm) != _plain_fields(before):
        return True
    domains = (declared.update_domain, declared.fault_domain)
    had = (before.update_domain, before.fault_domain)
    asks = any(wanted not in {None, own} for wanted, own in zip(domains, had, strict=True))
    is_alone = declared.scope.kind is ScopeKind.VIRTUAL_MACHINE
    return (
        asks
        or vm.vm_id not in {"", before.vm_id}
        or (is_alone and known.scopes.get(vm.scope_id) != declared.scope)
    )


def _new_scopes(
    known: Topology, fleet: Fleet, changed: Iterable[DeclaredVirtualMachine]
) -> Iterator[DeliveryScope]:
    """Yield the sets that the fleet does not have: those declared, and those only named."""
    declared = {scope.scope_id: scope for scope in fleet.scopes}
    named = {
        make_scope_id(each.scope.kind, each.scope.name): replace(each.scope, placement_group=None)
        for each in changed
        if each.scope.kind is not ScopeKind.VIRTUAL_MACHINE
    }
    for scope_id, scope in {**named, **declared}.items():
        if scope_id not in known.scopes:
            yield scope
