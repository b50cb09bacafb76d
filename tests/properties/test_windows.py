"""An opening is what somebody who looks at the clock on the wall every minute would find."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from forewarn.domain.windows import (
    Blackout,
    Calendar,
    Window,
    closes_at,
    describe,
    longest_opening,
    next_opening,
    read_blackout,
    read_window,
)

MINUTE = timedelta(minutes=1)
LOOKED_AT = timedelta(days=4)

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Kiritimati",
]
# Around days on which the clock of one of these zones is set, or on which a year or February ends.
STRANGE_DAYS = [
    date(2011, 12, 30),
    date(2006, 10, 29),
    date(2018, 2, 17),
    date(2018, 11, 4),
    date(2026, 3, 8),
    date(2026, 3, 29),
    date(2026, 4, 4),
    date(2026, 10, 3),
    date(2026, 10, 25),
    date(2026, 12, 31),
    date(2028, 2, 29),
]
DATES = st.builds(
    lambda day, more: day + timedelta(days=more), st.sampled_from(STRANGE_DAYS), st.integers(-2, 2)
)
CLOCKS = st.builds(time, st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 59]))
WINDOWS = st.builds(
    Window,
    days=st.frozensets(st.integers(0, 6), min_size=1),
    opens=CLOCKS,
    closes=CLOCKS,
    zone=st.sampled_from(ZONES),
)
BLACKOUTS = st.builds(
    lambda first, more, zone: Blackout(first=first, last=first + timedelta(days=more), zone=zone),
    DATES,
    st.integers(0, 2),
    st.sampled_from(ZONES),
)
CALENDARS = st.builds(
    Calendar,
    windows=st.lists(WINDOWS, max_size=3).map(tuple),
    blackouts=st.lists(BLACKOUTS, max_size=2).map(tuple),
)
MOMENTS = st.builds(
    lambda day, minute: datetime.combine(day, time(), UTC) + minute * MINUTE,
    DATES,
    st.integers(0, 24 * 60 - 1),
)
LASTING = st.integers(1, 26 * 60).map(lambda minutes: minutes * MINUTE)


@settings(deadline=None, max_examples=150)
@given(calendar=CALENDARS, earliest=MOMENTS, lasting=LASTING)
@example(
    calendar=Calendar(
        windows=(Window(days=frozenset({6}), opens=time(1), closes=time(2, 30), zone=ZONES[1]),)
    ),
    earliest=datetime(2026, 10, 25, 0, 10, tzinfo=UTC),
    lasting=30 * MINUTE,
)
def test_next_opening_is_the_first_minute_from_which_all_minutes_are_open(
    calendar: Calendar, earliest: datetime, lasting: timedelta
) -> None:
    minutes = int((LOOKED_AT + lasting) / MINUTE)
    is_free = [shows_open(calendar, earliest + n * MINUTE) for n in range(minutes)]
    needed = int(lasting / MINUTE)
    expected = first_run(is_free, needed)

    found = next_opening(calendar, earliest, lasting)

    if expected is not None:
        assert found == earliest + expected * MINUTE
    elif found is not None:
        assert found > earliest + (minutes - needed) * MINUTE
        assert all(shows_open(calendar, found + n * MINUTE) for n in range(needed))


@settings(deadline=None)
@given(calendar=CALENDARS, earliest=MOMENTS, lasting=LASTING)
def test_it_fits_somewhere_exactly_if_it_fits_in_the_longest_opening(
    calendar: Calendar, earliest: datetime, lasting: timedelta
) -> None:
    fits = next_opening(calendar, earliest, lasting) is not None

    assert fits == (lasting <= longest_opening(calendar, earliest))


@settings(deadline=None)
@given(calendar=CALENDARS, at=MOMENTS)
def test_it_is_open_until_it_closes(calendar: Calendar, at: datetime) -> None:
    closes = closes_at(calendar, at)

    assert (closes != at) == shows_open(calendar, at)
    if closes is not None:
        assert not shows_open(calendar, closes) or closes == at
        minutes = min(int((closes - at) / MINUTE), 3000)
        assert all(shows_open(calendar, at + n * MINUTE) for n in range(minutes))


@given(WINDOWS)
def test_window_that_is_described_is_read_back(window: Window) -> None:
    assert read_window(describe(window)) == window


@given(BLACKOUTS)
def test_blackout_that_is_described_is_read_back(blackout: Blackout) -> None:
    assert read_blackout(describe(blackout)) == blackout


def shows_open(calendar: Calendar, moment: datetime) -> bool:
    """The definition: what the clocks on the walls show at *moment*."""
    is_inside = not calendar.windows or any(_is_inside(it, moment) for it in calendar.windows)
    return is_inside and not any(_is_dark(it, moment) for it in calendar.blackouts)


def first_run(is_free: list[bool], needed: int) -> int | None:
    run = 0
    for minute, free in enumerate(is_free):
        run = run + 1 if free else 0
        if run == needed:
            return minute - needed + 1
    return None


def _is_inside(window: Window, moment: datetime) -> bool:
    wall = moment.astimezone(ZoneInfo(window.zone))
    clock, today, yesterday = wall.time(), wall.weekday(), (wall.weekday() - 1) % 7
    if window.opens < window.closes:
        return today in window.days and window.opens <= clock < window.closes
    since_opening = today in window.days and clock >= window.opens
    return since_opening or (yesterday in window.days and clock < window.closes)


def _is_dark(blackout: Blackout, moment: datetime) -> bool:
    today = moment.astimezone(ZoneInfo(blackout.zone)).date()
    return blackout.first <= today <= blackout.last
