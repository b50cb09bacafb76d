"""Durations as people type them: 30s, 15m, 1h30m, 2d; a number alone is in seconds."""

import re
from datetime import timedelta

from forewarn.domain.errors import InvalidError, says

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "": "seconds"}
_DURATION = re.compile(r"(?:[0-9]{1,9}[dhms])+|[0-9]{1,9}")


@says("Invalid duration {text!r}; use 30s, 15m, 2h.")
class DurationError(InvalidError):
    """Something typed that is not a valid duration."""

    text: str


def parse_duration(text: str) -> timedelta:
    """Return the duration *text* names."""
    if _DURATION.fullmatch(text) is None:
        raise DurationError(text)
    parts = re.findall(r"([0-9]+)([dhms]?)", text)
    try:
        return sum(
            (timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta()
        )
    except OverflowError:
        raise DurationError(text) from None


def format_duration(duration: timedelta) -> str:
    """Return *duration* as a person would type it, to the second."""
    seconds = round(duration.total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
