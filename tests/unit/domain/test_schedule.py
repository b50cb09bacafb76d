from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from forewarn.domain.actions import Decisions
from forewarn.domain.amending import build_topology
from forewarn.domain.course import Course
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.errors import InvalidNameError
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.names import MaintenanceId, ScheduleName
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.schedule import (
    KEPT_OCCURRENCES,
    Occurrence,
    OccurrenceOutcome,
    PassOccurrence,
    Schedule,
    ScheduleError,
    ScheduleStatus,
    StartOccurrence,
    check_schedule,
    due_occurrences,
    explain_wait,
    note,
    pause_schedule,
    resume_schedule,
    upcoming,
)
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.protocol.vocabulary import EventType

MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)
OPENS = datetime(2026, 11, 17, 21, tzinfo=UTC)
CLOSES = datetime(2026, 11, 18, 3, tzinfo=UTC)
LAST = MaintenanceId("m0")
PAUSE = ServerPause(who="alice", since=datetime(2026, 11, 16, 8, tzinfo=UTC))


def order(*windows: str, blackouts: tuple[str, ...] = ()) -> MaintenanceOrder:
    calendar = Calendar(
        windows=tuple(map(read_window, windows)), blackouts=tuple(map(read_blackout, blackouts))
    )
    return MaintenanceOrder(event_type=EventType.REBOOT, course=Course(calendar=calendar))


def schedule(*windows: str, blackouts: tuple[str, ...] = (), **changes: Any) -> Schedule:
    made = Schedule(
        name=ScheduleName("patches"),
        order=order(*(windows or ("Tue 22:00-04:00 Europe/Berlin",)), blackouts=blackouts),
        every=read_recurrence("Tue"),
        from_date=MONDAY.date(),
        until_date=None,
        created_at=MONDAY,
        met_until=MONDAY,
    )
    return replace(made, **changes)


def met(made: Schedule, now: datetime, *unfinished: MaintenanceId) -> object:
    (action,) = due_occurrences([made], unfinished, now)
    return action


def test_nothing_is_due_before_the_window_opens() -> None:
    assert not tuple(due_occurrences([schedule()], (), OPENS - timedelta(seconds=1)))


@pytest.mark.parametrize("late", [timedelta(0), CLOSES - OPENS - timedelta(seconds=1)])
def test_occurrence_starts_while_its_window_is_open(late: timedelta) -> None:
    made = schedule(maintenance_id=LAST)

    action = met(made, OPENS + late)

    assert isinstance(action, StartOccurrence)
    assert (action.name, action.opening.opens_at) == ("patches", OPENS)


@pytest.mark.parametrize(
    ("made", "now", "outcome", "reason"),
    [
        (schedule(is_paused=True), OPENS, "skipped", "the schedule was paused"),
        (
            schedule(blackouts=("2026-11-17 Europe/Berlin Fair",)),
            OPENS,
            "skipped",
            "it falls into the blackout 2026-11-17 Europe/Berlin Fair",
        ),
        (
            schedule(),
            CLOSES,
            "missed",
            (
                "the server was paused or not running until its window closed "
                "at 2026-11-18 03:00:00 GMT"
            ),
        ),
        (
            schedule(maintenance_id=LAST),
            OPENS,
            "skipped",
            "the last maintenance m0 has not finished",
        ),
    ],
)
def test_occurrence_is_passed_with_a_reason(
    made: Schedule, now: datetime, outcome: str, reason: str
) -> None:
    action = met(made, now, LAST)

    expected = Occurrence(
        opens_at=OPENS, met_at=now, outcome=OccurrenceOutcome(outcome), reason=reason
    )
    is_planned = reason.startswith(("the schedule was paused", "it falls into the blackout"))
    assert action == PassOccurrence(name=made.name, occurrence=expected, is_planned=is_planned)


def test_occurrences_are_met_once_and_in_order() -> None:
    made, now = schedule(), OPENS + timedelta(days=15)
    opened = []
    while actions := tuple(due_occurrences([made], (), now)):
        (action,) = actions
        assert isinstance(action, PassOccurrence)
        opened.append(action.occurrence.opens_at)
        made = note(made, action.occurrence)

    assert opened == [OPENS + timedelta(days=7 * weeks) for weeks in range(3)]
    assert [each.opens_at for each in made.occurrences] == opened


def test_note_remembers_the_last_maintenance_and_the_newest_occurrences() -> None:
    made = schedule()
    for number in range(KEPT_OCCURRENCES + 2):
        begun = MaintenanceId("m1") if number == 0 else None
        occurrence = Occurrence(
            opens_at=OPENS + timedelta(days=number),
            met_at=OPENS,
            outcome=OccurrenceOutcome.STARTED,
            maintenance_id=begun,
        )
        made = note(made, occurrence)

    assert made.maintenance_id == "m1"
    assert len(made.occurrences) == KEPT_OCCURRENCES
    assert made.met_until == made.occurrences[-1].opens_at


def test_status_of_a_schedule() -> None:
    paused = pause_schedule(schedule())

    assert schedule().status is ScheduleStatus.ACTIVE
    assert paused.status is ScheduleStatus.PAUSED
    assert resume_schedule(paused).status is ScheduleStatus.ACTIVE
    assert schedule(until_date=MONDAY.date()).status is ScheduleStatus.ENDED


def test_upcoming_dates_say_what_keeps_them_free() -> None:
    made = schedule(blackouts=("2026-11-24",), until_date=date(2026, 12, 1))

    found = upcoming(made, OPENS, 5)

    assert [(each.day.day, each.blackout is not None) for each in found] == [(24, True), (1, False)]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (schedule(order=order()), "needs a window"),
        (
            schedule("Tue 22:00-04:00 UTC", "Wed 22:00-04:00 Europe/Berlin"),
            "one time zone, not in Europe/Berlin, UTC",
        ),
        (schedule("Sat 22:00-04:00 UTC"), "'Tue' never falls on a day on which a window opens"),
        (schedule(until_date=date(2026, 11, 15)), "ends on 2026-11-15, before it begins"),
        (schedule(until_date=MONDAY.date()), "never falls on a day"),
        (schedule(from_date=date(9999, 1, 1)), "year must be from 2000 to 2999"),
        (schedule(until_date=date(3000, 1, 1)), "year must be from 2000 to 2999"),
    ],
)
def test_schedule_that_could_start_nothing_is_refused(made: Schedule, problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        check_schedule(made)


def test_name_that_does_not_travel_is_refused() -> None:
    check_schedule(schedule())

    with pytest.raises(InvalidNameError, match="schedule"):
        check_schedule(schedule(name="a b"))


def snapshot(made: Schedule, *maintenances: Maintenance) -> Snapshot:
    return Snapshot(
        topology=build_topology(scopes=(), virtual_machines=()),
        schedules={made.name: made},
        maintenances={each.maintenance_id: each for each in maintenances},
    )


def test_opening_is_a_deadline() -> None:
    assert next_deadline(snapshot(schedule()), MONDAY) == OPENS
    assert next_deadline(snapshot(schedule(is_paused=True)), MONDAY) == OPENS
    assert next_deadline(snapshot(schedule(until_date=MONDAY.date())), MONDAY) is None


def test_occurrence_is_decided_on_only_when_nothing_else_is_due() -> None:
    made = schedule(maintenance_id=LAST)
    # Nothing is left of it, so that finishing it is due.
    over = Maintenance(maintenance_id=LAST, event_type=EventType.REBOOT, started_at=MONDAY)

    first, then = decide(snapshot(made, over), OPENS), decide(snapshot(made), OPENS)

    assert first.actions
    assert not first.occurrences
    (action,) = then.occurrences
    assert isinstance(action, StartOccurrence)
    assert then
    assert not Decisions(actions=(), effects=())


@pytest.mark.parametrize(
    ("made", "pause", "now"),
    [
        (schedule(), None, OPENS),
        (schedule(is_paused=True), PAUSE, OPENS),
        (schedule(), PAUSE, OPENS - timedelta(seconds=1)),
    ],
)
def test_schedule_that_has_nothing_due_waits_for_nothing(
    made: Schedule, pause: ServerPause | None, now: datetime
) -> None:
    assert explain_wait(made, pause, now) == ""


def test_schedule_that_is_due_says_that_it_waits_for_the_paused_server() -> None:
    assert explain_wait(schedule(), PAUSE, OPENS) == (
        "The server has been paused by alice since 2026-11-16 08:00:00 GMT. "
        "The date that opened at 2026-11-17 21:00:00 GMT starts when the server resumes, "
        "unless its window has closed by then, at 2026-11-18 03:00:00 GMT."
    )
