"""One field is changed, and the others stay."""

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import JsonValue

from forewarn.domain.errors import TopologyError
from forewarn.domain.names import HostName
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import VirtualMachine
from forewarn.files.fleet import FleetError, read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.hosts import close_host
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.patches import NewHostError, patch_host, patch_scope, patch_vm
from forewarn.operations.placements import HostClosedError
from forewarn.operations.safeguards import ApplyOptions, VirtualMachineBusyError
from forewarn.operations.scopes import UnknownSelectionError
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

RICH = """
[[virtual_machine]]
name = "solo"
approval = "all"
host = "kvm-1"
addresses = ["10.0.0.9"]
zone = "1"
labels = { rack = "a", row = "7" }
tags = { team = "shop" }
profile = { vm_size = "D2", os_type = "Linux" }
"""


@pytest.fixture
def rich(fleet: Store, operator: Context) -> Store:
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(RICH)))
    return fleet


def patch(
    store: Store, context: Context, name: str, *, as_is: bool = False, **fields: JsonValue
) -> VirtualMachine:
    options = ApplyOptions(as_is=as_is)
    return store.write(lambda tx: patch_vm(tx, context, name, fields, options))


def shown(store: Store, name: str) -> VirtualMachine:
    vms = store.read(lambda reading: reading.topology()).virtual_machines
    return next(vm for vm in vms.values() if vm.name == name)


def test_only_the_named_field_changes(rich: Store, operator: Context) -> None:
    before = shown(rich, "solo")

    after = patch(rich, operator, "SOLO", host="kvm-0")

    assert after == shown(rich, "solo")
    assert (before.host, after.host) == ("kvm-1", "kvm-0")
    kept = ("scope_id", "addresses", "zone", "labels", "tags", "vm_id", "profile")
    assert [getattr(after, each) for each in kept] == [getattr(before, each) for each in kept]
    scope = rich.read(lambda reading: reading.topology()).scopes[after.scope_id]
    assert scope.policy.approval is ApprovalPolicy.ALL


def test_null_clears_and_labels_change_one_by_one(rich: Store, operator: Context) -> None:
    after = patch(
        rich, operator, "solo", host=None, zone=None, labels={"rack": None, "room": "b"}, tags=None
    )

    assert (after.host, after.zone, after.tags) == (None, "", {})
    assert after.labels == {"row": "7", "room": "b"}
    assert patch(rich, operator, "solo", tags={"a": "b"}).tags == {"a": "b"}


def test_profile_changes_key_by_key(rich: Store, operator: Context) -> None:
    after = patch(rich, operator, "solo", profile={"vm_size": None, "sku": "12-gen2"})

    assert after.profile.known == {"os_type": "Linux", "sku": "12-gen2"}


def test_update_domain_stays_in_the_scope_and_is_assigned_in_another(
    rich: Store, operator: Context
) -> None:
    stays = patch(rich, operator, "web-1", zone="2")
    moved = patch(rich, operator, "web-1", availability_set=None)
    joined = patch(rich, operator, "solo", availability_set="web")

    assert (stays.update_domain, stays.zone) == (1, "2")
    assert (moved.scope_id, moved.update_domain) == ("virtual-machine/web-1", 0)
    assert (joined.scope_id, joined.update_domain) == ("availability-set/web", 1)
    assert joined.addresses == ("10.0.0.9",)


def test_machine_in_two_sets_is_refused(rich: Store, operator: Context) -> None:
    with pytest.raises(FleetError, match="can only be in one of"):
        patch(rich, operator, "web-1", scale_set="batch")


def test_closed_host_and_event_refuse_a_move(rich: Store, operator: Context) -> None:
    rich.write(lambda tx: close_host(tx, operator, "kvm-0"))
    with pytest.raises(HostClosedError):
        patch(rich, operator, "solo", host="kvm-0")
    assert patch(rich, operator, "solo", as_is=True, host="kvm-0").host == "kvm-0"

    order = EventOrder(event_type=EventType.FREEZE, resources=("solo",))
    rich.write(lambda tx: create_events(tx, operator, order))

    with pytest.raises(VirtualMachineBusyError, match=r"solo has events in flight \(0000"):
        patch(rich, operator, "solo", host="kvm-1")
    assert patch(rich, operator, "solo", zone="3").zone == "3"


def test_labels_of_a_host_change_one_by_one_and_it_stays_closed(
    rich: Store, operator: Context
) -> None:
    rich.write(lambda tx: patch_host(tx, operator, "kvm-1", {"labels": {"a": "1", "b": "2"}}))
    closed = rich.write(lambda tx: close_host(tx, operator, "kvm-1"))

    host = rich.write(lambda tx: patch_host(tx, operator, "KVM-1", {"labels": {"a": None}}))

    assert host.labels == {"b": "2"}
    assert host.closure == closed.closure
    assert rich.read(lambda reading: reading.topology()).hosts[HostName("kvm-1")] == host


def test_patches_are_audited_with_what_they_changed(rich: Store, operator: Context) -> None:
    patch(rich, operator, "solo", zone="9")
    rich.write(lambda tx: patch_host(tx, operator, "kvm-1", {"labels": {"a": "1"}}))

    entries = rich.read(lambda reading: reading.audit())[-2:]
    assert [(each.action, each.subject) for each in entries] == [
        ("vm set", "solo"),
        ("host set", "kvm-1"),
    ]


GROUPS = """
[[scale_set]]
name = "batch"
postpone_until = "30m"

[[virtual_machine]]
name = "batch-0"
scale_set = "batch"
placement_group = "one"
"""


@pytest.mark.parametrize("name", ["Web", "availability-set/web"])
def test_setting_of_a_scope_changes_and_the_others_stay(
    rich: Store, operator: Context, name: str
) -> None:
    rich.write(lambda tx: patch_scope(tx, operator, name, {"postpone_until": "1h"}))
    before = rich.read(lambda reading: reading.topology())

    changed = rich.write(lambda tx: patch_scope(tx, operator, name, {"approval": "all"}))
    after = rich.read(lambda reading: reading.topology())
    reset = rich.write(lambda tx: patch_scope(tx, operator, name, {"postpone_until": None}))

    assert changed.policy == replace(
        before.scopes[changed.scope_id].policy, approval=ApprovalPolicy.ALL
    )
    assert changed.policy.postpone_until == timedelta(hours=1)
    assert after.virtual_machines == before.virtual_machines
    assert after.scopes == {**before.scopes, changed.scope_id: changed}
    assert (reset.policy.approval, reset.policy.postpone_until) == (
        ApprovalPolicy.ALL,
        timedelta(0),
    )
    lines = rich.read(lambda reading: reading.audit(action="scope set"))
    assert {line.subject for line in lines} == {"web"}


def test_settings_of_a_machine_that_stands_alone_are_changed(
    rich: Store, operator: Context
) -> None:
    before = shown(rich, "solo")

    changed = rich.write(lambda tx: patch_scope(tx, operator, "solo", {"notice": "1h"}))

    assert changed.policy.notice == timedelta(hours=1)
    assert changed.policy.approval is ApprovalPolicy.ALL
    assert shown(rich, "solo") == before


def test_placement_groups_get_the_settings_of_their_scale_set(
    fleet: Store, operator: Context
) -> None:
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(GROUPS)))

    fleet.write(lambda tx: patch_scope(tx, operator, "batch", {"terminate_notice": "10m"}))

    scopes = fleet.read(lambda reading: reading.topology()).scopes.values()
    batch = [scope.policy for scope in scopes if scope.name == "batch"]
    assert len(batch) > 1
    assert {policy.terminate_notice for policy in batch} == {timedelta(minutes=10)}
    assert {policy.postpone_until for policy in batch} == {timedelta(minutes=30)}


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("web", {"approval": "nobody"}, FleetError),
        ("web", {"notice": "soon"}, FleetError),
        ("web", {"terminate_notice": "5m"}, TopologyError),
        ("nothing", {"approval": "all"}, UnknownSelectionError),
    ],
)
def test_scope_is_not_patched_with_what_a_fleet_file_may_not_say(
    rich: Store, operator: Context, name: str, changes: dict[str, JsonValue], error: type[Exception]
) -> None:
    before = rich.read(lambda reading: reading.topology())

    with pytest.raises(error):
        rich.write(lambda tx: patch_scope(tx, operator, name, changes))

    assert rich.read(lambda reading: reading.topology()) == before


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("kvm-77", "Unknown host 'kvm-77'. Did you mean kvm-1 or kvm-0?"),
        ("elsewhere", "Unknown host 'elsewhere'."),
    ],
)
def test_move_to_an_unknown_host_is_refused(
    rich: Store, operator: Context, host: str, said: str
) -> None:
    with pytest.raises(NewHostError) as refused:
        patch(rich, operator, "solo", host=host, as_is=True)

    assert (str(refused.value), refused.value.host) == (said, host)
    assert shown(rich, "solo").host == "kvm-1"


def test_move_to_a_new_host_adds_it_if_told_to(rich: Store, operator: Context) -> None:
    fields = {"host": "kvm-77"}

    rich.write(lambda tx: patch_vm(tx, operator, "solo", fields, ApplyOptions(), new_host=True))

    assert patch(rich, operator, "web-0", host="kvm-77").host == "kvm-77"
    assert patch(rich, operator, "solo", host=None).host is None
