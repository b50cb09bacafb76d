from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from forewarn.domain.amending import build_topology
from forewarn.domain.errors import (
    AddressError,
    DomainOutOfRangeError,
    InvalidNameError,
    NameTakenError,
    RoleNameError,
    ScopeSettingError,
    UnknownScopeError,
    UnknownVirtualMachineError,
)
from forewarn.domain.event import Share
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.topology import (
    DeliveryScope,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
    assign_domains,
    is_on,
    resource_names,
    split_by_update_domain,
    standalone,
)

WEB = DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web")
SHOP = DeliveryScope(kind=ScopeKind.CLOUD_SERVICE, name="shop")
BATCH_A = DeliveryScope(kind=ScopeKind.SCALE_SET, name="batch", placement_group="a")
BATCH_B = replace(BATCH_A, placement_group="b")
WEB_0 = VirtualMachine(name=VmName("web-0"), scope_id=WEB.scope_id)
WEB_1 = replace(WEB_0, name=VmName("web-1"))


@pytest.mark.parametrize(
    ("scope", "scope_id"),
    [
        (WEB, "availability-set/web"),
        (SHOP, "cloud-service/shop"),
        (replace(BATCH_A, placement_group=None), "scale-set/batch"),
        (BATCH_A, "scale-set/batch/a"),
        (standalone(VmName("solo")), "virtual-machine/solo"),
    ],
)
def test_scope_id_says_what_the_scope_is(scope: DeliveryScope, scope_id: str) -> None:
    assert scope.scope_id == scope_id


def test_set_has_five_update_and_two_fault_domains_unless_said() -> None:
    assert (WEB.update_domains, WEB.fault_domains) == (5, 2)


def test_standalone_vm_has_one_domain_of_each_kind() -> None:
    scope = standalone(VmName("solo"))

    assert (scope.update_domains, scope.fault_domains) == (1, 1)
    assert scope.policy == Policy()


def test_standalone_vm_is_in_domain_zero() -> None:
    scope = standalone(VmName("solo"))
    vm = VirtualMachine(name=VmName("solo"), scope_id=scope.scope_id)

    topology = build_topology(scopes=[scope], virtual_machines=[vm])

    placed = topology.virtual_machines[vm.name]
    assert (placed.update_domain, placed.fault_domain) == (0, 0)


def test_standalone_vm_may_have_a_policy() -> None:
    policy = Policy(approval=ApprovalPolicy.LEADER)

    assert standalone(VmName("solo"), policy).policy is policy


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("FrontEnd_IN_0", "FrontEnd"),
        ("Back_IN_1_IN_12", "Back_IN_1"),
        ("_IN_0", None),
        ("FrontEnd_IN_", None),
        ("web-0", None),
    ],
)
def test_role_is_read_from_the_name(name: str, role: str | None) -> None:
    assert replace(WEB_0, name=VmName(name)).role == role


def test_topology_keeps_fleet_order() -> None:
    topology = build_topology(scopes=[WEB], virtual_machines=[WEB_1, WEB_0])

    assert list(topology.virtual_machines) == ["web-1", "web-0"]


def test_undeclared_host_is_implied() -> None:
    host = HostName("kvm-1")

    topology = build_topology(scopes=[WEB], virtual_machines=[replace(WEB_0, host=host)])

    assert topology.hosts == {host: Host(name=host)}


def test_declared_host_keeps_its_labels() -> None:
    host = Host(name=HostName("kvm-1"), labels={"rack": "r1"})

    topology = build_topology(
        scopes=[WEB], virtual_machines=[replace(WEB_0, host=host.name)], hosts=[host]
    )

    assert topology.hosts == {host.name: host}


def test_scope_without_vms_is_kept() -> None:
    topology = build_topology(scopes=[WEB], virtual_machines=[])

    assert topology.scopes == {WEB.scope_id: WEB}


def test_undeclared_scope_is_refused() -> None:
    with pytest.raises(UnknownScopeError) as refusal:
        build_topology(scopes=[], virtual_machines=[WEB_0])

    assert (refusal.value.vm, refusal.value.scope) == (WEB_0.name, WEB.scope_id)


def test_vm_of_a_cloud_service_is_named_by_its_role() -> None:
    vm = VirtualMachine(name=VmName("FrontEnd_IN_0"), scope_id=SHOP.scope_id)

    topology = build_topology(scopes=[SHOP], virtual_machines=[vm])

    assert topology.virtual_machines == {vm.name: vm}


def test_vm_of_a_cloud_service_without_a_role_is_refused() -> None:
    vm = replace(WEB_0, scope_id=SHOP.scope_id)

    with pytest.raises(RoleNameError, match="web-0"):
        build_topology(scopes=[SHOP], virtual_machines=[vm])


@pytest.mark.parametrize(
    ("vm", "words"),
    [
        (replace(WEB_0, update_domain=5), "update domain 5; valid numbers are 0 to 4"),
        (replace(WEB_0, update_domain=-1), "update domain -1"),
        (replace(WEB_0, fault_domain=2), "fault domain 2; valid numbers are 0 to 1"),
        (replace(WEB_0, fault_domain=-1), "fault domain -1"),
    ],
)
def test_domain_out_of_range_is_refused(vm: VirtualMachine, words: str) -> None:
    with pytest.raises(DomainOutOfRangeError, match=words):
        build_topology(scopes=[WEB], virtual_machines=[vm])


def test_last_domains_are_in_range() -> None:
    vm = replace(WEB_0, update_domain=4, fault_domain=1)

    topology = build_topology(scopes=[WEB], virtual_machines=[vm])

    assert topology.virtual_machines[vm.name] == vm


@pytest.mark.parametrize(
    ("scopes", "names", "taken"),
    [
        ([WEB], ["web-0", "web-0"], "virtual machine is called 'web-0'"),
        ([WEB], ["web-0", "WEB-0"], "virtual machine is called 'WEB-0'"),
        ([WEB], ["Web"], "virtual machine is called 'Web'"),
        ([WEB, WEB], [], "called 'availability-set/web'"),
        ([WEB, replace(WEB, name="WEB")], [], "called 'availability-set/WEB'"),
        ([WEB, replace(SHOP, name="web")], [], "called 'web'"),
        ([BATCH_A, replace(BATCH_B, name="Batch")], [], "called 'Batch'"),
        ([BATCH_A, BATCH_A], [], f"called '{BATCH_A.scope_id}'"),
    ],
)
def test_name_is_taken_in_any_case(
    scopes: list[DeliveryScope], names: list[str], taken: str
) -> None:
    vms = [replace(WEB_0, name=VmName(name)) for name in names]

    with pytest.raises(NameTakenError, match=taken):
        build_topology(scopes=scopes, virtual_machines=vms)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(WEB, update_domains=0),
        replace(WEB, fault_domains=0),
        replace(WEB, update_domains=1001),
        replace(WEB, policy=Policy(postpone_until=timedelta(days=366))),
        replace(WEB, policy=Policy(postpone_until=timedelta(minutes=-1))),
        replace(WEB, policy=Policy(terminate_notice=timedelta(minutes=10))),
        replace(WEB, placement_group="a"),
        replace(BATCH_A, policy=Policy(terminate_notice=timedelta(minutes=4))),
        replace(BATCH_A, policy=Policy(terminate_notice=timedelta(minutes=16))),
    ],
)
def test_scope_with_a_setting_out_of_bounds_is_refused(wrong: DeliveryScope) -> None:
    with pytest.raises(ScopeSettingError, match=f"of {wrong.scope_id} must be"):
        build_topology(scopes=[wrong], virtual_machines=[])


@pytest.mark.parametrize("minutes", [5, 15])
def test_terminate_notice_may_be_five_to_fifteen_minutes(minutes: int) -> None:
    scope = replace(BATCH_A, policy=Policy(terminate_notice=timedelta(minutes=minutes)))

    assert build_topology(scopes=[scope], virtual_machines=[]).scopes == {scope.scope_id: scope}


def test_standalone_scope_is_for_one_machine() -> None:
    other = replace(WEB_0, scope_id=standalone(VmName("solo")).scope_id)

    with pytest.raises(UnknownScopeError):
        build_topology(scopes=[standalone(VmName("solo"))], virtual_machines=[other])


def test_placement_group_needs_a_plain_name() -> None:
    with pytest.raises(InvalidNameError, match="'x y' is not a valid name for a placement group"):
        build_topology(scopes=[replace(BATCH_A, placement_group="x y")], virtual_machines=[])


def test_vm_id_is_taken_once() -> None:
    vms = [replace(WEB_0, name=VmName(name), vm_id="7f000001") for name in ("a", "b")]

    with pytest.raises(NameTakenError, match="vm_id is called '7f000001'"):
        build_topology(scopes=[WEB], virtual_machines=vms)


def test_host_is_declared_once() -> None:
    with pytest.raises(NameTakenError, match="host is called 'kvm-1'"):
        build_topology(scopes=[], virtual_machines=[], hosts=[Host(name=HostName("kvm-1"))] * 2)


def test_host_name_is_taken_in_any_case() -> None:
    vm = replace(WEB_0, host=HostName("KVM-1"))

    with pytest.raises(NameTakenError, match="host is called 'KVM-1'"):
        build_topology(scopes=[WEB], virtual_machines=[vm], hosts=[Host(name=HostName("kvm-1"))])


def test_host_may_be_called_like_a_virtual_machine() -> None:
    vm = replace(WEB_0, host=HostName("web-0"))

    topology = build_topology(scopes=[WEB], virtual_machines=[vm])

    assert set(topology.hosts) == {"web-0"}


def test_placement_groups_of_one_scale_set_share_its_name() -> None:
    topology = build_topology(scopes=[BATCH_A, BATCH_B], virtual_machines=[])

    assert set(topology.scopes) == {"scale-set/batch/a", "scale-set/batch/b"}


@pytest.mark.parametrize(
    ("scope", "vm", "noun", "name"),
    [
        (replace(WEB, name="a b"), None, "availability set", "a b"),
        (WEB, replace(WEB_0, name=VmName("a b")), "virtual machine", "a b"),
        (WEB, replace(WEB_0, host=HostName("a b")), "host", "a b"),
        (WEB, replace(WEB_0, host=HostName("")), "host", ""),
    ],
)
def test_name_that_does_not_travel_is_refused(
    scope: DeliveryScope, vm: VirtualMachine | None, noun: str, name: str
) -> None:
    with pytest.raises(InvalidNameError) as refusal:
        build_topology(scopes=[scope], virtual_machines=[vm] if vm else [])

    assert (refusal.value.noun, refusal.value.name) == (noun, name)


def test_vm_may_have_many_addresses() -> None:
    vm = replace(WEB_0, addresses=("10.0.0.10", "fd00::10", "10.0.0.10"))

    topology = build_topology(scopes=[WEB], virtual_machines=[vm, WEB_1])

    assert topology.virtual_machines[vm.name].addresses == vm.addresses


@pytest.mark.parametrize(
    ("first", "second"), [("10.0.0.10", "10.0.0.10"), ("fd00::10", "FD00:0:0:0:0:0:0:10")]
)
def test_address_of_another_vm_is_refused_in_any_spelling(first: str, second: str) -> None:
    vms = [replace(WEB_0, addresses=(first,)), replace(WEB_1, addresses=(second,))]

    with pytest.raises(AddressError, match="of web-1 already belongs to web-0"):
        build_topology(scopes=[WEB], virtual_machines=vms)


@pytest.mark.parametrize("address", ["fe80::1", "FE80::1%eth0", "febf::1"])
def test_link_local_address_is_refused(address: str) -> None:
    vm = replace(WEB_0, addresses=(address,))

    with pytest.raises(
        AddressError, match="is link-local, so it does not identify one virtual machine"
    ):
        build_topology(scopes=[WEB], virtual_machines=[vm])


def test_address_that_is_none_is_refused() -> None:
    vm = replace(WEB_0, addresses=("web-0_lan",))

    with pytest.raises(AddressError, match="'web-0_lan' of web-0 is not a valid IP address"):
        build_topology(scopes=[WEB], virtual_machines=[vm])


@pytest.mark.parametrize(
    ("wanted", "known", "assigned"),
    [
        pytest.param({"a": None}, {}, {"a": 0}, id="lowest first"),
        pytest.param(
            {"a": None, "b": None, "c": None, "d": None},
            {},
            {"a": 0, "b": 1, "c": 2, "d": 0},
            id="in fleet order, round and round",
        ),
        pytest.param({"a": 0, "b": 2, "c": None}, {}, {"a": 0, "b": 2, "c": 1}, id="least filled"),
        pytest.param({"a": None, "b": 0}, {}, {"a": 1, "b": 0}, id="a later wish counts"),
        pytest.param({"a": None, "b": None}, {"b": 0}, {"a": 1, "b": 0}, id="the known is kept"),
        pytest.param({"a": 2}, {"a": 0}, {"a": 2}, id="a wish outdoes the known"),
        pytest.param(
            {"a": 0, "b": 0, "c": 1, "d": None}, {}, {"a": 0, "b": 0, "c": 1, "d": 2}, id="empty"
        ),
        pytest.param(
            {"a": 1, "b": 1, "c": 2, "d": 2, "e": None, "f": None, "g": None},
            {},
            {"a": 1, "b": 1, "c": 2, "d": 2, "e": 0, "f": 0, "g": 0},
            id="until all are equal",
        ),
        pytest.param(
            {"a": 7, "b": None}, {}, {"a": 7, "b": 0}, id="out of range is left to others"
        ),
    ],
)
def test_vm_gets_the_wanted_known_or_least_filled_domain(
    wanted: Mapping[VmName, int | None],
    known: Mapping[VmName, int],
    assigned: Mapping[VmName, int],
) -> None:
    assert assign_domains(wanted, domains=3, known=known) == assigned


def test_assigned_domains_stay_when_assigned_again() -> None:
    wanted = {VmName(name): None for name in "abcd"}
    first = assign_domains(wanted, domains=3, known={})

    again = assign_domains({VmName("new"): None, **wanted}, domains=3, known=first)

    assert {vm: again[vm] for vm in first} == first


def test_share_never_spans_two_update_domains_or_scopes(fleet: Topology) -> None:
    shares = split_by_update_domain(fleet, fleet.virtual_machines)

    assert [(share.scope_id, share.update_domain, share.resources) for share in shares] == [
        ("availability-set/web", 0, ("web-0", "web-2")),
        ("availability-set/web", 1, ("web-1",)),
        ("availability-set/db", 0, ("db-0",)),
        ("availability-set/db", 1, ("db-1",)),
        ("virtual-machine/solo", 0, ("solo",)),
    ]


def test_resources_are_in_fleet_order_and_named_once(fleet: Topology) -> None:
    shares = split_by_update_domain(fleet, [VmName("web-2"), VmName("web-0"), VmName("web-2")])

    expected = (VmName("web-0"), VmName("web-2"))
    assert shares == (
        Share(scope_id=ScopeId("availability-set/web"), update_domain=0, resources=expected),
    )


def test_nothing_splits_into_no_shares(fleet: Topology) -> None:
    assert split_by_update_domain(fleet, []) == ()


def test_unknown_vm_is_refused(fleet: Topology) -> None:
    with pytest.raises(UnknownVirtualMachineError, match="'web-8'"):
        split_by_update_domain(fleet, [VmName("web-9"), VmName("web-0"), VmName("web-8")])


@pytest.mark.parametrize(
    ("one", "other"),
    [("127.0.0.7", "::ffff:127.0.0.7"), ("fd00::1", "fd00::1%eth0"), ("fd00::a", "FD00:0::A")],
)
def test_address_is_taken_however_it_is_written(one: str, other: str) -> None:
    vms = [
        replace(WEB_0, name=VmName(name), addresses=(address,))
        for name, address in (("a", one), ("b", other))
    ]

    with pytest.raises(AddressError, match="already belongs to a"):
        build_topology(scopes=[WEB], virtual_machines=vms)


@pytest.mark.parametrize(
    ("name", "scope_id", "shown"),
    [
        ("shop.FrontEnd_IN_0", "cloud-service/shop", "FrontEnd_IN_0"),
        ("SHOP.FrontEnd_IN_0", "cloud-service/shop", "FrontEnd_IN_0"),
        ("FrontEnd_IN_0", "cloud-service/shop", "FrontEnd_IN_0"),
        ("blog.FrontEnd_IN_0", "cloud-service/shop", "blog.FrontEnd_IN_0"),
        ("shop.FrontEnd_IN_0", "availability-set/shop", "shop.FrontEnd_IN_0"),
        ("shop.web", "virtual-machine/shop.web", "shop.web"),
    ],
)
def test_resources_name_an_instance_without_its_service(
    name: str, scope_id: str, shown: str
) -> None:
    assert resource_names((VmName(name),), ScopeId(scope_id)) == (shown,)


def test_two_instances_of_one_service_may_not_be_called_alike() -> None:
    shop = DeliveryScope(kind=ScopeKind.CLOUD_SERVICE, name="shop")
    vms = [
        VirtualMachine(name=VmName(name), scope_id=shop.scope_id)
        for name in ("shop.FrontEnd_IN_0", "frontend_IN_0")
    ]

    with pytest.raises(NameTakenError, match="More than one instance of cloud-service/shop"):
        build_topology(scopes=[shop], virtual_machines=vms)


@pytest.mark.parametrize(
    ("host", "asked", "expected"),
    [
        ("kvm-1", "kvm-1", True),
        ("kvm-1", "KVM-1", True),
        ("kvm-1", "kvm-2", False),
        (None, "kvm-1", False),
        (None, None, True),
        ("kvm-1", None, True),
    ],
)
def test_machine_is_on_one_host(host: str | None, asked: str | None, *, expected: bool) -> None:
    vm = replace(WEB_0, host=None if host is None else HostName(host))

    assert is_on(vm, None if asked is None else HostName(asked)) is expected
