"""Occurrences come in order, on the days another library names, when the wall clock says so."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, MO, MONTHLY, WEEKLY, rrule, weekday
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_windows import DATES, MOMENTS, WINDOWS, ZONES

from forewarn.domain.recurrence import (
    EVERY_DAY,
    PLACES,
    Period,
    Recurrence,
    Timetable,
    describe_recurrence,
    openings,
    read_recurrence,
)
from forewarn.domain.windows import Calendar, Window

MINUTE = timedelta(minutes=1)
WEEKDAYS = st.frozensets(st.integers(0, 6), min_size=1)
SOME_DAYS = st.one_of(
    st.builds(Recurrence, weekdays=WEEKDAYS),
    st.builds(Recurrence, weekdays=WEEKDAYS, place=st.sampled_from([*PLACES.values()])),
    st.builds(Recurrence, place=st.integers(1, 31)),
)
PERIODS = st.one_of(
    st.builds(Recurrence, period=st.just(Period.WEEK), step=st.integers(1, 52)),
    st.builds(Recurrence, period=st.just(Period.MONTH), step=st.integers(1, 12)),
)


def days_by_dateutil(recurrence: Recurrence, first: date, until: datetime) -> list[date]:
    """Return the days that an implementation of RFC 5545 picks."""
    begin = datetime.combine(first, time())
    if recurrence.place is None:
        days = rrule(DAILY, byweekday=sorted(recurrence.weekdays), dtstart=begin, until=until)
    elif recurrence.weekdays == EVERY_DAY:
        days = rrule(MONTHLY, bymonthday=recurrence.place, dtstart=begin, until=until)
    else:
        among = [weekday(number) for number in sorted(recurrence.weekdays)]
        days = rrule(
            MONTHLY, byweekday=among, bysetpos=recurrence.place, dtstart=begin, until=until
        )
    return [found.date() for found in days]


@given(st.one_of(SOME_DAYS, PERIODS))
def test_recurrence_is_read_as_it_is_said(recurrence: Recurrence) -> None:
    assert read_recurrence(describe_recurrence(recurrence)) == recurrence


@settings(deadline=None)
@given(SOME_DAYS, DATES, st.sampled_from(ZONES))
def test_days_are_those_of_another_library(recurrence: Recurrence, first: date, zone: str) -> None:
    window = Window(days=EVERY_DAY, opens=time(12), closes=time(13), zone=zone)
    until = datetime.combine(first, time()) + timedelta(days=200)
    made = Timetable(
        recurrence=recurrence,
        first=first,
        last=until.date(),
        calendar=Calendar(windows=(window,)),
    )

    found = [opening.day for opening in openings(made, datetime(2000, 1, 1, tzinfo=UTC))]

    gone = date(2011, 12, 30) if zone == "Pacific/Apia" else None  # no such day there
    assert found == [day for day in days_by_dateutil(recurrence, first, until) if day != gone]


@settings(deadline=None)
@given(PERIODS, DATES)
def test_every_period_that_counts_has_one(recurrence: Recurrence, first: date) -> None:
    window = Window(days=EVERY_DAY, opens=time(12), closes=time(13), zone="UTC")
    made = Timetable(
        recurrence=recurrence, first=first, last=None, calendar=Calendar(windows=(window,))
    )
    begin = datetime.combine(first, time())
    later = (
        rrule(WEEKLY, interval=recurrence.step, dtstart=begin, byweekday=MO)
        if recurrence.period is Period.WEEK
        else rrule(MONTHLY, interval=recurrence.step, dtstart=begin, bymonthday=1)
    )

    found = [each.day for each in islice(openings(made, datetime(2000, 1, 1, tzinfo=UTC)), 4)]

    expected = [first, *(each.date() for each in islice(later, 5) if each.date() > first)]
    assert found == expected[:4]


@settings(deadline=None)
@given(
    st.one_of(SOME_DAYS, PERIODS),
    st.lists(WINDOWS, min_size=1, max_size=3),
    st.sampled_from(ZONES),
    DATES,
    MOMENTS,
)
def test_openings_come_in_order_each_when_the_clock_on_the_wall_says_so(
    recurrence: Recurrence, windows: list[Window], zone: str, first: date, after: datetime
) -> None:
    in_zone = tuple(
        Window(days=each.days, opens=each.opens, closes=each.closes, zone=zone) for each in windows
    )
    made = Timetable(
        recurrence=recurrence, first=first, last=None, calendar=Calendar(windows=in_zone)
    )

    found = list(islice(openings(made, after), 6))

    assert all(earlier.opens_at < later.opens_at for earlier, later in pairwise(found))
    for opening in found:
        assert opening.opens_at > after
        assert opening.day >= first
        assert opening.opens_at < opening.closes_at
        begins = [window for window in in_zone if opening.day.weekday() in window.days]
        inside = [window for window in begins if _shows(window, opening.day, opening.opens_at)]
        assert inside
        assert not any(_shows(each, opening.day, opening.opens_at - MINUTE) for each in inside)


def _shows(window: Window, day: date, moment: datetime) -> bool:
    """Tell whether the wall clock shows a time of the window that begins on *day*."""
    shown = moment.astimezone(ZoneInfo(window.zone)).replace(tzinfo=None)
    opens, closes = datetime.combine(day, window.opens), datetime.combine(day, window.closes)
    return opens <= shown < (closes if opens < closes else closes + timedelta(days=1))
