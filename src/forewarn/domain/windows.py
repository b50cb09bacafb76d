"""When maintenance may happen: weekly windows, each in its time zone, and dates kept free of it.

What the clock on the wall shows decides, in the zone of the window or blackout. So a window over
the hour that is left out is shorter that night, and one over the hour that comes twice is longer.
A window that begins in the hour left out opens when the clock has jumped over it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from forewarn.domain.errors import BlackoutError, UnknownZoneError, WindowError

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONGEST_BLACKOUT: Final = timedelta(days=3660)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of the week, from *opens* on each of *days* (Monday is 0) until *closes*.

    One that closes at or before it opens does so on the next day. *zone* is an IANA time zone;
    the clock on the wall there is what counts, also over a change to summer time and back.
    """

    days: frozenset[int]
    opens: time
    closes: time
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """Whole days, *first* to *last*, of the clock on the wall in *zone*, without maintenance."""

    first: date
    last: date
    zone: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Inside one of *windows*, if there are any, and outside every one of *blackouts*."""

    windows: tuple[Window, ...] = ()
    blackouts: tuple[Blackout, ...] = ()


ALWAYS: Final = Calendar()
"""No limits."""


def read_window(text: str) -> Window:
    """Return the window that *text* names, such as `Sat,Sun 22:00-06:00 Europe/Berlin`."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise WindowError(text, "expected DAYS HH:MM-HH:MM ZONE")
    return Window(
        days=_days_of(text, match["days"]),
        opens=_read_time(text, match["opens"]),
        closes=time() if match["closes"] == "24:00" else _read_time(text, match["closes"]),
        zone=check_zone(match["zone"]),
    )


def read_days(text: str) -> frozenset[int]:
    """Return the days of the week that *text* names, such as `Sat,Sun` or `Mon-Fri`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = _read_day(first)
        end = _read_day(last) if "-" in part else begin
        found.update((begin + more) % 7 for more in range((end - begin) % 7 + 1))
    return frozenset(found)


def read_blackout(text: str, zone: str = "UTC") -> Blackout:
    """Return the blackout that *text* names, such as `2026-12-24..2027-01-02 Europe/Berlin`.

    One day is a date alone. *zone* counts where the text has none, and a name may come last.
    """
    match = _BLACKOUT.fullmatch(text.strip())
    if match is None:
        raise BlackoutError(text, "expected YYYY-MM-DD or YYYY-MM-DD..YYYY-MM-DD, and a zone")
    first = _read_date(text, match["first"])
    last = _read_date(text, match["last"]) if match["last"] else first
    return make_blackout(first, last, match["zone"] or zone, match["name"] or "")


def make_blackout(first: date, last: date, zone: str, name: str = "") -> Blackout:
    """Return a blackout of these days, or refuse them."""
    blackout = Blackout(first=first, last=last, zone=check_zone(zone), name=" ".join(name.split()))
    if first.year < 2000 or last.year > 2999:
        raise BlackoutError(describe(blackout), "the years must be from 2000 to 2999")
    if last < first:
        raise BlackoutError(describe(blackout), "it ends before it begins")
    if last - first >= LONGEST_BLACKOUT:
        raise BlackoutError(describe(blackout), f"it is longer than {LONGEST_BLACKOUT.days} days")
    return blackout


def check_zone(zone: str) -> str:
    """Return *zone*, or refuse it if it is none."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise UnknownZoneError(zone) from None
    return zone


def describe(part: Window | Blackout) -> str:
    """Return *part* as it would be typed."""
    if isinstance(part, Window):
        on = "daily" if len(part.days) == 7 else describe_days(part.days)
        return f"{on} {part.opens:%H:%M}-{part.closes:%H:%M} {part.zone}"
    days = f"{part.first}" if part.first == part.last else f"{part.first}..{part.last}"
    return f"{days} {part.zone} {part.name}".rstrip()


def next_opening(calendar: Calendar, earliest: datetime, lasting: timedelta) -> datetime | None:
    """Return the first moment from *earliest* on at which *lasting* fits in, None if it never does.

    It fits in where it is wholly inside windows that touch each other, and outside all blackouts.
    """
    for span in _openings(calendar, earliest):
        if lasting <= span.ends - span.begins:
            return span.begins
    return None


def longest_opening(calendar: Calendar, earliest: datetime) -> timedelta:
    """Return for how long it is open at most, from *earliest* on; timedelta.max is for ever."""
    lengths = (
        timedelta.max if span.ends == _NEVER else span.ends - span.begins
        for span in _openings(calendar, earliest)
    )
    return max(lengths, default=timedelta(0))


def closes_at(calendar: Calendar, moment: datetime) -> datetime | None:
    """Return until when there may be maintenance without a break from *moment* on.

    That is *moment* itself where it is closed already, and None where it never closes.
    """
    span = next(_openings(calendar, moment), None)
    if span is None or span.begins > moment:
        return moment
    return None if span.ends == _NEVER else span.ends


def hours_on(window: Window, day: date) -> tuple[datetime, datetime] | None:
    """Return from when until when *window* is open that begins on *day*, in UTC.

    That is None on other days of the week, and where the clock jumps over all of it. Where the
    clock is set back and it opens twice, the first time counts.
    """
    if day.weekday() not in window.days:
        return None
    span = next(_joined(_shown(window.zone, *_hours(window, _midnight(day)))), None)
    return None if span is None else (span.begins, span.ends)


def open_between(
    calendar: Calendar, since: datetime, until: datetime
) -> tuple[tuple[datetime, datetime], ...]:
    """Return from when until when it is open, in order, within *since* and *until*."""
    inside = takewhile(lambda span: span.begins < until, _openings(calendar, since))
    return tuple((span.begins, min(span.ends, until)) for span in inside)


def dark_between(
    blackout: Blackout, since: datetime, until: datetime
) -> tuple[tuple[datetime, datetime], ...]:
    """Return the parts of *blackout* within *since* and *until*; one, unless the clock jumps."""
    return tuple(
        (max(span.begins, since), min(span.ends, until))
        for span in _darkness((blackout,))
        if span.begins < until and since < span.ends
    )


def blackout_at(blackouts: Iterable[Blackout], moment: datetime) -> Blackout | None:
    """Return the first of *blackouts* that *moment* is in."""
    for blackout in blackouts:
        if blackout.first <= moment.astimezone(ZoneInfo(blackout.zone)).date() <= blackout.last:
            return blackout
    return None


_WINDOW: Final = re.compile(
    r"(?P<days>\S+)\s+(?P<opens>[0-9:]+)-(?P<closes>[0-9:]+)\s+(?P<zone>\S+)"
)
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_BLACKOUT: Final = re.compile(
    rf"(?P<first>{_DATE})(?:\.\.(?P<last>{_DATE}))?(?:\s+(?P<zone>\S+)(?:\s+(?P<name>.+))?)?",
    re.DOTALL,
)


def _days_of(text: str, days: str) -> frozenset[int]:
    try:
        return frozenset(range(7)) if days.lower() == "daily" else read_days(days)
    except ValueError as error:
        raise WindowError(text, f"{error} or daily") from None


def _read_day(day: str) -> int:
    try:
        return DAYS.index(day.title())
    except ValueError:
        raise ValueError(f"{day!r} is not one of {', '.join(DAYS)}") from None


def _read_time(text: str, clock: str) -> time:
    match = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", clock)
    if match is None:
        raise WindowError(text, f"{clock!r} is not a time from 00:00 to 23:59")
    return time(int(match[1]), int(match[2]))


def _read_date(text: str, day: str) -> date:
    try:
        return date.fromisoformat(day)
    except ValueError:
        raise BlackoutError(text, f"{day!r} is not a valid date") from None


def describe_days(days: frozenset[int]) -> str:
    """Return *days* of the week as `read_days` takes them."""
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(
        f"{DAYS[run[0]]}-{DAYS[run[-1]]}" if len(run) > 2 else ",".join(DAYS[day] for day in run)
        for run in runs
    )


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """From *begins* until just before *ends*, both in UTC."""

    begins: datetime
    ends: datetime


_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_WEEK: Final = timedelta(days=7)
_EVERY_NIGHT: Final = timedelta(days=400)
"""Windows come back every week, changes of the clock every year: what has not been seen in so much
time without a blackout never will be."""
_PROBE_EVERY: Final = timedelta(hours=6)
"""No zone changes its clock twice within this."""


def _openings(calendar: Calendar, earliest: datetime) -> Iterator[_Span]:
    """Yield when it is open from *earliest* on, in order, until nothing new can come."""
    for gap in _gaps(calendar.blackouts, earliest.astimezone(UTC)):
        seen = _Span(gap.begins, min(gap.ends, gap.begins + _EVERY_NIGHT))
        for span in _joined(_inside(calendar.windows, seen)) if calendar.windows else [seen]:
            yield gap if span == seen else span


def _gaps(blackouts: tuple[Blackout, ...], earliest: datetime) -> Iterator[_Span]:
    begins = earliest
    for dark in _darkness(blackouts):
        if begins < dark.begins:
            yield _Span(begins, dark.begins)
        begins = max(begins, dark.ends)
    yield _Span(begins, _NEVER)


@lru_cache(maxsize=64)
def _darkness(blackouts: tuple[Blackout, ...]) -> tuple[_Span, ...]:
    spans = (
        span
        for blackout in blackouts
        for span in _shown(
            blackout.zone, _midnight(blackout.first), _midnight(blackout.last) + _DAY
        )
    )
    return tuple(_joined(sorted(spans)))


def _inside(windows: tuple[Window, ...], limits: _Span) -> Iterator[_Span]:
    week = limits.begins.toordinal() // 7
    while _midnight(date.fromordinal(week * 7)) < limits.ends:
        for span in _in_week(windows, week):
            begins, ends = max(span.begins, limits.begins), min(span.ends, limits.ends)
            if begins < ends:
                yield _Span(begins, ends)
        week += 1


@lru_cache(maxsize=4096)
def _in_week(windows: tuple[Window, ...], number: int) -> tuple[_Span, ...]:
    """Return the openings in the week of that *number*, counted from the first day there is."""
    begins = _midnight(date.fromordinal(number * 7))
    found: list[_Span] = []
    for window in windows:
        # A window may come from the day before, and its zone may be a day away.
        for day in (begins + more * _DAY for more in range(-2, 9)):
            if day.weekday() in window.days:
                found.extend(_shown(window.zone, *_hours(window, day)))
    clipped = (_Span(max(it.begins, begins), min(it.ends, begins + _WEEK)) for it in found)
    return tuple(_joined(sorted(span for span in clipped if span.begins < span.ends)))


def _hours(window: Window, day: datetime) -> tuple[datetime, datetime]:
    opens = datetime.combine(day, window.opens, UTC)
    closes = datetime.combine(day, window.closes, UTC)
    return opens, closes if opens < closes else closes + _DAY


def _shown(zone: str, begins: datetime, ends: datetime) -> Iterator[_Span]:
    """Yield when the clock on the wall in *zone* shows a time from *begins* until before *ends*.

    These two are what the clock shows, written down as if they were UTC.
    """
    earliest, latest = begins - _DAY, ends + _DAY
    changes = (
        change for year in range(earliest.year, latest.year + 1) for change in _changes(zone, year)
    )
    edges = [earliest, *(change for change in changes if earliest < change < latest), latest]
    for since, until in pairwise(edges):
        offset = _offset(ZoneInfo(zone), since)
        span = _Span(max(since, begins - offset), min(until, ends - offset))
        if span.begins < span.ends:
            yield span


@lru_cache(maxsize=1024)
def _changes(zone: str, year: int) -> tuple[datetime, ...]:
    """Return when the clock in *zone* is set to another offset in that year."""
    info = ZoneInfo(zone)
    begin, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    probes = [begin + number * _PROBE_EVERY for number in range((end - begin) // _PROBE_EVERY + 1)]
    return tuple(
        _change_between(info, before, after)
        for before, after in pairwise(probes)
        if _offset(info, before) != _offset(info, after)
    )


def _change_between(info: ZoneInfo, before: datetime, after: datetime) -> datetime:
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // timedelta(seconds=2) * timedelta(seconds=1)
        if _offset(info, middle) == _offset(info, before):
            before = middle
        else:
            after = middle
    return after


def _offset(info: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(info).utcoffset() or timedelta(0)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _joined(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yield *spans*, which begin in order, with those that touch each other as one."""
    current: _Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif span.begins <= current.ends:
            current = _Span(current.begins, max(current.ends, span.ends))
        else:
            yield current
            current = span
    if current is not None:
        yield current
