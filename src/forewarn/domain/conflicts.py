"""Where the calendar is in the way of a plan: steps that could begin, were it open for longer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from forewarn.domain.timetable import Stretch
from forewarn.domain.windows import Blackout, Calendar, closes_at, describe
from forewarn.domain.wording import say_moment

_NAMED: Final = 3
"""How many steps are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Steps that are *ready* at a moment, and have no room before the calendar *opens*.

    Before it *closes* there is too little; without that it is closed. *blackouts* are between the
    two moments. *pace* says in which timetable it came up, if not in each.
    """

    steps: tuple[int, ...]
    ready: datetime
    opens: datetime
    closes: datetime | None
    blackouts: tuple[str, ...]
    pace: str = ""

    @property
    def sentence(self) -> str:
        many = len(self.steps) > 1
        why = (
            "it is closed"
            if self.closes is None
            else f"there is no room before it closes at {say_moment(self.closes)}"
        )
        kept_free = f" Kept free: {'; '.join(self.blackouts)}." if self.blackouts else ""
        return (
            f"{say_steps(self.steps)} could begin at {say_moment(self.ready)}{self.pace}, but "
            f"{why}, so {'they wait' if many else 'it waits'} until {say_moment(self.opens)}."
            f"{kept_free}"
        )


def find_conflicts(
    calendar: Calendar,
    earliest: Sequence[Stretch | None],
    latest: Sequence[Stretch | None],
) -> tuple[Conflict, ...]:
    """Return what the calendar moves in the two timetables of a plan."""
    of_earliest, of_latest = _moved(earliest), _moved(latest)
    paces = {
        **dict.fromkeys(of_earliest.items(), " if all approve at once"),
        **dict.fromkeys(of_latest.items(), " if nobody approves"),
        **dict.fromkeys(of_earliest.items() & of_latest.items(), ""),
    }
    return tuple(
        Conflict(
            steps=steps,
            ready=ready,
            opens=opens,
            closes=None if (closes := closes_at(calendar, ready)) == ready else closes,
            blackouts=tuple(describe(each) for each in _between(calendar, ready, opens)),
            pace=pace,
        )
        for ((ready, opens), steps), pace in paces.items()
    )


def say_steps(numbers: Sequence[int]) -> str:
    """Return how steps are called that have these *numbers*."""
    if len(numbers) == 1:
        return f"Step {numbers[0]}"
    named, more = numbers[:_NAMED], len(numbers) - _NAMED
    if more > 0:
        return f"Steps {', '.join(map(str, named))} and {more} more"
    return f"Steps {', '.join(map(str, named[:-1]))} and {named[-1]}"


def _moved(
    stretches: Sequence[Stretch | None],
) -> dict[tuple[datetime, datetime], tuple[int, ...]]:
    moved: dict[tuple[datetime, datetime], list[int]] = {}
    for number, stretch in enumerate(stretches, start=1):
        if stretch is not None and stretch.ready < stretch.opens:
            moved.setdefault((stretch.ready, stretch.opens), []).append(number)
    return {moments: tuple(numbers) for moments, numbers in moved.items()}


def _between(calendar: Calendar, ready: datetime, opens: datetime) -> Iterator[Blackout]:
    for blackout in calendar.blackouts:
        zone = ZoneInfo(blackout.zone)
        first, last = ready.astimezone(zone).date(), opens.astimezone(zone).date()
        if blackout.first <= last and first <= blackout.last:
            yield blackout
