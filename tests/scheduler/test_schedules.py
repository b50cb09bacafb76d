"""The loop starts what schedules order, on a real store and a clock that is moved by hand."""

from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs
from tests.scheduler.test_scheduler import World, world

from forewarn.domain.course import Course
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.schedule import Occurrence
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.operations.maintenances import pause_maintenance
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.schedules import ScheduleOrder, create_schedule, remove_schedule
from forewarn.ports.store import LeaseLostError
from forewarn.protocol.vocabulary import EventType

__all__ = ["world"]

FIRST = datetime(2026, 1, 6, 21, tzinfo=UTC)


def create(world: World) -> None:
    """Freeze the set on Tuesday nights, but not in the third week of January."""
    calendar = Calendar(
        windows=(read_window("Tue 22:00-04:00 Europe/Berlin"),),
        blackouts=(read_blackout("2026-01-19..2026-01-25 Europe/Berlin Fair"),),
    )
    order = MaintenanceOrder(
        event_type=EventType.FREEZE, scopes=("web",), course=Course(calendar=calendar)
    )
    wanted = ScheduleOrder(name="freezes", order=order, every=read_recurrence("Tue"))
    world.store.write(lambda tx: create_schedule(tx, world.context(), wanted))


def occurrences(world: World) -> tuple[Occurrence, ...]:
    (schedule,) = world.store.read(lambda reading: reading.schedules())
    return schedule.occurrences


def test_schedule_starts_at_each_opening_and_skips_blackouts(world: World) -> None:
    create(world)
    scheduler = world.lead()

    with capture_logs() as logs:
        world.advance(scheduler, days=28)

    met = occurrences(world)
    assert [each.outcome.value for each in met] == ["started", "started", "skipped", "started"]
    assert [each.opens_at for each in met] == [FIRST + timedelta(days=7 * n) for n in range(4)]
    assert all(each.met_at == each.opens_at for each in met)
    begun = world.store.read(lambda reading: reading.maintenances())
    assert [each.started_at for each in begun] == [met[n].opens_at for n in (0, 1, 3)]
    assert all(each.finished_at for each in begun)
    said = [line for line in logs if line["event"].startswith("schedule_")]
    assert [(line["event"], line["log_level"]) for line in said] == [
        ("schedule_started", "info"),
        ("schedule_started", "info"),
        ("schedule_skipped", "warning"),
        ("schedule_started", "info"),
    ]
    assert "Fair" in said[2]["reason"]
    assert scheduler.performance.occurrences == {"started": 3}, "what was planned is not counted"


def test_occurrence_is_skipped_while_the_last_maintenance_is_paused(world: World) -> None:
    create(world)
    scheduler = world.lead()
    world.advance(scheduler, hours=37)
    (begun,) = world.store.read(lambda reading: reading.maintenances())
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), begun.maintenance_id))

    world.advance(scheduler, days=7)

    started, skipped = occurrences(world)
    assert started.maintenance_id == begun.maintenance_id
    assert skipped.reason == f"the last maintenance {begun.maintenance_id} has not finished"
    assert scheduler.performance.occurrences == {"started": 1, "skipped": 1}


def test_server_that_comes_back_meets_what_it_has_missed(world: World) -> None:
    create(world)
    world.clock.move_to(FIRST + timedelta(days=7, hours=1))

    world.lead().settle()

    missed, started = occurrences(world)
    assert (missed.outcome, started.outcome) == ("missed", "started")
    assert started.met_at == world.clock.now()


def test_leader_that_was_replaced_starts_nothing(world: World) -> None:
    create(world)
    old, new = world.lead(), world.lead()
    world.clock.move_to(FIRST)

    with pytest.raises(LeaseLostError):
        old.settle()
    assert not occurrences(world)

    new.settle()
    assert len(occurrences(world)) == 1


def test_schedule_that_is_removed_starts_nothing_more(world: World) -> None:
    create(world)
    scheduler = world.lead()
    world.advance(scheduler, days=2)
    world.store.write(lambda tx: remove_schedule(tx, world.context(), "freezes"))

    world.advance(scheduler, days=28)

    assert len(world.store.read(lambda reading: reading.maintenances())) == 1


@pytest.mark.parametrize(
    ("paused", "outcomes"),
    [(timedelta(hours=2), ["started"]), (timedelta(days=8), ["missed", "missed"])],
)
def test_paused_server_starts_nothing_until_it_resumes_and_not_in_windows_that_have_closed(
    world: World, paused: timedelta, outcomes: list[str]
) -> None:
    create(world)
    scheduler = world.lead()
    world.advance(scheduler, hours=1)
    world.store.write(lambda tx: pause_server(tx, world.context(), "storage"))

    world.advance(scheduler, seconds=(FIRST + paused - world.clock.now()).total_seconds())

    assert not world.store.read(lambda reading: reading.maintenances())
    assert not occurrences(world)
    world.store.write(lambda tx: resume_server(tx, world.context()))
    scheduler.settle()
    met = occurrences(world)
    assert [each.outcome.value for each in met] == outcomes
    assert all(each.met_at == FIRST + paused for each in met)
    begun = world.store.read(lambda reading: reading.maintenances())
    assert [each.maintenance_id for each in begun] == [
        each.maintenance_id for each in met if each.maintenance_id
    ]
    paused_until = "the server was paused or not running until its window closed"
    assert all(paused_until in each.reason for each in met if not each.maintenance_id)
