"""How moments, lengths of time and many names are said in sentences."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

_NAMED: Final = 8
"""How many names a sentence lists."""


def say_moment(moment: datetime | None) -> str:
    """Return *moment* as a person reads it; nothing if there is none."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} GMT"


def say_length(length: timedelta) -> str:
    """Return *length* in minutes, or in seconds if they do not make whole minutes."""
    minutes, rest = divmod(length, timedelta(minutes=1))
    return f"{length.total_seconds():g} s" if rest else f"{minutes} min"


def say_names(names: Sequence[str]) -> str:
    """Return the first of *names*, and how many more there are."""
    more = len(names) - _NAMED
    listed = ", ".join(names[:_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed


def say_count(names: Sequence[str], noun: str) -> str:
    """Return the one name, or how many there are of *noun* with the first of them."""
    if len(names) == 1:
        return names[0]
    return f"{count_of(len(names), noun)} ({say_names(names)})"


def count_of(number: int, noun: str) -> str:
    """Return *number* with *noun*, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
