"""A fleet that is made of another one is what it would be if all of it were made anew."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.domain.amending import amend, build_topology
from forewarn.domain.errors import (
    AddressError,
    DomainOutOfRangeError,
    NameTakenError,
    TopologyError,
    UnknownScopeError,
)
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import (
    DeliveryScope,
    FleetKeys,
    Host,
    Revision,
    ScopeKind,
    Topology,
    VirtualMachine,
    standalone,
)

WEB = DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web")
SHOP = DeliveryScope(kind=ScopeKind.CLOUD_SERVICE, name="shop")
SCALE = DeliveryScope(kind=ScopeKind.SCALE_SET, name="scale")
GROUP = replace(SCALE, placement_group="group")
SETS = (WEB, SHOP, SCALE, GROUP)
NAMES = ("a", "b", "B", "web", "Role_IN_0", "shop.Role_IN_0", "Role_IN_1")


def machine(name: str, scope: DeliveryScope = WEB) -> VirtualMachine:
    return VirtualMachine(name=VmName(name), scope_id=scope.scope_id)


def keys(*names: str) -> FleetKeys:
    return FleetKeys(virtual_machines=tuple(map(VmName, names)))


MACHINES = st.builds(
    lambda name, scope, update_domain, vm_id, addresses, host: VirtualMachine(
        name=VmName(name),
        scope_id=(scope or standalone(VmName(name))).scope_id,
        update_domain=update_domain,
        vm_id=vm_id,
        addresses=addresses,
        host=None if host is None else HostName(host),
    ),
    st.sampled_from(NAMES),
    st.sampled_from([*SETS, None]),
    st.integers(0, 3),
    st.sampled_from(["", "x", "X", "y"]),
    st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "fe80::1", "one"]), max_size=2).map(
        tuple
    ),
    st.sampled_from([None, "kvm-1", "kvm-2", "KVM-1"]),
)
GONE = st.builds(
    FleetKeys,
    virtual_machines=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    scopes=st.lists(st.sampled_from([scope.scope_id for scope in SETS]), max_size=1).map(tuple),
)
Step: TypeAlias = tuple[list[VirtualMachine], FleetKeys, list[DeliveryScope], list[Host]]
STEPS = st.lists(
    st.tuples(
        st.lists(MACHINES, max_size=3),
        GONE,
        st.lists(
            st.sampled_from(
                [
                    *SETS,
                    replace(WEB, update_domains=2),
                    replace(WEB, name="Web"),
                    replace(SCALE, fault_domains=0),
                    replace(GROUP, placement_group="Group"),
                ]
            ),
            max_size=2,
        ),
        st.lists(st.sampled_from([Host(name=HostName("kvm-1")), Host(name=HostName("Kvm-2"))])),
    ),
    max_size=4,
)


def made_anew(
    before: Topology,
    vms: Iterable[VirtualMachine],
    gone: FleetKeys,
    scopes: Iterable[DeliveryScope],
    hosts: Iterable[Host],
) -> Topology:
    rest = [vm for vm in before.virtual_machines.values() if vm.name not in gone.virtual_machines]
    all_vms = {vm.name: vm for vm in (*rest, *vms)}
    left = [scope for key, scope in before.scopes.items() if key not in gone.scopes]
    all_scopes = {scope.scope_id: scope for scope in (*left, *scopes)}
    all_hosts = {host.name: host for host in (*before.hosts.values(), *hosts)}
    return build_topology(
        scopes=all_scopes.values(), virtual_machines=all_vms.values(), hosts=all_hosts.values()
    )


def order(topology: Topology) -> tuple[list[str], ...]:
    return list(topology.virtual_machines), list(topology.scopes), list(topology.hosts)


@given(steps=STEPS)
def test_what_is_amended_is_what_would_be_made_anew(steps: list[Step]) -> None:
    fleet = build_topology(scopes=SETS, virtual_machines=[])
    for machines, left, declared_scopes, declared_hosts in steps:
        vms = {vm.name: vm for vm in machines if vm.name not in left.virtual_machines}.values()
        alone = [standalone(vm.name) for vm in vms if vm.scope_id.startswith("virtual-machine/")]
        scopes = {scope.scope_id: scope for scope in (*declared_scopes, *alone)}.values()
        gone = FleetKeys(
            virtual_machines=tuple(
                name for name in left.virtual_machines if name in fleet.virtual_machines
            ),
            scopes=tuple(
                key
                for key in left.scopes
                if key in fleet.scopes and all(key != scope.scope_id for scope in scopes)
            ),
        )
        hosts = {host.name: host for host in declared_hosts}.values()
        try:
            expected = made_anew(fleet, vms, gone, scopes, hosts)
        except TopologyError:
            with pytest.raises(TopologyError):
                amend(fleet, scopes=scopes, virtual_machines=vms, hosts=hosts, gone=gone)
            continue

        after = amend(fleet, scopes=scopes, virtual_machines=vms, hosts=hosts, gone=gone)

        assert (after, order(after)) == (expected, order(expected))
        assert after.directory == expected.directory
        assert bool(after.revision_of(fleet)) == (after != fleet)
        fleet = after


def test_nothing_differs_from_itself() -> None:
    fleet = build_topology(scopes=[WEB], virtual_machines=[machine("a")])

    assert not fleet.revision_of(fleet)
    assert not amend(fleet, virtual_machines=[machine("a")]).revision_of(fleet)


def test_another_order_is_a_difference() -> None:
    fleet = build_topology(scopes=[WEB], virtual_machines=[machine("a"), machine("b")])
    other = build_topology(scopes=[WEB], virtual_machines=[machine("b"), machine("a")])

    assert other.revision_of(fleet) == Revision(is_in_order=False)
    assert other.revision_of(fleet)


def test_what_is_gone_and_back_is_at_the_end() -> None:
    fleet = build_topology(scopes=[WEB], virtual_machines=[machine("a"), machine("b")])

    after = fleet.revise(virtual_machines=[machine("a")], gone=keys("a"))

    assert list(after.virtual_machines) == ["b", "a"]
    assert after.revision_of(fleet) == Revision(is_in_order=False)


def test_machine_may_take_the_name_and_the_address_of_one_that_leaves() -> None:
    old = replace(machine("a"), addresses=("10.0.0.1",), vm_id="x")
    new = replace(old, name=VmName("A"))
    fleet = build_topology(scopes=[WEB], virtual_machines=[old])

    after = amend(fleet, virtual_machines=[new], gone=keys("a"))

    assert after.directory.by_address == {"10.0.0.1": new}


def test_machine_that_stays_in_a_set_with_fewer_domains_is_refused() -> None:
    vm = replace(machine("a"), update_domain=3)
    fleet = build_topology(scopes=[WEB], virtual_machines=[vm])

    amend(fleet, scopes=[replace(WEB, fault_domains=3)])
    with pytest.raises(DomainOutOfRangeError, match="a has update domain 3"):
        amend(fleet, scopes=[replace(WEB, update_domains=3)])


def test_machine_that_stays_in_a_set_that_goes_is_refused() -> None:
    alone = standalone(VmName("solo"))
    vms = [machine("a"), machine("solo", alone)]
    fleet = build_topology(scopes=[WEB, alone], virtual_machines=vms)

    with pytest.raises(UnknownScopeError, match="a belongs to"):
        amend(fleet, gone=FleetKeys(scopes=(WEB.scope_id, ScopeId("unknown"))))
    assert amend(fleet, gone=replace(keys("a"), scopes=(WEB.scope_id,))).scopes.keys() == {
        alone.scope_id
    }


@pytest.mark.parametrize("name", ["Role_IN_0", "shop.Role_IN_0", "SHOP.role_in_0"])
def test_instance_that_another_is_called_like_is_refused(name: str) -> None:
    there = "shop.Role_IN_0" if name == "Role_IN_0" else "Role_IN_0"
    fleet = build_topology(
        scopes=[SHOP, WEB], virtual_machines=[machine(there, SHOP), machine("Role_IN_9")]
    )

    with pytest.raises(NameTakenError, match="instance of"):
        amend(fleet, virtual_machines=[machine(name, SHOP)])
    amend(fleet, virtual_machines=[machine("shop.Role_IN_9", SHOP)])


def test_machine_with_the_vm_id_or_the_address_of_one_that_stays_is_refused() -> None:
    known = replace(machine("a"), addresses=("10.0.0.1",), vm_id="x")
    fleet = build_topology(scopes=[WEB], virtual_machines=[known])

    with pytest.raises(NameTakenError, match="vm_id"):
        amend(fleet, virtual_machines=[replace(machine("b"), vm_id="X")])
    with pytest.raises(AddressError, match="already belongs to a"):
        amend(fleet, virtual_machines=[replace(machine("b"), addresses=("::ffff:10.0.0.1",))])


def test_instance_may_be_called_by_the_name_of_its_service_twice() -> None:
    """It calls itself shop.Role_IN_0, and the other one Role_IN_0."""
    fleet = build_topology(scopes=[SHOP], virtual_machines=[machine("shop.Role_IN_0", SHOP)])

    after = amend(fleet, virtual_machines=[machine("shop.shop.Role_IN_0", SHOP)])

    assert [vm.resource_name for vm in after.virtual_machines.values()] == [
        "Role_IN_0",
        "shop.Role_IN_0",
    ]


def test_who_is_who_is_found_out_only_when_somebody_asks() -> None:
    known = Topology(virtual_machines={}, scopes={WEB.scope_id: WEB}, hosts={})

    after = known.revise(virtual_machines=[machine("A")])

    assert after.directory.by_name == {"a": machine("A")}
