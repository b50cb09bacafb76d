"""When maintenance may happen: weekly windows, each in its time zone, and dates kept free of it."""

from dataclasses import dataclass
from datetime import date, time
from typing import Final


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
