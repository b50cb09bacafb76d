"""Times as people type them: 20m, 22:00 or 2026-01-05T08:15:00Z.

A duration and a time of day are seen from now: ahead for what is to come, back for what was.
"""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from forewarn.domain.errors import InvalidError
from forewarn.wording.durations import DurationError, parse_duration

_FARTHEST: Final = timedelta(days=3660)
_LAST_YEAR: Final = 2999
_TIME_OF_DAY: Final = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?")
_DAY: Final = timedelta(days=1)


class MomentError(InvalidError):
    """Something typed that is not a valid time, or is too far away."""

    def __init__(self, text: str, problem: str = "is not a valid time") -> None:
        super().__init__(f"{text[:40]!r} {problem}; use 20m, 22:00 or 2026-01-05T08:15:00Z.")
        self.text = text


def parse_span(text: str) -> timedelta:
    """Return the duration *text* names, ten years at most."""
    span = parse_duration(text)
    if span > _FARTHEST:
        raise MomentError(text, "is longer than ten years")
    return span


def check_reachable(now: datetime, span: timedelta) -> None:
    """Refuse to go beyond what a date can say."""
    if now.year + span.days // 365 > _LAST_YEAR:
        raise MomentError(str(span), "is too far away")


def parse_ahead(text: str, now: datetime) -> datetime | timedelta:
    """Return what *text* names, seen from *now*: 20m (or +20m), the next 22:00, or a time.

    A duration stays one, for what counts it from another moment than *now*.
    """
    moment = _parse(text.removeprefix("+"), text)
    if isinstance(moment, time):
        today = datetime.combine(now.date(), moment, UTC)
        return today if today > now else today + _DAY
    return moment


def resolve(moment: datetime | timedelta, now: datetime) -> datetime:
    """Return the time *moment* is, seen from *now*."""
    return now + moment if isinstance(moment, timedelta) else moment


def parse_past(text: str, now: datetime) -> datetime:
    """Return what *text* names, seen from *now*: 2h (or 2h ago), the last 22:00, or a time."""
    moment = _parse(text.removesuffix(" ago").rstrip(), text)
    if isinstance(moment, timedelta):
        return now - moment
    if isinstance(moment, time):
        today = datetime.combine(now.date(), moment, UTC)
        return today if today <= now else today - _DAY
    return moment


def _parse(text: str, typed: str) -> datetime | timedelta | time:
    if text.isdecimal():
        # Seconds from now, or since 1970? Some programs write the latter.
        raise MomentError(typed, "has no unit")
    try:
        return parse_span(text)
    except DurationError:
        pass
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return time.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MomentError(typed) from None
    if moment.tzinfo is None:
        raise MomentError(typed, "has no time zone")
    if not 1970 < moment.year <= _LAST_YEAR:
        raise MomentError(typed, "is too far away")
    return moment.astimezone(UTC)
