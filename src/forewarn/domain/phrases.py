"""How moments, lengths of time and many names are said in sentences."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

_NAMED: Final = 8
"""How many names a sentence lists."""
_PAIR: Final = 2
_NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


def say_moment(moment: datetime | None) -> str:
    """Return *moment* as a person reads it; nothing if there is none."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} GMT"


def say_length(length: timedelta) -> str:
    """Return *length* in minutes, or in seconds if they do not make whole minutes."""
    minutes, rest = divmod(length, timedelta(minutes=1))
    return f"{length.total_seconds():g} s" if rest else f"{minutes} min"


def say_names(names: Sequence[str], between: str = ", ") -> str:
    """Return the first of *names*, and how many more there are."""
    more = len(names) - _NAMED
    listed = between.join(names[:_NAMED])
    return f"{listed} and {more:,} more" if more > 0 else listed


def say_ranges(names: Sequence[str]) -> str:
    """Return *names*, those numbered in a row as ranges; of many, the first, and how many more."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    said: list[str] = []
    named, more = 0, len(names)
    for run in runs:
        named += min(len(run), _PAIR)
        if named > _NAMED:
            break
        said.append((" … " if len(run) > _PAIR else ", ").join(dict.fromkeys((run[0], run[-1]))))
        more -= len(run)
    listed = ", ".join(said)
    return f"{listed} and {more:,} more" if more else listed


def say_count(names: Sequence[str], noun: str) -> str:
    """Return the one name, or how many there are of *noun* with the first of them."""
    if len(names) == 1:
        return names[0]
    return f"{count_of(len(names), noun)} ({say_names(names)})"


def _follows(before: str, name: str) -> bool:
    """Tell whether *name* is *before* with one of its numbers one higher."""
    parts = _NUMBER.split(before)
    higher = (
        (*parts[:place], f"{int(parts[place]) + 1:0{len(parts[place])}}", *parts[place + 1 :])
        for place in range(1, len(parts), 2)
    )
    return any("".join(each) == name for each in higher)


def count_of(number: int, noun: str) -> str:
    """Return *number* with *noun*, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
