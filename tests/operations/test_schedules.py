from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest

from forewarn.domain.course import Course
from forewarn.domain.decisions import decide
from forewarn.domain.errors import PlanError
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.notification import Phase, Target
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.schedule import (
    OccurrenceOutcome,
    Schedule,
    ScheduleError,
    pause_schedule,
    resume_schedule,
)
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.gates import GateNotFoundError
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import UnknownLabelsError
from forewarn.operations.schedules import (
    ScheduleNameTakenError,
    ScheduleOrder,
    UnknownScheduleError,
    alter_schedule,
    change_schedule,
    create_schedule,
    find_schedule,
    meet_occurrences,
    remove_schedule,
)
from forewarn.operations.snapshots import look
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventType

OPENS = datetime(2026, 1, 6, 22, tzinfo=UTC)
LABELLED = """
[[host]]
name = "kvm-0"
labels = { rack = "a" }
[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-0"
"""
MORE = """
[[host]]
name = "kvm-9"
labels = { rack = "a" }
[[virtual_machine]]
name = "new"
host = "kvm-9"
"""


def course(*windows: str, blackouts: tuple[str, ...] = (), gates: tuple[str, ...] = ()) -> Course:
    calendar = Calendar(
        windows=tuple(map(read_window, windows)), blackouts=tuple(map(read_blackout, blackouts))
    )
    return Course(calendar=calendar, gates=gates)


NIGHT = course("Tue 22:00-04:00 UTC")
WEB = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",), course=NIGHT)


def patches(order: MaintenanceOrder = WEB, name: str = "patches") -> ScheduleOrder:
    return ScheduleOrder(name=name, order=order, every=read_recurrence("Tue"))


def create(
    store: Store, context: Context, wanted: ScheduleOrder, gates: tuple[str, ...] = ()
) -> Schedule:
    return store.write(lambda tx: create_schedule(tx, context, wanted, gates=gates))


def meet(store: Store, context: Context) -> tuple[Schedule, tuple[Maintenance, ...]]:
    """Do what is due about schedules, as the scheduler does it."""
    seen = store.read(lambda reading: look(reading, context, {}))
    due = decide(seen, context.now).occurrences
    after = store.write(lambda tx: meet_occurrences(tx, context, seen, due))
    schedules, begun = store.read(lambda reading: (reading.schedules(), reading.maintenances()))
    assert schedules == tuple(after.schedules.values())
    assert begun == tuple(after.maintenances.values())
    return schedules[0], begun


def audited(store: Store) -> list[tuple[str, str, str]]:
    lines = store.read(lambda reading: reading.audit())
    return [
        (line.action, line.subject, line.detail) for line in lines if "fleet" not in line.action
    ]


def test_schedule_begins_today_where_its_window_is(fleet: Store, operator: Context) -> None:
    tonga = replace(WEB, course=course("Tue 22:00-04:00 Pacific/Tongatapu"))
    late = replace(operator, now=datetime(2026, 1, 5, 12, tzinfo=UTC))

    made = create(fleet, late, patches(tonga))

    assert made.from_date == date(2026, 1, 6)
    assert fleet.read(lambda reading: reading.schedules()) == (made,)
    assert audited(fleet) == [("schedule create", "patches", "")]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (patches(replace(WEB, course=Course())), ScheduleError),
        (patches(replace(WEB, scopes=(), labels={"a": "b"})), UnknownLabelsError),
        (patches(replace(WEB, course=replace(NIGHT, gates=("smoke",)))), GateNotFoundError),
        (patches(replace(WEB, course=course("Tue 22:00-22:05 UTC"))), PlanError),
        (patches(name="Night"), ScheduleNameTakenError),
    ],
)
def test_schedule_that_would_not_work_now_is_refused(
    fleet: Store, operator: Context, wanted: ScheduleOrder, error: type[Exception]
) -> None:
    night = create(fleet, operator, patches(name="NIGHT"))

    with pytest.raises(error):
        create(fleet, operator, wanted)

    assert fleet.read(lambda reading: reading.schedules()) == (night,)


def test_schedule_is_paused_resumed_and_removed_by_its_name_in_any_case(
    fleet: Store, operator: Context
) -> None:
    create(fleet, operator, patches(name="other"))
    create(fleet, operator, patches())
    for verb, change in (("pause", pause_schedule), ("resume", resume_schedule)):
        changed = fleet.write(partial(_change, operator, change, verb))
        assert changed.is_paused == (verb == "pause")
        assert fleet.read(lambda reading: find_schedule(reading, "Patches")) == changed

    fleet.write(lambda tx: remove_schedule(tx, operator, "Patches"))

    assert [action for action, _, _ in audited(fleet)] == [
        "schedule create",
        "schedule create",
        "schedule pause",
        "schedule resume",
        "schedule remove",
    ]
    with pytest.raises(UnknownScheduleError, match="'Patches'"):
        fleet.read(lambda reading: find_schedule(reading, "Patches"))


def _change(
    context: Context, change: Callable[[Schedule], Schedule], verb: str, tx: Transaction
) -> Schedule:
    return change_schedule(tx, context, "PATCHES", change, verb=verb)


def test_occurrence_begins_the_maintenance_that_was_ordered(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    create(fleet, operator, patches())

    schedule, (begun,) = meet(fleet, later(OPENS))
    again, unchanged = meet(fleet, later(OPENS))

    assert begun.schedule == "patches"
    assert begun.description == "Host server is undergoing maintenance. (schedule patches)"
    assert (begun.resources, begun.started_at) == (("web-0", "web-1"), OPENS)
    assert begun.course == NIGHT
    (met,) = schedule.occurrences
    assert (met.outcome, met.maintenance_id) == ("started", begun.maintenance_id)
    assert (again, unchanged) == (schedule, (begun,))
    assert audited(fleet)[1:] == [
        ("maintenance start", begun.maintenance_id, "schedule patches"),
        ("schedule start", "patches", begun.maintenance_id),
    ]


def test_labels_are_looked_up_each_time(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(LABELLED)))
    order = MaintenanceOrder(event_type=EventType.FREEZE, host_labels={"rack": "a"}, course=NIGHT)
    create(fleet, operator, patches(order))
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(MORE)))

    _, (begun,) = meet(fleet, later(OPENS))

    assert set(begun.hosts) == {"kvm-0", "kvm-9"}


def test_occurrence_is_skipped_when_the_order_no_longer_works(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    gated = patches(replace(WEB, course=replace(NIGHT, gates=("smoke",))))
    create(fleet, operator, gated, gates=("smoke",))

    schedule, begun = meet(fleet, later(OPENS))

    assert begun == ()
    (met,) = schedule.occurrences
    assert met.outcome is OccurrenceOutcome.SKIPPED
    assert "smoke" in met.reason
    assert audited(fleet)[1:] == [("schedule skip", "patches", f"skipped: {met.reason}")]


def test_gates_of_the_server_are_known(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    gated = patches(replace(WEB, course=replace(NIGHT, gates=("smoke",))))
    create(fleet, operator, gated, gates=("smoke",))

    _, (begun,) = meet(fleet, replace(later(OPENS), rules=Rules(gates=("smoke",))))

    assert begun.course.gates == ("smoke",)


def test_occurrence_is_skipped_while_the_last_maintenance_is_unfinished(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    create(fleet, operator, patches())
    _, (begun,) = meet(fleet, later(OPENS))
    fleet.write(lambda tx: tx.put_maintenance(replace(begun, is_paused=True)))

    schedule, unchanged = meet(fleet, later(OPENS + timedelta(days=7)))

    assert len(unchanged) == 1
    assert [each.outcome.value for each in schedule.occurrences] == ["started", "skipped"]
    assert begun.maintenance_id in schedule.occurrences[-1].reason


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        (timedelta(hours=5, minutes=39), OccurrenceOutcome.STARTED),
        (timedelta(hours=5, minutes=41), OccurrenceOutcome.MISSED),
    ],
)
def test_late_occurrence_starts_if_a_step_fits_into_what_is_left_of_its_window(
    fleet: Store,
    operator: Context,
    later: Callable[[datetime], Context],
    late: timedelta,
    outcome: OccurrenceOutcome,
) -> None:
    create(fleet, operator, patches())  # notice and impact of a Freeze take 20 minutes

    schedule, begun = meet(fleet, later(OPENS + late))

    (met,) = schedule.occurrences
    assert met.outcome is outcome
    assert bool(begun) == (outcome is OccurrenceOutcome.STARTED)
    assert met.reason == (
        "" if begun else "no step fits before its window closes at 2026-01-07 04:00:00 GMT"
    )


def test_occurrence_that_nothing_else_describes_says_only_its_schedule(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    create(fleet, operator, patches(replace(WEB, description="")))

    _, (begun,) = meet(fleet, later(OPENS))

    assert begun.description == "(schedule patches)"


@pytest.mark.parametrize("target", [Target(name="ops"), Target(name="web", scopes=("web",))])
def test_date_that_is_skipped_is_told_unless_scopes_are_asked_for(
    fleet: Store, operator: Context, target: Target
) -> None:
    create(fleet, operator, patches())
    context = replace(operator, rules=Rules(targets=(target,)))
    _, (begun,) = meet(fleet, replace(context, now=OPENS))
    fleet.write(lambda tx: tx.put_maintenance(replace(begun, is_paused=True)))

    meet(fleet, replace(context, now=OPENS + timedelta(days=7)))

    messages = fleet.read(lambda reading: reading.notifications())
    if target.scopes:
        assert messages == ()
        return
    (told,) = messages
    assert (told.phase, told.schedule, told.target) == (Phase.SKIPPED, "patches", "ops")
    assert told.data == {
        "schedule": "patches",
        "event_type": "Freeze",
        "description": WEB.description,
        "opens_at": "2026-01-13T22:00:00+00:00",
        "outcome": "skipped",
        "maintenance_id": begun.maintenance_id,
        "detail": f"the last maintenance {begun.maintenance_id} has not finished",
        "who": operator.who,
    }


def test_date_of_a_paused_schedule_is_not_told(fleet: Store, operator: Context) -> None:
    create(fleet, operator, patches())
    fleet.write(lambda tx: change_schedule(tx, operator, "patches", pause_schedule, verb="pause"))

    meet(fleet, replace(operator, now=OPENS, rules=Rules(targets=(Target(name="ops"),))))

    assert fleet.read(lambda reading: reading.notifications()) == ()


def alter(store: Store, context: Context, **changes: object) -> Schedule:
    return store.write(
        lambda tx: alter_schedule(
            tx,
            context,
            "PATCHES",
            change=lambda known: replace(known, **changes),  # type: ignore[arg-type]
        )
    )


def test_changed_schedule_begins_with_the_next_opening(fleet: Store, operator: Context) -> None:
    made = create(fleet, operator, patches())
    later = replace(operator, now=OPENS + timedelta(days=20))
    daily = replace(WEB, course=replace(course("daily 23:00-04:00 UTC"), at_once=2))

    changed = alter(fleet, later, order=daily, every=read_recurrence("day"))
    until = alter(fleet, later, until_date=date(2026, 12, 31))

    assert changed == replace(
        made, order=daily, every=read_recurrence("day"), met_until=later.now
    ), "what the new days would have been before is not missed"
    assert until == find(fleet)
    assert until.next_opening
    assert until.next_opening.opens_at == datetime(2026, 1, 26, 23, tzinfo=UTC)
    first, second = audited(fleet)[-2:]
    assert first[:2] == ("schedule set", "patches")
    assert first[2].startswith("every: Tue → day; at once: any number → 2; windows: ")
    assert second[2] == "until: always → 2026-12-31"


def test_change_that_changes_nothing_is_not_written(fleet: Store, operator: Context) -> None:
    made = create(fleet, operator, patches())

    same = alter(fleet, replace(operator, now=OPENS), every=made.every)

    assert same == made == find(fleet)
    assert audited(fleet) == [("schedule create", "patches", "")]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"order": replace(WEB, course=course())}, ScheduleError),
        ({"until_date": date(2025, 1, 1)}, ScheduleError),
        ({"order": replace(WEB, course=replace(NIGHT, gates=("no",)))}, GateNotFoundError),
    ],
)
def test_schedule_is_not_changed_into_one_that_could_start_nothing(
    fleet: Store, operator: Context, changes: dict[str, object], error: type[Exception]
) -> None:
    made = create(fleet, operator, patches())

    with pytest.raises(error):
        alter(fleet, operator, **changes)

    assert find(fleet) == made


def find(store: Store) -> Schedule:
    return store.read(lambda reading: find_schedule(reading, "patches"))
