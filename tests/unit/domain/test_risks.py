"""How much is out at once, of the fleet in conftest.py: six machines on three hosts."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forewarn.domain.course import Course
from forewarn.domain.maintenance import Maintenance, remaining_steps
from forewarn.domain.names import HostName, MaintenanceId, VmName
from forewarn.domain.risks import Exposure, find_exposure, find_warnings
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventType

BY_HOST = Maintenance(
    maintenance_id=MaintenanceId("by-host"),
    event_type=EventType.REBOOT,
    started_at=datetime(2026, 3, 2, 12, 0, tzinfo=UTC),
    hosts=(HostName("kvm-1"), HostName("kvm-2"), HostName("kvm-3")),
    course=Course(at_once=1),
)
BY_SCOPE = replace(
    BY_HOST,
    hosts=(),
    resources=tuple(map(VmName, ("web-0", "web-1", "web-2", "db-0", "db-1"))),
    course=Course(),
)


def exposure_of(maintenance: Maintenance, fleet: Topology) -> Exposure:
    return find_exposure(maintenance, remaining_steps(maintenance, fleet), fleet)


def warnings_of(maintenance: Maintenance, fleet: Topology) -> list[str]:
    return list(find_warnings(maintenance, remaining_steps(maintenance, fleet), fleet))


def crowded(fleet: Topology, number: int) -> Topology:
    """Return *fleet* among so many more machines that nobody touches."""
    solo = fleet.virtual_machines[VmName("solo")]
    others = {
        (name := VmName(f"other-{each}")): replace(solo, name=name, host=None)
        for each in range(number)
    }
    return replace(fleet, virtual_machines={**fleet.virtual_machines, **others})


@pytest.mark.parametrize(
    ("maintenance", "sentence"),
    [
        (BY_HOST, "Unavailable at once: at most 2 of 6 virtual machines (34 %), on 1 host."),
        (
            replace(BY_HOST, course=Course(at_once=2)),
            "Unavailable at once: at most 4 of 6 virtual machines (67 %), on 2 hosts.",
        ),
        # The largest step of web has two, that of db one.
        (BY_SCOPE, "Unavailable at once: at most 3 of 6 virtual machines (50 %), in 2 scopes."),
        (
            replace(BY_SCOPE, course=Course(at_once=1)),
            "Unavailable at once: at most 2 of 6 virtual machines (34 %), in 1 scope.",
        ),
    ],
)
def test_exposure_is_bounded_by_the_largest_places(
    fleet: Topology, maintenance: Maintenance, sentence: str
) -> None:
    assert exposure_of(maintenance, fleet).sentence == sentence


def test_nothing_of_an_empty_fleet_is_out() -> None:
    empty = Topology(scopes={}, virtual_machines={}, hosts={})

    assert exposure_of(BY_SCOPE, empty).percent == 0


def test_careful_maintenance_of_a_large_fleet_has_no_warnings(fleet: Topology) -> None:
    assert warnings_of(BY_HOST, crowded(fleet, 14)) == []


def test_more_than_a_tenth_of_the_fleet_is_warned_of(fleet: Topology) -> None:
    assert warnings_of(BY_HOST, crowded(fleet, 13)) == [
        "More than 10 % of the fleet may be unavailable at once."
    ]


def test_the_way_to_less_at_once_is_said_where_there_is_one(fleet: Topology) -> None:
    assert warnings_of(BY_SCOPE, fleet) == [
        "More than 10 % of the fleet may be unavailable at once. Limit this with `at_once`."
    ]


def test_step_that_takes_a_whole_set_is_warned_of(fleet: Topology) -> None:
    moved = {
        name: replace(vm, update_domain=0) if name.startswith("db") else vm
        for name, vm in fleet.virtual_machines.items()
    }
    narrow = crowded(replace(fleet, virtual_machines=moved), 50)

    assert warnings_of(BY_SCOPE, narrow) == [
        "Some steps take a whole set down: availability-set/db (step 2)."
    ]


@pytest.mark.parametrize(("maintenance", "place"), [(BY_HOST, "host"), (BY_SCOPE, "scope")])
def test_failures_that_do_not_hold_all_are_warned_of(
    fleet: Topology, maintenance: Maintenance, place: str
) -> None:
    eager = replace(maintenance, course=Course(at_once=1, hold_all=False))

    assert warnings_of(eager, crowded(fleet, 50)) == [
        f"A failure holds only its own {place}; the others continue (`hold_all: false`)."
    ]


def test_several_hosts_at_once_without_a_minimum_are_warned_of(fleet: Topology) -> None:
    wide = replace(BY_HOST, course=Course(at_once=9))
    bounded = replace(BY_HOST, course=Course(at_once=9, min_available=50))

    assert warnings_of(wide, crowded(fleet, 90)) == [
        (
            "3 hosts may be unavailable at once without a minimum for each set. "
            "Set one with `min_available`."
        )
    ]
    assert warnings_of(bounded, crowded(fleet, 90)) == []
