"""What a fleet has to be: checked wherever it changes, before it becomes so.

What has not changed was right before. So only what is put into a fleet is checked, against all that
is there: whoever adds one virtual machine to a million does not wait for all of them.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from ipaddress import ip_address
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
)
from forewarn.domain.names import ScopeId, VmName, is_name, name_key
from forewarn.domain.notice import LONGEST_TERMINATE_NOTICE, MINIMUM_NOTICE
from forewarn.domain.topology import (
    NO_FLEET,
    NO_KEYS,
    DeliveryScope,
    FleetKeys,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
    is_link_local,
    make_scope_id,
    normalise_address,
)
from forewarn.protocol.vocabulary import EventType

_IPV4: Final = re.compile(r"(?:(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])(?:\.(?!$)|$)){4}")
MOST_DOMAINS: Final = 1000
LONGEST_POSTPONEMENT: Final = timedelta(days=365)
LONGEST_NOTICE: Final = timedelta(days=30)
_SERVICE: Final = f"{ScopeKind.CLOUD_SERVICE}/"


def raise_first(mistakes: Iterable[TopologyError]) -> None:
    """Refuse a fleet with the first of its *mistakes*, if there is one."""
    for mistake in mistakes:
        raise mistake


def build_topology(
    *,
    scopes: Iterable[DeliveryScope],
    virtual_machines: Iterable[VirtualMachine],
    hosts: Iterable[Host] = (),
) -> Topology:
    """Return the fleet, or refuse it for its first mistake. Hosts nobody declared are implied."""
    return amend(NO_FLEET, scopes=scopes, virtual_machines=virtual_machines, hosts=hosts)


def amend(
    before: Topology,
    *,
    scopes: Iterable[DeliveryScope] = (),
    virtual_machines: Iterable[VirtualMachine] = (),
    hosts: Iterable[Host] = (),
    gone: FleetKeys = NO_KEYS,
    refuse: Callable[[Iterable[TopologyError]], None] = raise_first,
) -> Topology:
    """Return *before* with these and without what is *gone*, or *refuse* it for its mistakes.

    Hosts that machines are on and nobody has declared are implied.
    """
    vms = [vm for vm in virtual_machines if before.virtual_machines.get(vm.name) != vm]
    vms.sort(key=lambda vm: vm.name not in before.virtual_machines)  # as the fleet has them then
    put_scopes = [scope for scope in scopes if before.scopes.get(scope.scope_id) != scope]
    put_hosts = [host for host in hosts if before.hosts.get(host.name) != host]
    known_hosts = {host.name for host in put_hosts}
    carrying = dict.fromkeys(vm.host for vm in vms if vm.host is not None)
    implied = (name for name in carrying if name not in before.hosts and name not in known_hosts)
    put_hosts += [Host(name=name) for name in implied]
    amendment = _Amendment(before=before, scopes=put_scopes, vms=vms, hosts=put_hosts, gone=gone)
    refuse(amendment.mistakes())
    return before.revise(scopes=put_scopes, virtual_machines=vms, hosts=put_hosts, gone=gone)


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
            "between 5 and 15 minutes; only scale sets have this setting",
        ),
        (
            "notice",
            scope.policy.notice is None or scope.policy.notice <= LONGEST_NOTICE,
            f"at most {LONGEST_NOTICE.days} days",
        ),
        (
            "placement_group",
            is_scale_set or scope.placement_group is None,
            "omitted; only scale sets have placement groups",
        ),
    ):
        if not is_right:
            yield ScopeSettingError(scope.scope_id, setting, bounds)


@dataclass(frozen=True, kw_only=True)
class _Amendment:
    """What is put into a fleet and taken out of it, and what is wrong with that."""

    before: Topology
    scopes: Sequence[DeliveryScope]
    vms: Sequence[VirtualMachine]
    hosts: Sequence[Host]
    gone: FleetKeys

    def mistakes(self) -> Iterator[TopologyError]:
        """Yield what is wrong: with names, then settings, places and addresses."""
        yield from self._bad_names()
        yield from self._taken_set_names()
        yield from self._taken_machine_names()
        yield from self._taken_host_names()
        yield from self._setting_mistakes()
        for vm in chain(self.vms, self._left_behind()):
            yield from _place_mistakes(vm, self._find_scope(vm.scope_id))
        yield from self._address_mistakes()

    @cached_property
    def _sets(self) -> Sequence[DeliveryScope]:
        return [scope for scope in self.scopes if _is_set(scope)]

    @cached_property
    def _put_scopes(self) -> Mapping[ScopeId, DeliveryScope]:
        return {scope.scope_id: scope for scope in self.scopes}

    @cached_property
    def _gone_scopes(self) -> frozenset[ScopeId]:
        return frozenset(self.gone.scopes)

    @cached_property
    def _replaced(self) -> frozenset[VmName]:
        """The machines that are another from now on, or are no more."""
        return frozenset((*(vm.name for vm in self.vms), *self.gone.virtual_machines))

    @cached_property
    def _known_sets(self) -> Mapping[ScopeId, DeliveryScope]:
        """The sets that stay as they are, if there is a new name that could be one of theirs."""
        known = self.before
        has_new_set = any(scope.scope_id not in known.scopes for scope in self._sets)
        if not has_new_set and all(vm.name in known.virtual_machines for vm in self.vms):
            return {}
        replaced = {*self._put_scopes, *self.gone.scopes}
        scopes = known.scopes.items()
        return {key: each for key, each in scopes if _is_set(each) and key not in replaced}

    def _bad_names(self) -> Iterator[InvalidNameError]:
        groups = (scope.placement_group for scope in self._sets)
        named = chain(
            dict.fromkeys((scope.kind.noun, scope.name) for scope in self._sets),
            (("placement group", group) for group in groups if group),
            ((ScopeKind.VIRTUAL_MACHINE.noun, vm.name) for vm in self.vms),
            (("host", host.name) for host in self.hosts),
        )
        for noun, name in named:
            if not is_name(name):
                yield InvalidNameError(noun, name)

    def _taken_set_names(self) -> Iterator[NameTakenError]:
        ids = (scope.scope_id for scope in self._sets)
        known = set(map(name_key, self._known_sets))
        yield from _taken("set, service or scale set", ids, known)

    def _taken_machine_names(self) -> Iterator[NameTakenError]:
        known = self.before.directory
        by_name = _Others(known.by_name, self._replaced)
        # The placement groups of one scale set share its name. A set and a virtual machine may not
        # share one, so that a name means one scope.
        known_sets = {(scope.kind, scope.name) for scope in self._known_sets.values()}
        put_sets = dict.fromkeys((scope.kind, scope.name) for scope in self._sets)
        set_names = [name for kind, name in put_sets if (kind, name) not in known_sets]
        set_keys = {name_key(name) for _, name in known_sets}
        names = (*set_names, *(vm.name for vm in self.vms))
        yield from _taken("set or virtual machine", names, by_name, set_keys)
        services: dict[ScopeId, list[str]] = {}
        for vm in self.vms:
            if vm.scope_id.startswith(_SERVICE):
                services.setdefault(vm.scope_id, []).append(vm.resource_name)
        for scope_id, instances in services.items():
            others = _Instances(by_name, scope_id)
            yield from _taken(f"instance of {scope_id}", instances, others)
        by_vm_id = _Others(known.by_vm_id, self._replaced)
        yield from _taken("vm_id", (vm.vm_id for vm in self.vms if vm.vm_id), by_vm_id)

    def _taken_host_names(self) -> Iterator[NameTakenError]:
        names = [host.name for host in self.hosts]
        known: set[str] = set()
        if any(name not in self.before.hosts for name in names):
            replaced = {*names, *self.gone.hosts}
            known = {name_key(name) for name in self.before.hosts if name not in replaced}
        yield from _taken("host", names, known)

    def _setting_mistakes(self) -> Iterator[TopologyError]:
        for scope in self._put_scopes.values():
            # The placement groups of a scale set have its settings, which are wrong only once.
            is_group = scope.kind is ScopeKind.SCALE_SET and scope.placement_group is not None
            if not is_group or self._find_scope(make_scope_id(scope.kind, scope.name)) is None:
                yield from scope_mistakes(scope)

    def _left_behind(self) -> Iterator[VirtualMachine]:
        """Yield the machines that stay as they are in a set that is gone or has fewer domains."""
        known = self.before.scopes
        sets = {key for key in self._gone_scopes if key in known and _is_set(known[key])}
        shrunk = (each for each in self._sets if _has_shrunk(known.get(each.scope_id), each))
        sets |= {scope.scope_id for scope in shrunk}
        for vm in self.before.virtual_machines.values() if sets else ():
            if vm.scope_id in sets and vm.name not in self._replaced:
                yield vm

    def _find_scope(self, scope_id: ScopeId) -> DeliveryScope | None:
        if scope_id in self._put_scopes:
            return self._put_scopes[scope_id]
        return None if scope_id in self._gone_scopes else self.before.scopes.get(scope_id)

    def _address_mistakes(self) -> Iterator[AddressError]:
        others = _Others(self.before.directory.by_address, self._replaced)
        owners: dict[str, VmName] = {}
        for vm in self.vms:
            for address in vm.addresses:
                try:
                    # A pattern tells in a quarter of the time, of which a large fleet has little.
                    if not _IPV4.fullmatch(address):
                        ip_address(address)
                    key = normalise_address(address)
                except ValueError:
                    yield AddressError(address, vm.name, "is not a valid IP address")
                    continue
                if is_link_local(address):
                    yield AddressError(
                        address,
                        vm.name,
                        "is link-local, so it does not identify one virtual machine",
                    )
                owner = others.find(key) or owners.setdefault(key, vm.name)
                if owner != vm.name:
                    yield AddressError(address, vm.name, f"already belongs to {owner}")


@dataclass(frozen=True, slots=True)
class _Others:
    """Who has what, of the machines that stay as they are."""

    owners: Mapping[str, VirtualMachine]
    replaced: Container[VmName]

    def find(self, key: str) -> VmName | None:
        owner = self.owners.get(key)
        return None if owner is None or owner.name in self.replaced else owner.name

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.find(key) is not None


@dataclass(frozen=True, slots=True)
class _Instances:
    """The names of instances in one cloud service, which may be written with its name or not."""

    machines: _Others
    scope_id: ScopeId

    def __contains__(self, key: object) -> bool:
        service = name_key(self.scope_id.removeprefix(_SERVICE))
        keys = (f"{key}", f"{service}.{key}")
        found = (self.machines.owners[each] for each in keys if each in self.machines)
        return any(
            vm.scope_id == self.scope_id and name_key(vm.resource_name) == key for vm in found
        )


def _is_set(scope: DeliveryScope) -> bool:
    return scope.kind is not ScopeKind.VIRTUAL_MACHINE


def _has_shrunk(before: DeliveryScope | None, after: DeliveryScope) -> bool:
    return before is not None and (
        after.update_domains < before.update_domains or after.fault_domains < before.fault_domains
    )


def _place_mistakes(vm: VirtualMachine, scope: DeliveryScope | None) -> Iterator[TopologyError]:
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


def _taken(noun: str, names: Iterable[str], *known: Container[str]) -> Iterator[NameTakenError]:
    taken: set[str] = set()
    for name in names:
        key = name_key(name)
        if key in taken or any(key in each for each in known):
            yield NameTakenError(noun, name)
        taken.add(key)
