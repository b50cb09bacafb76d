"""Where virtual machines are: hosts, update and fault domains, and who reads which document."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from itertools import chain
from typing import Final

from forewarn.domain.errors import (
    AddressError,
    DomainOutOfRangeError,
    InvalidNameError,
    NameTakenError,
    RoleNameError,
    ScopeSettingError,
    TopologyError,
    UnknownScopeError,
    UnknownVirtualMachineError,
)
from forewarn.domain.event import Share
from forewarn.domain.names import HostName, ScopeId, VmName, is_name, name_key
from forewarn.domain.notice import LONGEST_TERMINATE_NOTICE, MINIMUM_NOTICE
from forewarn.domain.policy import Policy
from forewarn.domain.profile import NO_PROFILE, Profile
from forewarn.protocol.vocabulary import EventType, role_of

_IPV4: Final = re.compile(r"(?:(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])(?:\.(?!$)|$)){4}")
UPDATE_DOMAINS: Final = 5
FAULT_DOMAINS: Final = 2
MOST_DOMAINS: Final = 1000
LONGEST_POSTPONEMENT: Final = timedelta(days=365)
LONGEST_NOTICE: Final = timedelta(days=30)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The whole fleet, checked. Iteration is in fleet order, which Resources keep."""

    virtual_machines: Mapping[VmName, VirtualMachine]
    scopes: Mapping[ScopeId, DeliveryScope]
    hosts: Mapping[HostName, Host]


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


def standalone(name: VmName, policy: Policy | None = None) -> DeliveryScope:
    """Return the delivery scope of a virtual machine that is in no set."""
    return DeliveryScope(
        kind=ScopeKind.VIRTUAL_MACHINE,
        name=name,
        update_domains=1,
        fault_domains=1,
        policy=policy or Policy(),
    )


def raise_first(mistakes: Iterable[TopologyError]) -> None:
    """Refuse a fleet with the first of its *mistakes*, if there is one."""
    for mistake in mistakes:
        raise mistake


def build_topology(
    *,
    scopes: Iterable[DeliveryScope],
    virtual_machines: Iterable[VirtualMachine],
    hosts: Iterable[Host] = (),
    refuse: Callable[[Iterable[TopologyError]], None] = raise_first,
) -> Topology:
    """Return the fleet, or *refuse* it for its mistakes. Hosts nobody declared are implied."""
    all_scopes, vms, declared_hosts = tuple(scopes), tuple(virtual_machines), tuple(hosts)
    declared = {host.name for host in declared_hosts}
    carrying = dict.fromkeys(vm.host for vm in vms if vm.host is not None)
    implied = [host for host in carrying if host not in declared]
    all_hosts = (*declared_hosts, *(Host(name=name) for name in implied))
    known_scopes = {scope.scope_id: scope for scope in all_scopes}
    refuse(
        chain(
            _name_mistakes(all_scopes, vms, all_hosts),
            _setting_mistakes(known_scopes),
            (mistake for vm in vms for mistake in _place_mistakes(vm, known_scopes)),
            _address_mistakes(vms),
        )
    )
    return Topology(
        virtual_machines={vm.name: vm for vm in vms},
        scopes=known_scopes,
        hosts={host.name: host for host in all_hosts},
    )


def scope_mistakes(scope: DeliveryScope) -> Iterator[ScopeSettingError]:
    """Yield what is wrong with the settings of *scope*."""
    notice = scope.policy.terminate_notice
    shortest = MINIMUM_NOTICE[EventType.TERMINATE]
    is_scale_set = scope.kind is ScopeKind.SCALE_SET
    for setting, is_right, bounds in (
        ("update_domains", 1 <= scope.update_domains <= MOST_DOMAINS, f"1 to {MOST_DOMAINS}"),
        ("fault_domains", 1 <= scope.fault_domains <= MOST_DOMAINS, f"1 to {MOST_DOMAINS}"),
        (
            "postpone_until",
            timedelta(0) <= scope.policy.postpone_until <= LONGEST_POSTPONEMENT,
            f"at most {LONGEST_POSTPONEMENT.days} days",
        ),
        (
            "terminate_notice",
            notice is None or (is_scale_set and shortest <= notice <= LONGEST_TERMINATE_NOTICE),
            "between 5 and 15 minutes, and only a scale set has one",
        ),
        (
            "notice",
            scope.policy.notice is None or scope.policy.notice <= LONGEST_NOTICE,
            f"at most {LONGEST_NOTICE.days} days",
        ),
        (
            "placement_group",
            is_scale_set or scope.placement_group is None,
            "left out, as only a scale set has them",
        ),
    ):
        if not is_right:
            yield ScopeSettingError(scope.scope_id, setting, bounds)


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
    shares: dict[tuple[ScopeId, int], list[VmName]] = {}
    # Of one there is no order to keep, so that nobody has to go through the fleet for it.
    for vm in known.values() if len(wanted) > 1 else map(known.__getitem__, wanted):
        if vm.name in wanted:
            shares.setdefault((vm.scope_id, vm.update_domain), []).append(vm.name)
    return tuple(
        Share(scope_id=scope_id, update_domain=update_domain, resources=tuple(resources))
        for (scope_id, update_domain), resources in shares.items()
    )


def _setting_mistakes(scopes: Mapping[ScopeId, DeliveryScope]) -> Iterator[TopologyError]:
    for scope in scopes.values():
        # The placement groups of a scale set have its settings, which are wrong only once.
        is_group = scope.kind is ScopeKind.SCALE_SET and scope.placement_group is not None
        if not is_group or make_scope_id(scope.kind, scope.name) not in scopes:
            yield from scope_mistakes(scope)


def _place_mistakes(
    vm: VirtualMachine, scopes: Mapping[ScopeId, DeliveryScope]
) -> Iterator[TopologyError]:
    scope = scopes.get(vm.scope_id)
    is_foreign = scope is not None and scope.kind is ScopeKind.VIRTUAL_MACHINE
    if scope is None or (is_foreign and scope.name != vm.name):
        yield UnknownScopeError(vm.name, vm.scope_id)
        return
    if scope.kind is ScopeKind.CLOUD_SERVICE and vm.role is None:
        yield RoleNameError(vm.name)
    for noun, number, domains in (
        ("update domain", vm.update_domain, scope.update_domains),
        ("fault domain", vm.fault_domain, scope.fault_domains),
    ):
        # A set without domains is to blame itself.
        if not 0 <= number < max(domains, 1):
            yield DomainOutOfRangeError(vm.name, noun, number, domains)


def _name_mistakes(
    scopes: Iterable[DeliveryScope], vms: Iterable[VirtualMachine], hosts: Iterable[Host]
) -> Iterator[TopologyError]:
    sets = [scope for scope in scopes if scope.kind is not ScopeKind.VIRTUAL_MACHINE]
    named = chain(
        dict.fromkeys((scope.kind.noun, scope.name) for scope in sets),
        (("placement group", scope.placement_group) for scope in sets if scope.placement_group),
        ((ScopeKind.VIRTUAL_MACHINE.noun, vm.name) for vm in vms),
        (("host", host.name) for host in hosts),
    )
    for noun, name in named:
        if not is_name(name):
            yield InvalidNameError(noun, name)
    # The placement groups of one scale set share its name. A set and a virtual machine may not
    # share one, so that a name means one scope.
    set_names = {(scope.kind, scope.name): scope.name for scope in sets}.values()
    yield from _taken("set, service or scale set", (scope.scope_id for scope in sets))
    yield from _taken("set or virtual machine", (*set_names, *(vm.name for vm in vms)))
    yield from _instances_taken(vms)
    yield from _taken("vm_id", (vm.vm_id for vm in vms if vm.vm_id))
    yield from _taken("host", (host.name for host in hosts))


def _instances_taken(vms: Iterable[VirtualMachine]) -> Iterator[NameTakenError]:
    services: dict[ScopeId, list[str]] = {}
    for vm in vms:
        if vm.scope_id.startswith(f"{ScopeKind.CLOUD_SERVICE}/"):
            services.setdefault(vm.scope_id, []).append(vm.resource_name)
    for scope_id, names in services.items():
        yield from _taken(f"instance of {scope_id}", names)


def _taken(noun: str, names: Iterable[str]) -> Iterator[NameTakenError]:
    taken: set[str] = set()
    for name in names:
        if name_key(name) in taken:
            yield NameTakenError(noun, name)
        taken.add(name_key(name))


def _address_mistakes(vms: Iterable[VirtualMachine]) -> Iterator[AddressError]:
    owners: dict[str, VmName] = {}
    for vm in vms:
        for address in vm.addresses:
            try:
                # A pattern tells in a quarter of the time, of which a large fleet has little.
                if not _IPV4.fullmatch(address):
                    ip_address(address)
                key = normalise_address(address)
            except ValueError:
                yield AddressError(address, vm.name, "is not an IP address")
                continue
            if is_link_local(address):
                yield AddressError(address, vm.name, "is link-local, so others can have it, too")
            owner = owners.setdefault(key, vm.name)
            if owner != vm.name:
                yield AddressError(address, vm.name, f"belongs to {owner} already")
