"""Where events stand on a line of time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.console.gantt import (
    ZOOMS,
    Bar,
    Frame,
    Piece,
    axis_of,
    draw_calendar,
    draw_event,
    draw_step,
    frame_at,
    pack,
    shorten,
)
from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    approve,
    cancel,
    complete,
    move_not_before,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.maintenance import Maintenance, Step
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.timetable import Stretch
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FRAME = Frame(since=NOON, until=NOON + 100 * MINUTE)
SHARE = Share(
    scope_id=ScopeId("availability-set/web"),
    update_domain=0,
    resources=(VmName("web-0"), VmName("web-2")),
)
DRAFT = Draft(event_type=EventType.REBOOT, event_source=EventSource.PLATFORM, share=SHARE)


def zoom(key: str) -> tuple[Frame, list[tuple[float, str]]]:
    step = next(each for each in ZOOMS if each.key == key)
    frame = frame_at(step, NOON)
    return frame, [(line.at, line.label) for line in axis_of(frame, step) if line.label]


@pytest.fixture
def event() -> ScheduledEvent:
    """Announced ten minutes into the frame, for a quarter of an hour later."""
    return schedule(DRAFT, event_id=EventId("E"), now=NOON + 10 * MINUTE, notice=15 * MINUTE)


def drawn(event: ScheduledEvent, now: datetime, lasts: timedelta | None = 10 * MINUTE) -> Bar:
    bar = draw_event(event, FRAME, now, lasts)
    assert bar is not None
    return bar


def pieces(bar: Bar) -> list[tuple[str, float, float]]:
    return [(piece.kind, piece.at, piece.width) for piece in bar.pieces]


def marks(bar: Bar) -> list[tuple[str, float]]:
    return [(mark.kind, mark.at) for mark in bar.marks]


def test_axis_has_labels_at_whole_hours_and_days() -> None:
    assert zoom("hour")[1][:2] == [(0, "12:00"), (16.67, "12:10")]
    assert zoom("6h")[1] == [
        (0, "12:00"), (16.67, "13:00"), (33.33, "14:00"), (50, "15:00"), (66.67, "16:00"),
        (83.33, "17:00"), (100, "18:00"),
    ]  # fmt: skip
    assert (50, "3 Mar") in zoom("day")[1], "the day is said at midnight"
    days = zoom("week")[1]
    assert [label for _, label in days][:3] == ["2 Mar", "3 Mar", "4 Mar"]
    assert days[0][0] < 0, "they may be moved"
    assert days[-1][0] > 100, "they may be moved"
    mondays = [label for _, label in zoom("month")[1]]
    assert mondays == ["2 Mar", "9 Mar", "16 Mar", "23 Mar", "30 Mar"]


def test_frame_moves_in_small_steps() -> None:
    hour = ZOOMS[0]

    assert frame_at(hour, NOON) == frame_at(hour, NOON + timedelta(seconds=29))
    assert frame_at(hour, NOON) != frame_at(hour, NOON + timedelta(seconds=31))
    assert frame_at(hour, NOON).until - frame_at(hour, NOON).since == hour.span


def test_scheduled_event_has_notice_and_an_impact_to_expect(event: ScheduledEvent) -> None:
    bar = drawn(event, NOON + 12 * MINUTE)

    assert pieces(bar) == [("notice", 10, 15), ("expected", 25, 10)]
    assert marks(bar) == [("not-before", 25)]
    assert (bar.tone, bar.caption, bar.left, bar.right) == ("scheduled", "Reboot web-0 +1", 10, 35)


def test_approved_event_has_the_approval_and_runs_until_now(event: ScheduledEvent) -> None:
    at = NOON + 14 * MINUTE
    given = Approval(approver=Approver.OPERATOR, name="admin", approved_at=at)
    bar = drawn(start(approve(event, given), now=at), NOON + 20 * MINUTE)

    assert pieces(bar) == [("notice", 10, 4), ("impact", 14, 6), ("expected", 20, 4)]
    assert marks(bar) == [("not-before", 25), ("approval", 14)]


def test_nothing_is_expected_of_an_impact_of_unknown_length(event: ScheduledEvent) -> None:
    started = start(event, now=NOON + 25 * MINUTE)

    assert pieces(drawn(started, NOON + 30 * MINUTE, None))[1:] == [("impact", 25, 5)]
    assert pieces(drawn(started, NOON + 60 * MINUTE))[1:] == [("impact", 25, 35)], "it is late"


def test_postponed_and_overdue_event_says_so(event: ScheduledEvent) -> None:
    late = move_not_before(event, event.not_before + 20 * MINUTE)
    overdue = replace(late, overdue_at=NOON + 50 * MINUTE)

    assert marks(drawn(overdue, NOON)) == [("postponed", 25), ("not-before", 45), ("overdue", 50)]


def test_failed_and_canceled_events_are_marked_at_their_end(event: ScheduledEvent) -> None:
    started = start(event, now=NOON + 25 * MINUTE)
    failed = complete(started, outcome=Outcome.FAILED, now=NOON + 30 * MINUTE)
    canceled = cancel(event, now=NOON + 12 * MINUTE)

    assert ("failed", 30) in marks(drawn(failed, NOON))
    assert drawn(failed, NOON).tone == "failed"
    assert pieces(drawn(canceled, NOON)) == [("notice", 10, 2)]
    assert ("canceled", 12) in marks(drawn(canceled, NOON))


def test_short_event_is_seen_and_not_covered_by_marks(event: ScheduledEvent) -> None:
    week = Frame(since=NOON, until=NOON + timedelta(days=7))
    bar = draw_event(event, week, NOON, None)

    assert bar is not None
    assert [piece.width for piece in bar.pieces] == [0.7, 0.7]
    assert bar.marks == ()


def test_event_without_notice_has_an_impact_only() -> None:
    sudden = start_unannounced(DRAFT, event_id=EventId("E"), now=NOON + 10 * MINUTE)
    done = complete(sudden, outcome=Outcome.SUCCEEDED, now=NOON + 20 * MINUTE)

    assert pieces(drawn(done, NOON)) == [("impact", 10, 10)]
    assert (drawn(done, NOON).tone, marks(drawn(done, NOON))) == ("done", [])


def test_event_is_cut_to_the_frame(event: ScheduledEvent) -> None:
    early = replace(event, created_at=NOON - 60 * MINUTE, not_before=NOON + 500 * MINUTE)
    ended = cancel(event, now=NOON + 12 * MINUTE)
    later = Frame(since=NOON + 60 * MINUTE, until=NOON + 90 * MINUTE)

    assert pieces(drawn(early, NOON)) == [("notice", 0, 100)]
    assert draw_event(ended, later, NOON, None) is None


def test_foreseen_step_is_drawn_as_it_is_likely() -> None:
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("m"), event_type=EventType.REBOOT, started_at=NOON
    )
    likely = Stretch(
        ready=NOON,
        opens=NOON,
        begins=NOON + 10 * MINUTE,
        starts=NOON + 25 * MINUTE,
        ends=NOON + 35 * MINUTE,
    )
    step = ForeseenStep(maintenance=maintenance, step=Step(shares=(SHARE,)), likely=likely)
    empty = Step(host=HostName("kvm-1"), shares=())

    bar = draw_step(step, FRAME, "m/web/0")
    assert bar is not None
    assert pieces(bar) == [("forecast-notice", 10, 15), ("forecast", 25, 10)]
    host = draw_step(replace(step, step=empty), FRAME, "m/kvm-1")
    assert host is not None
    assert host.caption == "Reboot kvm-1"
    before = Frame(since=NOON - 60 * MINUTE, until=NOON - 30 * MINUTE)
    assert draw_step(step, before, "m/web/0") is None


def bar_at(number: int, at: float, width: float, caption: str = "") -> Bar:
    piece = Piece(kind="impact", at=at, width=width)
    return Bar(key=f"{number:03}", tone="done", caption=caption, moment=NOON, pieces=(piece,))


def test_bars_that_overlap_get_lanes_of_their_own() -> None:
    packed = pack([bar_at(1, 0, 10), bar_at(2, 5, 10), bar_at(3, 12, 5)])

    assert [(bar.key, bar.lane) for bar in packed.bars] == [("001", 0), ("002", 1), ("003", 0)]
    assert (packed.lanes, packed.has_captions, packed.hidden) == (2, True, 0)


def test_captions_take_room() -> None:
    near = [bar_at(1, 0, 2, "Reboot web-0"), bar_at(2, 5, 2, "Reboot web-1")]
    edge = [bar_at(1, 80, 2, ""), bar_at(2, 98, 2, "x" * 26)]

    assert [bar.lane for bar in pack(near).bars] == [0, 1]
    assert [bar.lane for bar in pack(edge).bars] == [0, 1], "it stands to the left of its bar"


def test_captions_are_dropped_where_they_take_too_many_lanes() -> None:
    packed = pack(bar_at(number, 3 * number, 2, "x" * 26) for number in range(20))

    assert (packed.lanes, packed.has_captions, packed.hidden) == (1, False, 0)


def test_bars_that_do_not_fit_in_are_counted() -> None:
    packed = pack(bar_at(number, 0, 50) for number in range(11))

    assert (len(packed.bars), packed.lanes, packed.hidden) == (8, 8, 3)
    assert pack([]).lanes == 1


def test_calendar_has_its_windows_and_blackouts() -> None:
    windows = (read_window("daily 12:10-12:20 UTC"),)
    blackouts = (read_blackout("2026-03-02 UTC Fair"), read_blackout("2026-04-02"))

    window, *others = draw_calendar(Calendar(windows=windows), FRAME)
    assert (window.kind, window.at, window.width) == ("window", 10, 10)
    assert window.title == "Window: daily 12:10-12:20 UTC"
    assert others == []
    (dark,) = draw_calendar(Calendar(blackouts=blackouts), FRAME)
    assert (dark.kind, dark.at, dark.width) == ("blackout", 0, 100)


def test_long_caption_is_cut() -> None:
    assert shorten("x" * 26) == "x" * 26
    assert shorten("x" * 27) == "x" * 25 + "…"
