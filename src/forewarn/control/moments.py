"""Times as people type them: 20m from now on, or 2026-01-05T08:15:00Z."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from forewarn.control.problems import MomentError, PastMomentError
from forewarn.operations.durations import DurationError, parse_duration

_FARTHEST: Final = timedelta(days=3660)
_LAST_YEAR: Final = 2999
_TIME_OF_DAY: Final = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?")


def parse_span(text: str) -> timedelta:
    """Return the duration *text* names, ten years at most."""
    span = parse_duration(text)
    if span > _FARTHEST:
        raise MomentError(text, "is more than ten years")
    return span


def check_reachable(now: datetime, span: timedelta) -> None:
    """Refuse to go beyond what a date can say."""
    if now.year + span.days // 365 > _LAST_YEAR:
        raise MomentError(str(span), "leads too far away")


def parse_moment(text: str) -> datetime | timedelta:
    """Return what *text* names: a duration, or a time with its zone, in UTC."""
    try:
        return parse_span(text)
    except DurationError:
        return _parse_time(text)


def resolve(moment: datetime | timedelta, now: datetime) -> datetime:
    """Return the time *moment* is, seen from *now*."""
    return now + moment if isinstance(moment, timedelta) else moment


def parse_past(text: str, now: datetime) -> datetime:
    """Return the moment *text* names, seen from *now*: 14:05 today, 10m (or 10m ago), or a time."""
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return datetime.combine(now.date(), time.fromisoformat(text), UTC)
        moment = parse_moment(text.removesuffix(" ago").rstrip())
        return now - moment if isinstance(moment, timedelta) else moment
    except (ValueError, OverflowError, MomentError):
        raise PastMomentError(text) from None


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MomentError(text, "is neither a duration nor a time") from None
    if moment.tzinfo is None:
        raise MomentError(text, "has no time zone")
    if not 1970 < moment.year <= _LAST_YEAR:
        raise MomentError(text, "is too far away")
    return moment.astimezone(UTC)
