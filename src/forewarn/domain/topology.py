"""Where virtual machines are: hosts, update and fault domains, and who reads which document.

A fleet may have a million virtual machines, of which one is changed. So a topology can be made of
another one and the few entries that differ, and knows then what these are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain, islice
from typing import Final, TypeAlias, TypeVar
from weakref import ref

from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.domain.event import Share
from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.domain.overlay import revise
from forewarn.domain.policy import Policy
from forewarn.domain.profile import NO_PROFILE, Profile
from forewarn.protocol.vocabulary import role_of

UPDATE_DOMAINS: Final = 5
FAULT_DOMAINS: Final = 2
_BROADCAST: Final = IPv4Address("255.255.255.255")

K = TypeVar("K", bound=str)
T = TypeVar("T")


class ScopeKind(StrEnum):
    """What makes virtual machines share one document."""

    AVAILABILITY_SET = "availability-set"
    CLOUD_SERVICE = "cloud-service"
    SCALE_SET = "scale-set"
    VIRTUAL_MACHINE = "virtual-machine"

    @property
    def noun(self) -> str:
        return self.value.replace("-", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryScope:
    """The virtual machines that share one document.

    An availability set, a cloud service, one placement group of a scale set, or a standalone
    virtual machine.
    """

    kind: ScopeKind
    name: str
    placement_group: str | None = None
    update_domains: int = UPDATE_DOMAINS
    fault_domains: int = FAULT_DOMAINS
    policy: Policy = field(default_factory=Policy)

    @property
    def scope_id(self) -> ScopeId:
        return make_scope_id(self.kind, self.name, self.placement_group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """Since when a host takes no more virtual machines, on whose word and why."""

    closed_at: datetime
    closed_by: str
    closed_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that carries virtual machines. A closed one keeps those it has."""

    name: HostName
    labels: Mapping[str, str] = field(default_factory=dict)
    closure: Closure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualMachine:
    """One virtual machine and its place in the fleet."""

    name: VmName
    scope_id: ScopeId
    update_domain: int = 0
    fault_domain: int = 0
    host: HostName | None = None
    addresses: tuple[str, ...] = ()
    vm_id: str = ""
    zone: str = ""
    location: str = ""
    resource_group: str = ""
    subscription_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    profile: Profile = NO_PROFILE

    @property
    def resource_name(self) -> str:
        """What it is called in Resources, and calls itself."""
        return resource_names((self.name,), self.scope_id)[0]

    @property
    def role(self) -> str | None:
        """The role this is an instance of, in a cloud service."""
        return role_of(self.resource_name)


VM_FIELDS: Final = tuple(each.name for each in fields(VirtualMachine))


_Listed: TypeAlias = Iterable[tuple[str, VirtualMachine]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Who is who in one fleet, by what they are known by, in the spelling that is compared."""

    by_name: Mapping[str, VirtualMachine] = field(default_factory=dict)
    by_vm_id: Mapping[str, VirtualMachine] = field(default_factory=dict)
    by_address: Mapping[str, VirtualMachine] = field(default_factory=dict)

    def revise(self, gone: Iterable[VirtualMachine], put: Iterable[VirtualMachine]) -> "Directory":
        """Return the directory without those that are *gone*, and with those that are *put*."""
        left, come = tuple(gone), tuple(put)
        return Directory(
            by_name=_replace(self.by_name, _names(left), _names(come)),
            by_vm_id=_replace(self.by_vm_id, _vm_ids(left), _vm_ids(come)),
            by_address=_replace(self.by_address, _addresses(left), _addresses(come)),
        )


def _replace(
    known: Mapping[str, VirtualMachine], gone: _Listed, put: _Listed
) -> Mapping[str, VirtualMachine]:
    come = dict(put)
    return revise(known, come, (key for key, _ in gone if key not in come))


def _names(vms: Iterable[VirtualMachine]) -> _Listed:
    return ((slim_key(vm.name), vm) for vm in vms)


def _vm_ids(vms: Iterable[VirtualMachine]) -> _Listed:
    return ((slim_key(vm.vm_id), vm) for vm in vms if vm.vm_id)


def _addresses(vms: Iterable[VirtualMachine]) -> _Listed:
    return ((address, vm) for vm in vms for address in known_addresses(vm))


def known_addresses(vm: VirtualMachine) -> Iterator[str]:
    """Yield the addresses that *vm* is known by, as we compare them."""
    return (normalise_address(each) for each in vm.addresses if not is_link_local(each))


def slim_key(name: str) -> str:
    """Return what `name_key` does; *name* itself where that is the same."""
    # Most names are their own keys, and a million copies of them would be a tenth of the memory.
    key = name_key(name)
    return name if key == name else key


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKeys:
    """Some entries of a fleet, by their keys."""

    virtual_machines: tuple[VmName, ...] = ()
    scopes: tuple[ScopeId, ...] = ()
    hosts: tuple[HostName, ...] = ()

    def __iter__(self) -> Iterator[str]:
        return chain(self.virtual_machines, self.scopes, self.hosts)

    def __len__(self) -> int:
        return len(self.virtual_machines) + len(self.scopes) + len(self.hosts)


NO_KEYS: Final = FleetKeys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a topology has otherwise than the one before: what is new or another, and is *gone*.

    It is in order if whatever is in both has kept its place, and whatever is new is at the end.
    """

    put: FleetKeys = NO_KEYS
    gone: FleetKeys = NO_KEYS
    is_in_order: bool = True

    def __bool__(self) -> bool:
        return bool(self.put or self.gone or not self.is_in_order)


@dataclass(slots=True)
class _Known:
    """What has been found out about a topology, so that nobody has to find it out again."""

    directory: Directory | None = None
    origin: "tuple[ref[Topology], Revision] | None" = None


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Topology:
    """The whole fleet, checked. Iteration is in fleet order, which Resources keep."""

    virtual_machines: Mapping[VmName, VirtualMachine]
    scopes: Mapping[ScopeId, DeliveryScope]
    hosts: Mapping[HostName, Host]
    _known: _Known = field(init=False, default_factory=_Known, compare=False, repr=False)

    @property
    def directory(self) -> Directory:
        """Who is who in it."""
        if self._known.directory is None:
            self._known.directory = Directory().revise((), self.virtual_machines.values())
        return self._known.directory

    def revise(
        self,
        *,
        scopes: Iterable[DeliveryScope] = (),
        virtual_machines: Iterable[VirtualMachine] = (),
        hosts: Iterable[Host] = (),
        gone: FleetKeys = NO_KEYS,
    ) -> "Topology":
        """Return it without what is *gone*, and with these, in their old places or at the end.

        Nothing is checked. It takes the time of what differs.
        """
        put_vms = {vm.name: vm for vm in virtual_machines}
        put_scopes = {scope.scope_id: scope for scope in scopes}
        put_hosts = {host.name: host for host in hosts}
        after = Topology(
            virtual_machines=revise(self.virtual_machines, put_vms, gone.virtual_machines),
            scopes=revise(self.scopes, put_scopes, gone.scopes),
            hosts=revise(self.hosts, put_hosts, gone.hosts),
        )
        if self._known.directory is not None:
            names = (*put_vms, *gone.virtual_machines)
            old = (self.virtual_machines[name] for name in names if name in self.virtual_machines)
            after._known.directory = self.directory.revise(old, put_vms.values())
        put = FleetKeys(
            virtual_machines=tuple(put_vms), scopes=tuple(put_scopes), hosts=tuple(put_hosts)
        )
        # What is gone and back may be the same as before, but is in another place.
        if not set(put).intersection(gone):
            after._known.origin = ref(self), Revision(put=put, gone=gone)
        return after

    def revision_of(self, before: "Topology") -> Revision:
        """Return what differs from *before*, at once if it was made of that."""
        origin = self._known.origin
        if origin is None or origin[0]() is not before:
            self._known.origin = origin = ref(before), _compare(before, self)
        return origin[1]


NO_FLEET: Final = Topology(virtual_machines={}, scopes={}, hosts={})


def _compare(before: Topology, after: Topology) -> Revision:
    if before is after:
        return Revision()
    vms = before.virtual_machines, after.virtual_machines
    scopes = before.scopes, after.scopes
    hosts = before.hosts, after.hosts
    return Revision(
        put=FleetKeys(virtual_machines=_put(*vms), scopes=_put(*scopes), hosts=_put(*hosts)),
        gone=FleetKeys(virtual_machines=_gone(*vms), scopes=_gone(*scopes), hosts=_gone(*hosts)),
        is_in_order=is_in_order(*vms) and is_in_order(*scopes) and is_in_order(*hosts),
    )


def _put(before: Mapping[K, T], after: Mapping[K, T]) -> tuple[K, ...]:
    return tuple(
        key
        for key, thing in after.items()
        if key not in before or (before[key] is not thing and before[key] != thing)
    )


def _gone(before: Mapping[K, T], after: Mapping[K, T]) -> tuple[K, ...]:
    return tuple(key for key in before if key not in after)


def is_in_order(before: Mapping[K, T], after: Mapping[K, T]) -> bool:
    """Tell whether what is in both comes first in *after*, in the order of *before*."""
    common = [key for key in before if key in after]
    return common == [*islice(after, len(common))]


def make_scope_id(kind: ScopeKind, name: str, placement_group: str | None = None) -> ScopeId:
    """Return the id of the scope of this kind and name."""
    return ScopeId(
        f"{kind}/{name}" if placement_group is None else f"{kind}/{name}/{placement_group}"
    )


def resource_names(vms: Iterable[VmName], scope_id: ScopeId) -> tuple[str, ...]:
    """Return what *vms* are called in Resources.

    Names are unique in a fleet, those of instances only in their cloud service: shop.FrontEnd_IN_0
    of the service shop calls itself FrontEnd_IN_0.
    """
    kind, _, service = scope_id.partition("/")
    if kind != ScopeKind.CLOUD_SERVICE:
        return tuple(vms)
    prefix = name_key(f"{service}.")
    return tuple(vm[len(prefix) :] if name_key(vm).startswith(prefix) else vm for vm in vms)


def normalise_address(address: str) -> str:
    """Return *address* as we compare it: compressed, without a zone, IPv4 even inside IPv6."""
    if ":" not in address:
        return address  # IPv4 has one spelling only
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or parsed)


def is_link_local(address: str) -> bool:
    """Tell whether another network can have the same *address*, as with fe80::1."""
    return ":" in address and IPv6Address(address.partition("%")[0]).is_link_local


def find_special_purpose(address: str) -> str:
    """Return why *address* does not identify one machine, such as "loopback"; or nothing."""
    try:
        parsed = ip_address(normalise_address(address))
    except ValueError:
        return ""
    purposes = {
        "loopback": parsed.is_loopback,
        "link-local": parsed.is_link_local,
        "unspecified": parsed.is_unspecified,
        "multicast": parsed.is_multicast,
        "broadcast": parsed == _BROADCAST,
    }
    return next((purpose for purpose, is_so in purposes.items() if is_so), "")


def is_on(vm: VirtualMachine, host: HostName | None) -> bool:
    """Tell whether *vm* is on *host*; None is any host, or none."""
    return host is None or (vm.host is not None and name_key(vm.host) == name_key(host))


def standalone(name: VmName, policy: Policy | None = None) -> DeliveryScope:
    """Return the delivery scope of a virtual machine that is in no set."""
    return DeliveryScope(
        kind=ScopeKind.VIRTUAL_MACHINE,
        name=name,
        update_domains=1,
        fault_domains=1,
        policy=policy or Policy(),
    )


def assign_domains(
    wanted: Mapping[VmName, int | None], *, domains: int, known: Mapping[VmName, int]
) -> dict[VmName, int]:
    """Give each virtual machine its domain: the *wanted*, the one it has, else the least filled.

    Of equally filled ones the lowest; in fleet order. *known* are all that are in the scope.
    """
    settled = {
        **known,
        **{vm: number for vm, number in wanted.items() if number is not None},
    }
    filled = Counter(settled.values())
    for vm in wanted:
        if vm not in settled:
            settled[vm] = min(range(domains), key=filled.__getitem__)
            filled[settled[vm]] += 1
    return {vm: settled[vm] for vm in wanted}


def split_by_update_domain(topology: Topology, names: Iterable[VmName]) -> tuple[Share, ...]:
    """Split *names* so that no share spans two update domains or two scopes; in fleet order."""
    known = topology.virtual_machines
    wanted = set(names)
    # Not the difference with its keys, for that would be a look at every one of them.
    unknown = sorted(name for name in wanted if name not in known)
    if unknown:
        raise UnknownVirtualMachineError(unknown[0])
    # Of one there is no order to keep, so that nobody has to go through the fleet for it.
    every = known.values() if len(wanted) > 1 else map(known.__getitem__, wanted)
    return share_out(vm for vm in every if vm.name in wanted)


def share_out(vms: Iterable[VirtualMachine]) -> tuple[Share, ...]:
    """Return the shares that *vms* are in, each in the order in which they come."""
    shares: dict[tuple[ScopeId, int], list[VmName]] = {}
    for vm in vms:
        shares.setdefault((vm.scope_id, vm.update_domain), []).append(vm.name)
    return tuple(
        Share(scope_id=scope_id, update_domain=update_domain, resources=tuple(resources))
        for (scope_id, update_domain), resources in shares.items()
    )
