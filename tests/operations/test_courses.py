"""Changing how a Maintenance goes about it while it is under way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.tasks import Assigner

from forewarn.domain.course import Course
from forewarn.domain.errors import CapacityError, MaintenanceOverError, WindowTooShortError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.windows import Calendar, read_window
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.courses import change_course
from forewarn.operations.events import complete_event, start_event
from forewarn.operations.gates import GateNotFoundError
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    UnknownMaintenanceError,
    abort_maintenance,
    start_maintenance,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.scheduler.tick import decide_and_record

WEB = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
HOSTS = MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-0", "kvm-1"))
NIGHT = Calendar(windows=(read_window("daily 22:00-06:00 UTC"),))
BRIEF = Calendar(windows=(read_window("daily 22:00-22:05 UTC"),))

NEWCOMER = """
[[availability_set]]
name = "web"
update_domains = 3

[[virtual_machine]]
name = "web-9"
availability_set = "web"
update_domain = 0
host = "kvm-0"
"""

Begin = Callable[[MaintenanceOrder], Maintenance]
Change = Callable[..., Maintenance]
Later = Callable[[datetime], Context]


@pytest.fixture
def begin(fleet: Store, operator: Context) -> Begin:
    return lambda order: fleet.write(lambda tx: start_maintenance(tx, operator, order))


@pytest.fixture
def change(fleet: Store, operator: Context) -> Change:
    """Change fields of the course of a Maintenance; return what is stored then."""

    def change_it(begun: Maintenance, **fields: object) -> Maintenance:
        def changed(course: Course) -> Course:
            return replace(course, **fields)  # type: ignore[arg-type]

        name = begun.maintenance_id
        fleet.write(lambda tx: change_course(tx, operator, name, changed, gates=("smoke",)))
        (stored,) = fleet.read(lambda reading: reading.maintenances())
        return stored

    return change_it


def audited(fleet: Store) -> list[str]:
    entries = fleet.read(lambda reading: reading.audit(action="maintenance set"))
    return [entry.detail for entry in entries]


def test_only_what_is_given_changes_and_the_audit_says_from_what(
    fleet: Store, begin: Begin, change: Change
) -> None:
    begun = begin(replace(WEB, course=Course(soak=timedelta(minutes=5))))

    changed = change(begun, at_once=2, calendar=NIGHT, gates=("SMOKE",), hold_all=False)

    wanted = Course(
        at_once=2,
        soak=timedelta(minutes=5),
        gates=("smoke",),
        calendar=NIGHT,
        hold_all=False,
    )
    assert changed == replace(begun, course=wanted)
    (said,) = audited(fleet)
    assert said.split("; ") == [
        "at once: any number → 2",
        "gates: none → smoke",
        "windows: none → daily 22:00-06:00 UTC",
        "hold all: yes → no",
    ]


def test_change_to_what_it_is_already_is_not_audited(
    fleet: Store, begin: Begin, change: Change
) -> None:
    begun = begin(WEB)

    assert change(begun, hold_all=True) == begun
    assert audited(fleet) == []


def test_one_host_at_once_is_the_default_also_of_a_change(begin: Begin, change: Change) -> None:
    begun = begin(replace(HOSTS, course=Course(at_once=2)))

    assert change(begun, at_once=None).course.at_once == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"min_available": 80}, CapacityError),
        ({"calendar": BRIEF}, WindowTooShortError),
        ({"gates": ("nobody",)}, GateNotFoundError),
    ],
)
def test_course_that_the_rest_cannot_be_walked_by_is_refused(
    fleet: Store, begin: Begin, change: Change, fields: dict[str, object], error: type[Exception]
) -> None:
    begun = begin(WEB)

    with pytest.raises(error):
        change(begun, **fields)

    assert fleet.read(lambda reading: reading.maintenances()) == (begun,)


def test_what_was_wrong_before_does_not_keep_it_from_being_changed(
    fleet: Store, operator: Context, begin: Begin, change: Change
) -> None:
    begun = begin(HOSTS)
    moved = '[[virtual_machine]]\nname = "web-1"\navailability_set = "web"\nhost = "kvm-0"\n'
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(moved)))

    assert change(begun, at_once=2).course.at_once == 2


def test_maintenance_that_is_over_is_not_changed(
    fleet: Store, operator: Context, begin: Begin, change: Change
) -> None:
    begun = begin(WEB)
    fleet.write(lambda tx: abort_maintenance(tx, operator, begun.maintenance_id))

    with pytest.raises(MaintenanceOverError):
        change(begun, at_once=2)


def test_unknown_maintenance_is_not_changed(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownMaintenanceError):
        fleet.write(lambda tx: change_course(tx, operator, "none", lambda course: course))


def announce(store: Store, context: Context) -> tuple[ScheduledEvent, ...]:
    store.write(lambda tx: decide_and_record(tx, context, {}, Assigner(), epoch=tx.next_epoch()))
    return store.read(lambda reading: reading.events_in_flight())


def test_calendar_into_which_an_announced_event_never_fits_is_refused(
    fleet: Store, operator: Context, begin: Begin, change: Change
) -> None:
    begun = begin(MaintenanceOrder(event_type=EventType.REBOOT, virtual_machines=("solo",)))
    (event,) = announce(fleet, operator)

    with pytest.raises(WindowTooShortError, match="needs 10 min for its impact") as caught:
        change(begun, calendar=BRIEF)

    assert caught.value.scope == event.scope_id
    assert change(begun, calendar=NIGHT).course.calendar == NIGHT


@pytest.mark.parametrize("minutes", [0, 10, 90])
def test_changed_soak_counts_where_a_step_soaks_already(
    fleet: Store, operator: Context, begin: Begin, change: Change, minutes: int
) -> None:
    begun = begin(replace(WEB, course=Course(soak=timedelta(hours=1))))
    (event,) = announce(fleet, operator)
    fleet.write(lambda tx: start_event(tx, operator, event.event_id))
    fleet.write(lambda tx: complete_event(tx, operator, event.event_id))

    change(begun, soak=timedelta(minutes=minutes))

    soaks = fleet.read(lambda reading: reading.soaks())
    assert soaks == {event.scope_id: operator.now + timedelta(minutes=minutes)}


def test_nothing_soaks_before_its_event_is_over(
    fleet: Store, operator: Context, begin: Begin, change: Change
) -> None:
    begun = begin(replace(WEB, course=Course(soak=timedelta(hours=1))))
    announce(fleet, operator)

    change(begun, soak=timedelta(minutes=10))

    assert fleet.read(lambda reading: reading.soaks()) == {}


def test_soak_of_another_maintenance_is_not_shortened(
    fleet: Store, operator: Context, begin: Begin, change: Change
) -> None:
    begun = begin(replace(WEB, course=Course(soak=timedelta(hours=1))))
    (event,) = announce(fleet, operator)
    fleet.write(lambda tx: start_event(tx, operator, event.event_id))
    fleet.write(lambda tx: complete_event(tx, operator, event.event_id))
    until = operator.now + timedelta(hours=3)
    fleet.write(lambda tx: tx.put_soak(event.scope_id, until, at=operator.now))

    change(begun, soak=timedelta(0))

    assert fleet.read(lambda reading: reading.soaks()) == {event.scope_id: until}


def test_shorter_soak_counts_from_the_last_event_in_whatever_order_they_ended(
    fleet: Store, operator: Context, begin: Begin, change: Change, later: Later
) -> None:
    begun = begin(replace(HOSTS, course=Course(at_once=1, soak=timedelta(hours=1))))
    announce(fleet, operator)
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(NEWCOMER)))
    first, joined = fleet.read(lambda reading: reading.events_in_flight())
    end = operator.now + timedelta(minutes=20)
    for event, moment in ((joined, operator.now), (first, end)):
        finish(fleet, later(moment), event.event_id)

    change(begun, soak=timedelta(minutes=10))

    soaks = fleet.read(lambda reading: reading.soaks())
    assert soaks == {first.scope_id: end + timedelta(minutes=10)}


def finish(store: Store, context: Context, event_id: EventId) -> None:
    store.write(lambda tx: start_event(tx, context, event_id))
    store.write(lambda tx: complete_event(tx, context, event_id))
