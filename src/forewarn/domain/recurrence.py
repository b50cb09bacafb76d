"""How often a schedule comes round, and when its windows open.

A recurrence picks days. On each day that it picks, the first window that begins then makes one
occurrence. The clock on the wall in the zone of the windows says which day it is and when they
open, so an occurrence keeps its hour over a change to summer time and back.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from forewarn.domain.errors import CalendarError, says
from forewarn.domain.windows import (
    DAYS,
    Blackout,
    Calendar,
    blackout_at,
    describe_days,
    hours_on,
    read_days,
)

EVERY_DAY: Final = frozenset(range(7))
PLACES: Final = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}
MOST_WEEKS: Final = 52
MOST_MONTHS: Final = 12


@says(
    "{text!r} is not a valid recurrence: {problem}. Use day, week, 2 weeks, month, "
    "3 months, Tue, Mon-Fri, first Tue, last Sun, day 15 or last day."
)
class RecurrenceError(CalendarError):
    """A recurrence that cannot be as it is written."""

    text: str
    problem: str


class Period(StrEnum):
    """What has one occurrence at most."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Which days are picked: the first one on which a window opens, in every *step*-th *period*.

    Periods are counted from the first day of the schedule. A period of one day may be limited to
    some *weekdays*, and of these to the one that has a *place* in its month: 1 is the first, -1 the
    last.
    """

    period: Period = Period.DAY
    step: int = 1
    weekdays: frozenset[int] = EVERY_DAY
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The window of one occurrence, on *day*; *blackout* is what keeps that free, if anything."""

    day: date
    opens_at: datetime
    closes_at: datetime
    blackout: Blackout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """When it recurs, from *first* day to *last*, in which windows and outside which blackouts.

    There is a window at least, and all are in one time zone.
    """

    recurrence: Recurrence
    first: date
    last: date | None
    calendar: Calendar

    @property
    def zone(self) -> str:
        """The zone in which days are counted."""
        return self.calendar.windows[0].zone


def read_recurrence(text: str) -> Recurrence:
    """Return the recurrence that *text* names, such as `first Tue` or `2 weeks`."""
    words = " ".join(text.split())
    for form, read in _FORMS:
        match = form.fullmatch(words)
        if match is not None:
            try:
                return read(match)
            except ValueError as error:
                raise RecurrenceError(text, str(error)) from None
    raise RecurrenceError(text, _find_flaw(words))


def _find_flaw(words: str) -> str:
    """Say which word keeps *words* from being a recurrence."""
    if not words:
        return "it is empty"
    first, _, rest = words.partition(" ")
    if first.lower() == "day":
        return f"{rest!r} is not a number from 1 to 31"
    if first.isdigit():
        return f"{rest!r} is not one of weeks, months"
    if first.lower() in PLACES:
        return f"{rest!r} is not one of {', '.join(('day', *DAYS))}"
    return f"{first!r} is not one of {', '.join(PLACES)}"


def describe_recurrence(recurrence: Recurrence) -> str:
    """Return *recurrence* as it would be typed."""
    if recurrence.step > 1:
        return f"{recurrence.step} {recurrence.period}s"
    if recurrence.place is None:
        is_limited = recurrence.weekdays != EVERY_DAY
        return describe_days(recurrence.weekdays) if is_limited else recurrence.period.value
    if recurrence.weekdays == EVERY_DAY:
        return "last day" if recurrence.place < 0 else f"day {recurrence.place}"
    place = next(word for word, place in PLACES.items() if place == recurrence.place)
    return f"{place} {describe_days(recurrence.weekdays)}"


def openings(timetable: Timetable, after: datetime) -> Iterator[Opening]:
    """Yield each opening later than *after*, in order, until none is left."""
    opening = next_opening_after(timetable, after)
    while opening is not None:
        yield opening
        opening = next_opening_after(timetable, opening.opens_at)


# The same question is asked at every look until the answer has come.
@lru_cache(maxsize=1024)
def next_opening_after(timetable: Timetable, after: datetime) -> Opening | None:
    """Return the first opening later than *after*; None if none is left."""
    wall = ZoneInfo(timetable.zone)
    # A window may open on the day before, by the clock of another zone or of one set back.
    begin = max(timetable.first, _period_begins(timetable, after.astimezone(wall).date() - _DAY))
    end = min(filter(None, (timetable.last, begin + _HORIZON)))
    done: int | None = None
    for day in (begin + more * _DAY for more in range((end - begin).days + 1)):
        number = _period_number(timetable, day)
        if number is None or number == done:
            continue
        opening = _opening_on(timetable, day)
        if opening is not None:
            done = number
            if opening.opens_at > after:
                return opening
    return None


_DAY: Final = timedelta(days=1)
_HORIZON: Final = timedelta(days=366 * 9)
"""How far ahead an opening is looked for: a 29th of February comes every eight years at least."""


def _opening_on(timetable: Timetable, day: date) -> Opening | None:
    hours = [found for window in timetable.calendar.windows if (found := hours_on(window, day))]
    if not hours:
        return None
    opens_at, closes_at = min(hours)
    blackout = blackout_at(timetable.calendar.blackouts, opens_at)
    return Opening(day=day, opens_at=opens_at, closes_at=closes_at, blackout=blackout)


def _period_begins(timetable: Timetable, day: date) -> date:
    match timetable.recurrence.period:
        case Period.WEEK:
            return day - day.weekday() * _DAY
        case Period.MONTH:
            return day.replace(day=1)
        case _:
            return day


def _period_number(timetable: Timetable, day: date) -> int | None:
    """Return the number of the period *day* is in; None if it is in none that is picked."""
    recurrence = timetable.recurrence
    count = _COUNT[recurrence.period]
    number = count(day) - count(timetable.first)
    is_picked = number % recurrence.step == 0 and _is_picked(recurrence, day)
    return number if is_picked else None


def _is_picked(recurrence: Recurrence, day: date) -> bool:
    if day.weekday() not in recurrence.weekdays:
        return False
    if recurrence.place is None:
        return True
    month = (day.replace(day=number) for number in range(1, monthrange(day.year, day.month)[1] + 1))
    days = [each for each in month if each.weekday() in recurrence.weekdays]
    place = recurrence.place if recurrence.place < 0 else recurrence.place - 1
    return place < len(days) and days[place] == day


_COUNT: Final[dict[Period, Callable[[date], int]]] = {
    Period.DAY: date.toordinal,
    Period.WEEK: lambda day: (day.toordinal() - 1) // 7,  # the first day there is was a Monday
    Period.MONTH: lambda day: day.year * 12 + day.month,
}


def _read_several(match: re.Match[str]) -> Recurrence:
    period = Period(match["period"].lower().removesuffix("s"))
    step, most = int(match["step"]), {Period.WEEK: MOST_WEEKS, Period.MONTH: MOST_MONTHS}[period]
    if not 1 <= step <= most:
        raise ValueError(f"the number of {period}s must be from 1 to {most}")
    return Recurrence(period=period, step=step)


def _read_day_of_month(match: re.Match[str]) -> Recurrence:
    place = int(match["place"])
    if not 1 <= place <= 31:
        raise ValueError("the day of a month must be from 1 to 31")
    return Recurrence(place=place)


def _read_place(match: re.Match[str]) -> Recurrence:
    place, days = PLACES[match["place"].lower()], match["days"]
    if days.lower() == "day":
        return Recurrence(place=place)
    return Recurrence(weekdays=read_days(days), place=place)


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Recurrence]], ...]] = tuple(
    (re.compile(form, re.IGNORECASE), read)
    for form, read in (
        ("(?P<period>day|week|month)", lambda match: Recurrence(period=Period(match[0].lower()))),
        (r"(?P<step>[0-9]{1,3}) (?P<period>weeks?|months?)", _read_several),
        (r"day (?P<place>[0-9]{1,3})", _read_day_of_month),
        (rf"(?P<place>{'|'.join(PLACES)}) (?P<days>\S+)", _read_place),
        (r"(?P<days>\S+)", lambda match: Recurrence(weekdays=read_days(match[0]))),
    )
)
"""The forms of a recurrence, and how each is read."""
