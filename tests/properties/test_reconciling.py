"""Whatever a source reports: it decides about its own machines only, and never by accident."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.domain.names import VmName
from forewarn.domain.topology import NO_FLEET, Topology
from forewarn.files.fleet import DeclaredVirtualMachine, read_fleet
from forewarn.operations.context import Context
from forewarn.operations.declaring import declare
from forewarn.operations.reconciling import (
    OWNER_LABEL,
    Census,
    Reconciliation,
    Terms,
    owned_by,
    reconcile,
)
from forewarn.protocol.vocabulary import event_id

SOURCE = "kvm"
TRUSTING = Terms(source=SOURCE, remove_after=1, most_missing=100)
USUAL = Terms(source=SOURCE)
NOW = datetime(2026, 1, 5, tzinfo=UTC)
NUMBERS = count(1)
CONTEXT = Context(who="x", now=NOW, at=NOW, new_id=lambda: event_id(f"{next(NUMBERS):032x}"))

TROUBLES = st.sampled_from(["", "kvm-2 is away"])
HOSTS = st.sampled_from(["kvm-1", "kvm-2", "KVM-1"])
ADDRESSES = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "fd00:0::1"]), max_size=2)
IDS = [f"00000000-0000-0000-0000-00000000000{digit}" for digit in range(6)]
MACHINES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["web-0", "web-1", "WEB-1", "web-2", "db", "solo"]),
        "host": HOSTS,
        "vm_id": st.sampled_from(["", *IDS]),
        "addresses": ADDRESSES,
    },
    optional={
        "availability_set": st.sampled_from(["web", "shop"]),
        "zone": st.sampled_from(["1", "2"]),
    },
)


@st.composite
def censuses(draw: st.DrawFn) -> Census:
    """Return what a source may say, with names and ids that come twice, too."""
    entries = draw(st.lists(MACHINES, max_size=6))
    names = sorted({entry["name"] for entry in entries})
    some = st.frozensets(st.sampled_from(names)) if names else st.just(frozenset[VmName]())
    fleet = read_fleet({"virtual_machine": entries})
    return Census(fleet=fleet, stopped=draw(some), claims=draw(some), trouble=draw(TROUBLES))


@st.composite
def fleets(draw: st.DrawFn) -> Topology:
    """Return a fleet with machines of the source, of another source and of people."""
    entries = draw(st.lists(MACHINES, max_size=6, unique_by=lambda each: each["name"].casefold()))
    owners = draw(st.lists(st.sampled_from(["", SOURCE, "other"]), min_size=6, max_size=6))
    ids, addresses = iter(IDS), set[str]()
    for entry, owner in zip(entries, owners, strict=False):
        entry["vm_id"] = next(ids)
        entry["host"] = entry["host"].lower()
        entry["addresses"] = [
            each for each in entry["addresses"][:1] if each.replace(":0::", "::") not in addresses
        ]
        addresses |= {each.replace(":0::", "::") for each in entry["addresses"]}
        if owner:
            entry["labels"] = {OWNER_LABEL: owner}
    sets = [{"name": name} for name in ("web", "shop")]
    content: dict[str, Any] = {"availability_set": sets, "virtual_machine": entries}
    return declare(NO_FLEET, read_fleet(content), CONTEXT, prune=False)


def follow(
    known: Topology,
    census: Census,
    terms: Terms = TRUSTING,
    absences: Mapping[VmName, int] | None = None,
    busy: Iterable[VmName] = (),
) -> tuple[Topology, Reconciliation]:
    """Return the fleet after what was decided was done, which must not be refused."""
    found = reconcile(known, census, terms, absences=absences or {}, busy=frozenset(busy))
    return declare(known, found.fleet, CONTEXT, prune=False, remove=found.gone), found


def foreign(fleet: Topology) -> dict[VmName, object]:
    own = owned_by(fleet, SOURCE)
    return {name: vm for name, vm in fleet.virtual_machines.items() if name not in own}


@settings(deadline=None, max_examples=150)
@given(fleets(), censuses())
def test_machines_of_others_stay_as_they_are(fleet: Topology, census: Census) -> None:
    after, _ = follow(fleet, census)

    assert foreign(after) == foreign(fleet)


@settings(deadline=None, max_examples=150)
@given(fleets(), censuses())
def test_the_same_census_again_changes_nothing(fleet: Topology, census: Census) -> None:
    once, _ = follow(fleet, census)
    twice, _ = follow(once, census)
    _, third = follow(twice, census)

    # An address or a name that was free only after the first time may be given the second time.
    assert not third.is_needed


@settings(deadline=None)
@given(fleets(), censuses())
def test_sets_and_hosts_of_a_fleet_are_neither_changed_nor_removed(
    fleet: Topology, census: Census
) -> None:
    after, _ = follow(fleet, census)

    sets = {key: scope for key, scope in fleet.scopes.items() if scope.kind != "virtual-machine"}
    assert sets.items() <= after.scopes.items()
    assert fleet.hosts.items() <= after.hosts.items()


@settings(deadline=None)
@given(fleets(), TROUBLES)
def test_an_answer_without_machines_removes_nothing(fleet: Topology, trouble: str) -> None:
    census = Census(fleet=read_fleet({}), trouble=trouble)

    after, found = follow(fleet, census)

    assert after.virtual_machines == fleet.virtual_machines
    assert bool(found.refusal) == (bool(owned_by(fleet, SOURCE)) and not trouble)


@settings(deadline=None)
@given(fleets(), censuses())
def test_nothing_is_removed_the_first_time_it_is_missing(fleet: Topology, census: Census) -> None:
    after, found = follow(fleet, census, Terms(source=SOURCE, most_missing=100))

    kept = {vm.vm_id for vm in after.virtual_machines.values()}
    reported = {each.vm.name.casefold() for each in census.fleet.virtual_machines}
    for name, vm in owned_by(fleet, SOURCE).items():
        assert vm.vm_id in kept or name.casefold() in reported
    assert all(times == 1 for times in found.absences.values())


@settings(deadline=None)
@given(fleets(), censuses(), st.data())
def test_busy_machines_keep_their_names_and_ids(
    fleet: Topology, census: Census, data: st.DataObject
) -> None:
    names = sorted(fleet.virtual_machines)
    busy = data.draw(st.frozensets(st.sampled_from(names))) if names else frozenset[VmName]()

    after, _ = follow(fleet, census, busy=busy)

    for name in busy:
        assert after.virtual_machines[name].vm_id == fleet.virtual_machines[name].vm_id


@settings(deadline=None)
@given(fleets(), censuses())
def test_a_partial_answer_removes_nothing_and_moves_nothing_that_is_stopped(
    fleet: Topology, census: Census
) -> None:
    partial = Census(fleet=census.fleet, stopped=census.stopped, trouble="kvm-2 is away")

    after, found = follow(fleet, partial, absences=dict.fromkeys(fleet.virtual_machines, 9))

    assert not found.gone
    for name in census.stopped & fleet.virtual_machines.keys():
        assert after.virtual_machines[name].host == fleet.virtual_machines[name].host


def without_doubles(census: Census) -> Iterator[DeclaredVirtualMachine]:
    seen: set[str] = set()
    for each in census.fleet.virtual_machines:
        keys = {each.vm.name.casefold(), each.vm.vm_id} - {""}
        if not keys & seen:
            seen |= keys
            yield each


@settings(deadline=None, max_examples=60)
@given(fleets(), st.lists(censuses(), max_size=6), censuses())
def test_a_source_that_flaps_converges_once_it_is_stable(
    fleet: Topology, flapping: list[Census], last: Census
) -> None:
    stable = Census(fleet=replace(last.fleet, virtual_machines=tuple(without_doubles(last))))
    absences: Mapping[VmName, int] = {}
    terms = Terms(source=SOURCE, most_missing=100)

    for census in [*flapping, *[stable] * (terms.remove_after + 2)]:
        fleet, found = follow(fleet, census, terms, absences)
        absences = found.absences

    assert not follow(fleet, stable, terms, absences)[1].is_needed
    vms = [each.vm for each in stable.fleet.virtual_machines]
    names, ids = {vm.name.casefold() for vm in vms}, {vm.vm_id for vm in vms}
    # One whose new name somebody else has stays as it was.
    own = owned_by(fleet, SOURCE).items() if vms else ()
    assert all(name.casefold() in names or vm.vm_id in ids for name, vm in own)


@settings(deadline=None)
@given(fleets(), censuses())
def test_usual_terms_believe_no_answer_without_a_quarter_of_the_machines(
    fleet: Topology, census: Census
) -> None:
    own = owned_by(fleet, SOURCE)
    vms = [each.vm for each in census.fleet.virtual_machines]
    names, ids = {vm.name.casefold() for vm in vms}, {vm.vm_id for vm in vms}
    missing = [name for name in own if name.casefold() not in names and own[name].vm_id not in ids]

    after, found = follow(fleet, census, USUAL, dict.fromkeys(fleet.virtual_machines, 9))

    is_doubtful = not vms or len(missing) > max(1, len(own) // 4)
    assert bool(found.refusal) == (bool(missing) and is_doubtful and not census.is_partial)
    if found.refusal:
        assert after.virtual_machines == fleet.virtual_machines
