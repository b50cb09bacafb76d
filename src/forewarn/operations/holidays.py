"""Holidays from a calendar file (RFC 5545): each event is a blackout.

Blackouts are whole days, so an event with hours keeps every day free that it touches. Events that
come back every year are written out for the next five.
"""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from icalendar import Calendar, Event
from icalendar.prop import vRecur

from forewarn.domain.errors import CalendarError
from forewarn.domain.windows import Blackout, check_zone, make_blackout
from forewarn.protocol.errors import ForewarnError

LARGEST_FILE: Final = 1_000_000
MOST_HOLIDAYS: Final = 2_000
YEARS_AHEAD: Final = 5

_DAY: Final = timedelta(days=1)
_HORIZON: Final = timedelta(days=366 * YEARS_AHEAD)
_LONGEST_NAME: Final = 100


class HolidaysError(ForewarnError):
    """A file that no holidays can be read from."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"No holidays can be read: {problem}. Give an iCalendar file, as calendars export it "
            "(.ics)."
        )


def read_holidays(text: str, *, zone: str, today: date) -> tuple[Blackout, ...]:
    """Return the holidays in *text* that are not over *today*, as days in *zone*, or refuse."""
    if len(text) > LARGEST_FILE:
        raise HolidaysError(f"the file has more than {LARGEST_FILE:,} characters")
    wall = ZoneInfo(check_zone(zone))
    try:
        calendar = Calendar.from_ical(text)
        if not isinstance(calendar, Calendar):
            raise HolidaysError("it does not begin with BEGIN:VCALENDAR")
        if len(calendar.events) > MOST_HOLIDAYS:
            raise HolidaysError(f"there are more than {MOST_HOLIDAYS:,}")
        found = list(islice(_all(calendar, wall, today), MOST_HOLIDAYS + 1))
    except CalendarError as error:
        raise HolidaysError(str(error).split(". ")[0]) from None
    except (ValueError, OverflowError) as error:
        raise HolidaysError(_in_short(str(error))) from None
    if len(found) > MOST_HOLIDAYS:
        raise HolidaysError(f"there are more than {MOST_HOLIDAYS:,}")
    if not found:
        raise HolidaysError(f"nothing in it is on or after {today}")
    return tuple(sorted(set(found), key=lambda it: (it.first, it.last, it.name)))


def _all(calendar: Calendar, wall: ZoneInfo, today: date) -> Iterator[Blackout]:
    for event in calendar.events:
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        name = _in_short(str(event.get("SUMMARY", "")))
        first, last = _days(event, wall)
        for begin in _occurrences(event, first, today):
            if begin + (last - first) >= today:
                yield make_blackout(begin, begin + (last - first), wall.key, name)


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


def _occurrences(event: Event, first: date, today: date) -> Iterator[date]:
    left_out = {_date(day) for day in event.exdates}
    days = {first, *(_date(day) for day, _ in event.rdates)}
    yield from sorted(days - left_out)
    horizon = datetime.combine(today + _HORIZON, time())
    for rule in event.rrules:
        days_of_rule = rrulestr(_plain(rule), dtstart=datetime.combine(first, time()))
        for moment in days_of_rule:
            if moment > horizon:
                break
            if moment.date() not in days | left_out:
                yield moment.date()


def _date(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _plain(rule: vRecur) -> str:
    """Return *rule* for days: without hours, and with an end that has no zone."""
    frequency = "".join(rule.get("FREQ", [])).upper()
    if frequency != "YEARLY":
        raise ValueError(f"an event comes back {frequency or 'somehow'}, and holidays are YEARLY")
    kept = {key: values for key, values in rule.items() if key not in _ABOUT_HOURS}
    until = [f"{_date(day):%Y%m%d}" for day in kept.get("UNTIL", [])]
    parts = {**kept, **({"UNTIL": until} if until else {})}
    return ";".join(f"{key}={','.join(map(str, values))}" for key, values in parts.items())


_ABOUT_HOURS: Final = {"BYHOUR", "BYMINUTE", "BYSECOND"}


def _in_short(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    return " ".join(words)[:_LONGEST_NAME].rstrip(" .")
