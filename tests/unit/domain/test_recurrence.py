from datetime import UTC, date, datetime
from itertools import islice

import pytest

from forewarn.domain.recurrence import (
    Recurrence,
    RecurrenceError,
    Timetable,
    describe_recurrence,
    next_opening_after,
    openings,
    read_recurrence,
)
from forewarn.domain.windows import Calendar, read_blackout, read_window

NOVEMBER_16 = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
TODAY = NOVEMBER_16.date()


def timetable(
    every: str,
    *windows: str,
    first: date = TODAY,
    last: date | None = None,
    blackouts: tuple[str, ...] = (),
) -> Timetable:
    calendar = Calendar(
        windows=tuple(map(read_window, windows or ("daily 22:00-04:00 Europe/Berlin",))),
        blackouts=tuple(map(read_blackout, blackouts)),
    )
    return Timetable(recurrence=read_recurrence(every), first=first, last=last, calendar=calendar)


def days(made: Timetable, after: datetime = NOVEMBER_16, limit: int = 3) -> list[str]:
    return [f"{opening.day:%y-%m-%d}" for opening in islice(openings(made, after), limit)]


@pytest.mark.parametrize(
    ("every", "found"),
    [
        ("day", ["26-11-16", "26-11-17", "26-11-18"]),
        ("Tue", ["26-11-17", "26-11-24", "26-12-01"]),
        ("Tue,Sat", ["26-11-17", "26-11-21", "26-11-24"]),
        ("Fri-Mon", ["26-11-16", "26-11-20", "26-11-21"]),
        ("week", ["26-11-16", "26-11-23", "26-11-30"]),
        ("2 weeks", ["26-11-16", "26-11-30", "26-12-14"]),
        ("month", ["26-11-16", "26-12-01", "27-01-01"]),
        ("3 months", ["26-11-16", "27-02-01", "27-05-01"]),
        ("first Tue", ["26-12-01", "27-01-05", "27-02-02"]),
        ("third Mon", ["26-11-16", "26-12-21", "27-01-18"]),
        ("fifth Fri", ["27-01-29", "27-04-30", "27-07-30"]),
        ("last Sun", ["26-11-29", "26-12-27", "27-01-31"]),
        ("last Mon-Fri", ["26-11-30", "26-12-31", "27-01-29"]),
        ("day 15", ["26-12-15", "27-01-15", "27-02-15"]),
        ("day 31", ["26-12-31", "27-01-31", "27-03-31"]),
        ("last day", ["26-11-30", "26-12-31", "27-01-31"]),
    ],
)
def test_recurrence_picks_days(every: str, found: list[str]) -> None:
    assert days(timetable(every)) == found


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("  FIRST   tue ", "first Tue"),
        ("1 week", "week"),
        ("1 month", "month"),
        ("2 Week", "2 weeks"),
        ("second day", "day 2"),
        ("Mon-Sun", "day"),
        ("tue,mon,wed", "Mon-Wed"),
        ("Last Day", "last day"),
        ("day 07", "day 7"),
    ],
)
def test_recurrence_is_said_in_one_way(typed: str, said: str) -> None:
    assert describe_recurrence(read_recurrence(typed)) == said
    assert read_recurrence(said) == read_recurrence(typed)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("fist Tue", "'fist' is not one of first, second, third, fourth, fifth, last"),
        ("first Tue of May", "'Tue of May' is not one of day, Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
        ("2 days", "'days' is not one of weeks, months"),
        ("day x", "'x' is not a number from 1 to 31"),
        ("Tux", "'Tux' is not one of Mon, Tue"),
        ("last Tue-Foo", "'Foo' is not one of Mon, Tue"),
        ("0 weeks", "the number of weeks must be from 1 to 52"),
        ("53 weeks", "from 1 to 52"),
        ("13 months", "the number of months must be from 1 to 12"),
        ("day 0", "the day of a month must be from 1 to 31"),
        ("day 32", "the day of a month must be from 1 to 31"),
    ],
)
def test_what_is_no_recurrence_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RecurrenceError) as refused:
        read_recurrence(text)

    assert problem in str(refused.value)
    assert "first Tue, last Sun, day 15" in str(refused.value)
    assert refused.value.text == text


def test_only_days_count_on_which_a_window_opens() -> None:
    weekends = "Sat,Sun 22:00-06:00 UTC"

    assert days(timetable("week", weekends)) == ["26-11-21", "26-11-28", "26-12-05"]
    assert days(timetable("day", weekends)) == ["26-11-21", "26-11-22", "26-11-28"]
    assert days(timetable("day 13", "Fri 22:00-06:00 UTC")) == ["27-08-13", "28-10-13", "29-04-13"]
    assert days(timetable("first Tue", weekends)) == []


def test_first_window_of_a_day_is_the_one() -> None:
    made = timetable("day", "daily 20:00-21:00 UTC", "daily 02:00-03:00 UTC")

    found = next(openings(made, NOVEMBER_16))

    assert found.opens_at == datetime(2026, 11, 17, 2, tzinfo=UTC)
    assert found.closes_at == datetime(2026, 11, 17, 3, tzinfo=UTC)


def test_weeks_are_counted_from_the_week_of_the_first_day() -> None:
    friday = date(2026, 11, 13)

    assert days(timetable("2 weeks", first=friday)) == ["26-11-23", "26-12-07", "26-12-21"]


def test_nothing_comes_before_the_first_day_nor_after_the_last() -> None:
    made = timetable("Tue", first=date(2026, 12, 2), last=date(2026, 12, 15))

    assert days(made) == ["26-12-08", "26-12-15"]
    assert days(timetable("day", last=date(2026, 11, 15))) == []


def test_opening_at_that_very_moment_is_not_later() -> None:
    opens = datetime(2026, 11, 16, 21, tzinfo=UTC)

    assert days(timetable("Mon"), opens, 1) == ["26-11-23"]
    assert next_opening_after(timetable("week"), opens) == next(openings(timetable("Mon"), opens))


def test_opening_keeps_its_hour_over_summer_time() -> None:
    made = timetable("fourth Sat", first=date(2026, 9, 1))

    found = list(islice(openings(made, datetime(2026, 9, 1, tzinfo=UTC)), 3))

    assert [opening.opens_at.hour for opening in found] == [20, 20, 21]
    assert [(each.closes_at - each.opens_at).seconds // 3600 for each in found] == [6, 7, 6]


@pytest.mark.parametrize(
    ("window", "found"),
    [
        ("Sun 02:30-04:00 Europe/Berlin", "26-03-29 01:00"),
        ("Sun 02:00-03:00 Europe/Berlin", "26-04-05 00:00"),  # all of it is left out on the 29th
    ],
)
def test_window_in_the_hour_that_is_left_out(window: str, found: str) -> None:
    made = timetable("Sun", window, first=date(2026, 3, 23))

    opening = next(openings(made, datetime(2026, 3, 23, tzinfo=UTC)))

    assert f"{opening.opens_at:%y-%m-%d %H:%M}" == found


def test_window_that_comes_twice_opens_once() -> None:
    made = timetable("Sun", "Sun 02:15-02:45 Europe/Berlin", first=date(2026, 10, 19))

    found = list(islice(openings(made, datetime(2026, 10, 19, tzinfo=UTC)), 2))

    assert [f"{opening.opens_at:%m-%d %H:%M}" for opening in found] == [
        "10-25 00:15",
        "11-01 01:15",
    ]


def test_opening_says_which_blackout_it_is_in() -> None:
    made = timetable("Thu", blackouts=("2026-11-20 UTC", "2026-11-26 America/New_York Thanks"))

    found = list(islice(openings(made, NOVEMBER_16), 2))

    assert [each.blackout.name if each.blackout else None for each in found] == [None, "Thanks"]


def test_recurrence_is_every_day_unless_said() -> None:
    assert Recurrence() == read_recurrence("day")
