"""Holidays from a calendar file (RFC 5545): each event is a blackout.

Blackouts are whole days, so an event with hours keeps every day free that it touches. Events that
come back every year are written out for the next five.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import MAXYEAR, date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from icalendar import Calendar, Event
from icalendar.prop import vRecur

from forewarn.domain.errors import CalendarError, InvalidError, says
from forewarn.domain.windows import Blackout, check_zone, make_blackout

# The parser is slow, and its thread is one of those that answer operators. The calendars of public
# holidays that people publish, ten years of a country, are far below all three.
LARGEST_FILE: Final = 1_000_000
MOST_LINES: Final = 40_000
MOST_HOLIDAYS: Final = 2_000
YEARS_AHEAD: Final = 5
MOST_EFFORT: Final = 20_000
"""How many values of rules are compared with the days of a year, over all of a file: seconds."""

_DAY: Final = timedelta(days=1)
_HORIZON: Final = timedelta(days=366 * YEARS_AHEAD)
_LONGEST_NAME: Final = 100


@says("Cannot read holidays: {problem}. Use an iCalendar file (.ics).")
class HolidaysError(InvalidError):
    """A file that no holidays can be read from."""

    problem: str


def read_holidays(text: str, *, zone: str, today: date) -> tuple[Blackout, ...]:
    """Return the holidays in *text* that are not over *today*, as days in *zone*, or refuse."""
    _check_size(text)
    wall = ZoneInfo(check_zone(zone))
    try:
        calendar = Calendar.from_ical(text)
        if not isinstance(calendar, Calendar):
            raise HolidaysError("it does not begin with BEGIN:VCALENDAR")
        found = list(islice(_all(calendar, _Reading(wall, today)), MOST_HOLIDAYS + 1))
    except CalendarError as error:
        raise HolidaysError(str(error).split(". ")[0]) from None
    except (ValueError, OverflowError) as error:
        raise HolidaysError(_in_short(str(error))) from None
    if len(found) > MOST_HOLIDAYS:
        raise HolidaysError(f"there are more than {MOST_HOLIDAYS:,}")
    if not found:
        raise HolidaysError(f"it has no date on or after {today}")
    return tuple(sorted(set(found), key=lambda it: (it.first, it.last, it.name)))


def _check_size(text: str) -> None:
    """Refuse what would take long to parse."""
    if len(text) > LARGEST_FILE:
        raise HolidaysError(f"the file has more than {LARGEST_FILE:,} characters")
    if text.count("\n") > MOST_LINES:
        raise HolidaysError(f"the file has more than {MOST_LINES:,} lines")
    if text.upper().count("BEGIN:VEVENT") > MOST_HOLIDAYS:
        raise HolidaysError(f"there are more than {MOST_HOLIDAYS:,}")


class _Reading:
    """Where and when a file is read, and what may still be spent on following its rules."""

    def __init__(self, wall: ZoneInfo, today: date) -> None:
        self.wall = wall
        self.today = today
        self.horizon = today + _HORIZON
        self._effort = MOST_EFFORT

    def spend(self, effort: int) -> None:
        self._effort -= effort
        if self._effort < 0:
            raise ValueError(
                "its recurrence rules take too long to evaluate; use fewer rules, or later "
                "start dates"
            )


def _all(calendar: Calendar, reading: _Reading) -> Iterator[Blackout]:
    for event in calendar.events:
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        name = _in_short(str(event.get("SUMMARY", "")))
        first, last = _days(event, reading.wall)
        length = last - first
        for begin in _occurrences(event, first, reading.today - length, reading):
            if begin + length >= reading.today:
                yield make_blackout(begin, begin + length, reading.wall.key, name)


def _days(event: Event, wall: ZoneInfo) -> tuple[date, date]:
    """Return the first and the last day that *event* touches."""
    first = _day(event.start, wall)
    end = event.end
    # One that ends at midnight does not touch the day that begins then.
    before_end = end - (timedelta(microseconds=1) if isinstance(end, datetime) else _DAY)
    return first, max(first, _day(before_end, wall))


def _day(moment: date, wall: ZoneInfo) -> date:
    if not isinstance(moment, datetime):
        return moment
    # A time without a zone is one of wherever the reader is.
    return moment.date() if moment.tzinfo is None else moment.astimezone(wall).date()


def _occurrences(event: Event, first: date, since: date, reading: _Reading) -> Iterator[date]:
    """Return when *event* begins. Its rules may leave out what is before *since*."""
    left_out = {_day(day, reading.wall) for day in event.exdates}
    days = {first, *(_day(day, reading.wall) for day, _ in event.rdates)}
    yield from sorted(days - left_out)
    known = days | left_out
    for rule in event.rrules:
        yield from (day for day in _come_back(rule, first, since, reading) if day not in known)


def _come_back(rule: vRecur, first: date, since: date, reading: _Reading) -> Iterator[date]:
    frequency = "".join(rule.get("FREQ", [])).upper()
    if frequency != "YEARLY":
        raise ValueError(f"an event recurs {frequency or 'irregularly'}; holidays must be YEARLY")
    interval = min(rule.get("INTERVAL", [1]))
    if interval < 1:
        raise ValueError(f"an event recurs every {interval} years (INTERVAL); the minimum is 1")
    count: int | None = max(0, min(rule["COUNT"])) if "COUNT" in rule else None
    until = min([_day(day, reading.wall) for day in rule.get("UNTIL", [])], default=date.max)
    last = min(until, reading.horizon)
    # Those that are counted have to be counted from the first one on.
    begin = since.year if count is None else first.year
    years = (year for year in range(first.year, last.year + 1, interval) if year >= begin)
    days = (day for year in years for day in _in_year(year, _parts(rule, first), first, reading))
    yield from takewhile(lambda day: day <= last, islice(days, count))


def _in_year(
    year: int, parts: Mapping[str, Sequence[object]], first: date, reading: _Reading
) -> Iterator[date]:
    reading.spend(sum(map(len, parts.values())))
    text = ";".join(f"{key}={','.join(map(str, values))}" for key, values in parts.items())
    begin = max(first, date(year, 1, 1))
    return (moment.date() for moment in rrulestr(text, dtstart=datetime.combine(begin, time())))


def _parts(rule: vRecur, first: date) -> Mapping[str, Sequence[object]]:
    """Return what *rule* says about the days of a year, as a rule for a single year.

    One for all years would be searched to the year 9999 for a day that never comes.
    """
    parts = {key: values for key, values in rule.items() if key not in _NOT_ABOUT_DAYS}
    if not parts.keys() & _CHOOSING_DAYS:
        parts = {"BYMONTH": [first.month], **parts, "BYMONTHDAY": [first.day]}
    return {"FREQ": ["YEARLY"], "INTERVAL": [MAXYEAR], **parts}


_NOT_ABOUT_DAYS: Final = {
    *("FREQ", "INTERVAL", "COUNT", "UNTIL"),
    *("BYHOUR", "BYMINUTE", "BYSECOND"),
}
_CHOOSING_DAYS: Final = {"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY", "BYEASTER"}


def _in_short(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    return " ".join(words)[:_LONGEST_NAME].rstrip(" .")
