"""Durations and times on the command line: every option that takes one takes the same forms."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import typer

from forewarn.wording.durations import DurationError, parse_duration
from forewarn.wording.moments import MomentError, parse_ahead, parse_past

DURATION: Final = "DURATION"
TIME: Final = "TIME"

_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Whether something is a time does not depend on when it is read."""


def check_duration(text: str | None) -> str | None:
    """Refuse what is not a duration."""
    return _check(parse_duration, text)


def check_interval(text: str | None) -> str | None:
    """Refuse what is not a duration, or no time at all."""
    if check_duration(text) is not None and not read_seconds(text or ""):
        raise typer.BadParameter(f"{text!r} is too short; the minimum is 1s.")
    return text


def duration_option(summary: str, *, can_clear: bool = False) -> Any:
    """Return an option that takes a duration, or an empty text if that *can_clear* a setting."""
    check = _check_unless_empty if can_clear else check_duration
    return typer.Option(metavar=DURATION, help=summary, callback=check)


def ahead_option(summary: str) -> Any:
    """Return an option that takes a time to come."""
    said = f"{summary}: 20m, 22:00 (GMT) or a time."
    return typer.Option(metavar=TIME, help=said, callback=_check_ahead)


def past_option(summary: str) -> Any:
    """Return an option that takes a time gone by."""
    said = f"{summary}: 2h (ago), 22:00 (GMT) or a time."
    return typer.Option(metavar=TIME, help=said, callback=_check_past)


def read_seconds(duration: str) -> int:
    """Return how many seconds *duration* has, which has been checked."""
    return int(parse_duration(duration).total_seconds())


def _check_unless_empty(text: str | None) -> str | None:
    return text and check_duration(text)


def _check_ahead(text: str | None) -> str | None:
    return _check(lambda typed: parse_ahead(typed, _SOME_DAY), text)


def _check_past(text: str | None) -> str | None:
    return _check(lambda typed: parse_past(typed, _SOME_DAY), text)


def _check(read: Callable[[str], object], text: str | None) -> str | None:
    try:
        if text is not None:
            read(text)
    except (DurationError, MomentError) as error:
        raise typer.BadParameter(str(error)) from error
    return text
