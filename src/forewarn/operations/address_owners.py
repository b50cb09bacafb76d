"""Who has which address, when a source reports machines with addresses.

A machine is known by its address, so whoever gets that of another takes its place. An address stays
where it is unless its owner gives it up. What only the guest itself says is a *claim*: it takes
nothing from others, and gives way to what the platform says.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology, VirtualMachine, normalise_address
from forewarn.files.fleet import DeclaredVirtualMachine


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
    owners = AddressOwners(
        known=known,
        stated={each.vm.name: tuple(map(_key_of, each.vm.addresses)) for each in found},
        successors={former.name: name for name, former in formers.items()},
        gone=gone,
        stopped=stopped,
        claims=claims,
    ).find()
    settled, remarks = [], []
    for each in found:
        name, before = each.vm.name, formers.get(each.vm.name)
        addresses = each.vm.addresses or (before.addresses if before else ())
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
