"""The fleet follows a source on a real store, and never in the middle of an event."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from forewarn.domain.errors import DomainError
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology
from forewarn.files.fleet import Fleet, read_fleet
from forewarn.operations.context import Context
from forewarn.operations.discovery import (
    MOST_REMARKS,
    SourceStatus,
    Synchronisation,
    find_sources,
    follow_census,
    put_sources,
)
from forewarn.operations.events import EventOrder, complete_event, create_events, start_event
from forewarn.operations.hosts import close_host
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.reconciling import OWNER_LABEL, Census, Terms, owned_by
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType

IDS = [f"4a6b1f0e-0000-4000-8000-00000000000{digit}" for digit in (1, 2)]
TERMS = Terms(source="kvm", remove_after=2, most_missing=50)


def census(*machines: Mapping[str, Any] | str, trouble: str = "", **more: Any) -> Census:
    entries = [{"name": each} if isinstance(each, str) else each for each in machines]
    return Census(fleet=read_fleet({"virtual_machine": entries, **more}), trouble=trouble)


class Follower:
    """A source that says one thing after the other."""

    def __init__(self, store: Store, context: Context, terms: Terms = TERMS) -> None:
        self.store = store
        self.context = replace(context, who=f"discovery {terms.source}")
        self.terms = terms
        self.absences: Mapping[VmName, int] = {}

    def follow(self, found: Census) -> Synchronisation:
        done = self.store.write(
            lambda tx: follow_census(tx, self.context, found, self.terms, self.absences)
        )
        self.absences = done.reconciliation.absences
        return done

    @property
    def fleet(self) -> Topology:
        return self.store.read(lambda reading: reading.topology())

    @property
    def own(self) -> list[str]:
        return sorted(owned_by(self.fleet, self.terms.source))


@pytest.fixture
def source(store: Store, operator: Context) -> Follower:
    return Follower(store, operator)


def announce(source: Follower, vm: str) -> EventId:
    order = EventOrder(event_type=EventType.FREEZE, resources=(vm,))
    (event, *_) = source.store.write(lambda tx: create_events(tx, source.context, order))
    return event.event_id


def test_machines_appear_move_and_disappear_and_the_audit_says_so(source: Follower) -> None:
    here = {"name": "web-0", "host": "kvm-1", "availability_set": "web"}
    source.follow(census(here, "other"))
    source.follow(census({**here, "host": "kvm-2"}, "other"))
    assert source.fleet.virtual_machines[VmName("web-0")].host == "kvm-2"

    source.follow(census("other"))
    assert source.own == ["other", "web-0"]
    source.follow(census("other"))

    assert source.own == ["other"]
    audit = source.store.read(lambda reading: reading.audit(limit=9))
    assert {entry.who for entry in audit} == {"discovery kvm"}
    assert {entry.action for entry in audit} == {"fleet discover"}
    assert sorted(entry.detail for entry in audit) == [
        "+ availability set web; + web-0; + other; + host kvm-1",
        "- web-0",
        "~ web-0: host kvm-1 -> kvm-2; + host kvm-2",
    ]


def test_long_audit_details_are_cut(source: Follower) -> None:
    source.follow(census(*(f"web-{number}" for number in range(12))))

    (entry,) = source.store.read(lambda reading: reading.audit(limit=9))
    assert entry.detail.endswith("+ web-9; and 2 more")


def test_the_same_census_again_writes_nothing(source: Follower) -> None:
    source.follow(census("web-0"))

    again = source.follow(census("web-0"))

    assert not again.change.differences
    assert len(source.store.read(lambda reading: reading.audit(limit=9))) == 1


def test_machine_in_an_event_is_moved_and_removed_after_it(source: Follower) -> None:
    source.follow(census({"name": "web-0", "host": "kvm-1"}, "other"))
    event_id = announce(source, "web-0")

    moved = source.follow(census({"name": "web-0", "host": "kvm-2"}, "other"))
    assert source.fleet.virtual_machines[VmName("web-0")].host == "kvm-1"
    assert any(event_id in remark for remark in moved.remarks)
    for _ in range(3):
        source.follow(census("other"))
    assert source.own == ["other", "web-0"]

    source.store.write(lambda tx: start_event(tx, source.context, event_id))
    source.store.write(lambda tx: complete_event(tx, source.context, event_id))
    source.follow(census("other"))
    assert source.own == ["other", "web-0"], "the event may have hidden it until now"
    source.follow(census("other"))
    assert source.own == ["other"]


def test_move_to_a_closed_host_is_a_fact(source: Follower) -> None:
    source.follow(census({"name": "web-0", "host": "kvm-1"}, {"name": "b", "host": "kvm-2"}))
    source.store.write(lambda tx: close_host(tx, source.context, "kvm-2"))

    source.follow(census({"name": "web-0", "host": "kvm-2"}, {"name": "b", "host": "kvm-2"}))

    assert source.fleet.virtual_machines[VmName("web-0")].host == "kvm-2"


def test_refused_census_changes_nothing_and_says_why(source: Follower) -> None:
    source.follow(census("a", "b", "c", "d"))

    nothing = source.follow(census())
    little = source.follow(census("a", "x"))

    assert "reports no virtual machine" in nothing.reconciliation.refusal
    assert "no longer reports 3 of the 4" in little.reconciliation.refusal
    assert source.own == ["a", "b", "c", "d"]
    assert not source.absences


def test_partial_census_adds_and_moves_but_does_not_count_absences(source: Follower) -> None:
    source.follow(census({"name": "a", "host": "kvm-1"}, "b"))

    for _ in range(3):
        source.follow(census({"name": "a", "host": "kvm-2"}, "c", trouble="kvm-3 is away"))

    assert source.own == ["a", "b", "c"]
    assert source.fleet.virtual_machines[VmName("a")].host == "kvm-2"
    assert not source.absences


def test_partial_census_does_not_decide_who_has_a_name_or_where_a_stopped_machine_is(
    source: Follower,
) -> None:
    source.follow(census({"name": "a", "host": "kvm-1"}, {"name": "b", "vm_id": IDS[0]}))

    found = census({"name": "a", "host": "kvm-2"}, {"name": "b", "vm_id": IDS[1]}, trouble="away")
    done = source.follow(replace(found, stopped=frozenset({VmName("a")})))

    assert source.fleet.virtual_machines[VmName("a")].host == "kvm-1"
    assert source.fleet.virtual_machines[VmName("b")].vm_id == IDS[0]
    assert done.remarks == ("b: a new name or vm_id cannot be applied yet.",)


def test_machine_that_is_reported_twice_counts_once(source: Follower) -> None:
    two = (census({"name": name, "vm_id": IDS[0]}) for name in ("a", "b"))
    machines = [vm for each in two for vm in each.fleet.virtual_machines]

    done = source.follow(Census(fleet=Fleet(virtual_machines=tuple(machines))))

    assert source.own == ["a"]
    assert done.remarks == ("b: reported more than once with the same name or vm_id.",)


def test_renamed_machine_is_the_same_one(source: Follower) -> None:
    old = {"name": "old", "vm_id": IDS[0], "addresses": ["10.0.0.1"]}
    source.follow(census(old))

    source.follow(census({**old, "name": "new"}))

    (vm,) = source.fleet.virtual_machines.values()
    assert (vm.name, vm.vm_id, vm.addresses) == ("new", IDS[0], ("10.0.0.1",))


def test_renamed_machine_keeps_what_nobody_says_anew(source: Follower) -> None:
    old = {"name": "old", "vm_id": IDS[0], "availability_set": "web"}
    source.follow(census("web-0", {**old, "addresses": ["10.0.0.1"], "update_domain": 3}))

    source.follow(census("web-0", {**old, "name": "new"}))

    vm = source.fleet.virtual_machines[VmName("new")]
    assert (vm.addresses, vm.update_domain) == (("10.0.0.1",), 3)


def test_addresses_follow_the_ids_of_machines_that_swap_their_names(source: Follower) -> None:
    first, second = ({"name": name, "vm_id": vm_id} for name, vm_id in zip("ab", IDS, strict=True))
    source.follow(
        census({**first, "addresses": ["10.0.0.1"]}, {**second, "addresses": ["10.0.0.2"]})
    )

    source.follow(census({**first, "name": "b"}, {**second, "name": "a"}))

    assert addresses(source) == {"a": ("10.0.0.2",), "b": ("10.0.0.1",)}


def test_new_machine_with_the_former_name_of_another_does_not_get_its_address(
    source: Follower,
) -> None:
    source.follow(census({"name": "a", "vm_id": IDS[0], "addresses": ["10.0.0.1"]}))

    source.follow(census({"name": "a", "vm_id": IDS[1]}, {"name": "b", "vm_id": IDS[0]}))

    assert addresses(source) == {"a": (), "b": ("10.0.0.1",)}


def test_machine_cannot_take_the_address_of_another(source: Follower) -> None:
    source.follow(census({"name": "a", "addresses": ["10.0.0.1"]}, "b"))

    done = source.follow(census("a", {"name": "b", "addresses": ["10.0.0.1", "10.0.0.2"]}))

    vms = source.fleet.virtual_machines
    assert vms[VmName("a")].addresses == ("10.0.0.1",)
    assert vms[VmName("b")].addresses == ("10.0.0.2",)
    assert done.remarks == ("b: address 10.0.0.1 belongs to a.",)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.53", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("0.0.0.0", "unspecified"),  # noqa: S104
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
    ],
)
def test_address_that_does_not_identify_one_machine_is_left_out(
    source: Follower, address: str, kind: str
) -> None:
    done = source.follow(census({"name": "a", "addresses": [address, "10.0.0.1"]}, "b"))

    assert addresses(source) == {"a": ("10.0.0.1",), "b": ()}
    assert done.remarks == (
        f"a: address {address} is left out: it is {kind}, so it does not identify one machine.",
    )


def test_machine_whose_only_new_address_is_left_out_keeps_those_it_had(source: Follower) -> None:
    source.follow(census({"name": "a", "addresses": ["10.0.0.1"]}))

    source.follow(census({"name": "a", "addresses": ["127.0.0.1"]}))

    assert addresses(source) == {"a": ("10.0.0.1",)}


@pytest.mark.parametrize("owner", ["", "other"], ids=["of an operator", "of another source"])
@pytest.mark.parametrize("spelling", ["10.0.0.1", "::ffff:10.0.0.1"])
def test_address_of_a_machine_that_came_from_elsewhere_is_left_out(
    source: Follower, owner: str, spelling: str
) -> None:
    declared = {"name": "a", "addresses": ["10.0.0.1"], "labels": {OWNER_LABEL: owner}}
    fleet = read_fleet({"virtual_machine": [declared]})
    source.store.write(lambda tx: apply_fleet(tx, source.context, fleet))
    census_of_it = census({"name": "b", "addresses": [spelling, "10.0.0.2"]}, "c")

    for found in (census_of_it, claim(census_of_it, "b")):
        done = source.follow(found)

        assert addresses(source) == {"a": ("10.0.0.1",), "b": ("10.0.0.2",), "c": ()}
        assert done.remarks == (f"b: address {spelling} belongs to a.",)


def test_machine_that_is_missing_keeps_its_address_until_it_is_removed(source: Follower) -> None:
    new = census("other", {"name": "b", "addresses": ["10.0.0.1"]})
    source.follow(census("other", {"name": "a", "addresses": ["10.0.0.1"]}))

    source.follow(new)
    assert addresses(source) == {"other": (), "a": ("10.0.0.1",), "b": ()}
    source.follow(new)
    assert addresses(source) == {"other": (), "b": ("10.0.0.1",)}


def test_stopped_machine_gives_its_address_to_who_has_it_now(source: Follower) -> None:
    source.follow(census({"name": "a", "addresses": ["10.0.0.1"]}, "b"))

    found = census("a", {"name": "b", "addresses": ["10.0.0.1"]})
    source.follow(replace(found, stopped=frozenset({VmName("a")})))

    vms = source.fleet.virtual_machines
    assert (vms[VmName("a")].addresses, vms[VmName("b")].addresses) == ((), ("10.0.0.1",))


def claim(found: Census, *claims: str, stopped: str = "") -> Census:
    """Return *found*, where these guests have told their addresses themselves."""
    return replace(
        found,
        claims=frozenset(map(VmName, claims)),
        stopped=frozenset({VmName(stopped)} if stopped else ()),
    )


def addresses(source: Follower) -> dict[str, tuple[str, ...]]:
    return {name: vm.addresses for name, vm in source.fleet.virtual_machines.items()}


def test_guest_cannot_claim_the_address_of_a_neighbour_that_is_stopped(source: Follower) -> None:
    neighbour, guest = {"name": "a", "addresses": ["10.0.0.1"]}, {"name": "b"}
    source.follow(claim(census(neighbour, guest), "a"))
    claiming = {**guest, "addresses": ["10.0.0.1", "10.0.0.2"]}

    done = source.follow(claim(census("a", claiming), "b", stopped="a"))

    assert addresses(source) == {"a": ("10.0.0.1",), "b": ("10.0.0.2",)}
    assert done.remarks == ("b: address 10.0.0.1 belongs to a.",)
    source.follow(claim(census(neighbour, claiming), "a", "b"))
    assert addresses(source) == {"a": ("10.0.0.1",), "b": ("10.0.0.2",)}


def test_claim_gives_way_to_what_the_platform_says(source: Follower) -> None:
    guest, new = {"name": "a", "addresses": ["10.0.0.1"]}, {"name": "b", "addresses": ["10.0.0.1"]}
    source.follow(claim(census(guest, "c"), "a"))

    done = source.follow(claim(census(guest, new, "c"), "a"))

    assert addresses(source) == {"a": (), "b": ("10.0.0.1",), "c": ()}
    assert done.remarks == ("a: address 10.0.0.1 belongs to b.",)


def test_guest_may_claim_an_address_that_its_owner_no_longer_has(source: Follower) -> None:
    source.follow(claim(census({"name": "a", "addresses": ["10.0.0.1"]}, "b"), "a"))

    moved, guest = (
        {"name": "a", "addresses": ["10.0.0.2"]},
        {"name": "b", "addresses": ["10.0.0.1"]},
    )
    source.follow(claim(census(moved, guest), "a", "b"))

    assert addresses(source) == {"a": ("10.0.0.2",), "b": ("10.0.0.1",)}


def test_machines_of_people_are_left_alone_until_they_hand_them_over(
    store: Store, operator: Context
) -> None:
    other = Follower(store, operator, Terms(source="other"))
    other.follow(census({"name": "web-0", "host": "kvm-1"}))
    source = Follower(store, operator)

    done = source.follow(census({"name": "WEB-0", "host": "kvm-2"}))

    assert done.remarks == ("WEB-0: declared elsewhere, so left unchanged.",)
    (vm,) = source.fleet.virtual_machines.values()
    assert (vm.name, vm.host, vm.labels) == ("web-0", "kvm-1", {OWNER_LABEL: "other"})


def test_machine_that_cannot_be_as_it_is_reported_is_left_out(source: Follower) -> None:
    sets = [{"name": "web", "update_domains": 2}]
    wrong = {"name": "a", "availability_set": "web", "update_domain": 7}
    role = {"name": "b", "cloud_service": "shop"}
    address = {"name": "c", "addresses": ["nowhere"]}

    done = source.follow(census(wrong, role, address, "d", availability_set=sets))

    assert source.own == ["d"]
    assert len(done.remarks) == 3
    assert "update domain 7" in done.remarks[0]


def test_machine_that_can_no_longer_be_declared_stays_as_it_was(source: Follower) -> None:
    """Such as after a slip of an operator who edits its metadata."""
    source.follow(census({"name": "a", "vm_id": IDS[0]}, "b", "c"))

    for left_out in ("A", IDS[0].upper()):
        for _ in range(TERMS.remove_after + 1):
            source.follow(replace(census("b", "c"), left_out=frozenset({left_out})))

    assert source.own == ["a", "b", "c"]
    assert not source.absences


def test_machine_whose_new_name_is_wrong_keeps_the_old_one(source: Follower) -> None:
    old = {"name": "a", "vm_id": IDS[0]}
    source.follow(census(old, "b"))

    wrong = {**old, "name": "c", "availability_set": "web", "update_domain": 77}
    done = source.follow(census(wrong, "b"))

    assert source.own == ["a", "b"]
    assert "update domain 77" in done.remarks[0]


def test_single_machine_that_is_wrong_is_left_out(source: Follower) -> None:
    done = source.follow(census({"name": "a", "addresses": ["nowhere"]}, "b"))

    assert source.own == ["b"]
    assert done.remarks == ("The address 'nowhere' of a is not a valid IP address.",)


def test_set_in_another_spelling_leaves_out_the_machines_in_it(source: Follower) -> None:
    source.follow(census({"name": "a", "availability_set": "web"}))

    source.follow(census({"name": "a", "availability_set": "web"}, "b", in_set("c", "WEB")))

    assert source.own == ["a", "b"]


def in_set(name: str, scope: str) -> dict[str, str]:
    return {"name": name, "availability_set": scope}


def test_mistake_that_is_of_no_machine_refuses_everything(source: Follower) -> None:
    with pytest.raises(DomainError, match="kvm 1"):
        source.follow(census({"name": "a", "host": "kvm 1"}, "b"))

    assert not source.own


def test_settings_of_sets_and_scopes_that_people_made_are_kept(source: Follower) -> None:
    sets = [{"name": "web", "update_domains": 3}]
    source.follow(census(in_set("a", "web"), "alone", availability_set=sets))

    source.follow(
        census(
            in_set("a", "web"),
            in_set("b", "web"),
            "alone",
            availability_set=[{"name": "web", "update_domains": 9}],
        )
    )

    (scope,) = (each for each in source.fleet.scopes.values() if each.name == "web")
    assert scope.update_domains == 3


def test_statuses_are_kept_as_they_are(store: Store, operator: Context) -> None:
    status = SourceStatus(
        name="kvm", kind="libvirt", problem="away", since=operator.at, remarks=("one",)
    )
    assert store.read(find_sources) == ()

    store.write(lambda tx: put_sources(tx, [status]))

    assert store.read(find_sources) == (status,)


def test_remarks_are_limited(source: Follower) -> None:
    wrong = [{"name": f"a{number}", "addresses": ["no:where"]} for number in range(30)]

    done = source.follow(census(*wrong))

    assert len(done.remarks) == MOST_REMARKS
