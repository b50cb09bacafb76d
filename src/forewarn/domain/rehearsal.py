"""The walk, gone through on paper: when each step would begin, start and end.

The fleet stays as it is, nothing fails, every gate is open, and events take as long as `Timings`
say. Where that does not say when an event ends, whatever waits for its end never begins.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from forewarn.domain.forecast import Timings
from forewarn.domain.maintenance import Step
from forewarn.domain.names import ScopeId
from forewarn.domain.notice import earliest_not_before

Opening: TypeAlias = Callable[[Step, datetime], datetime | None]
"""From when on a step that may begin at a moment has room in the calendar, if ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """When a step *begins* with its announcement, *starts*, and *ends*, if that is known.

    It would have begun when it was *ready*, but for the calendar, which *opens* then or later.
    """

    ready: datetime
    opens: datetime
    begins: datetime
    starts: datetime
    ends: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """Steps in order, each with what the walk has to know of it."""

    steps: Sequence[Step]
    canaries: frozenset[int]
    at_once: int | None
    soak: timedelta
    opening: Opening


def rehearse(walk: Rehearsed, timings: Timings, now: datetime) -> tuple[Stretch | None, ...]:
    """Return when each step would take place, if all begins at *now*; None if it never begins."""
    return _Rehearsal(walk, timings, now).run()


class _Rehearsal:
    """Where the walk is at the moment *now*. Steps are known by their number in the order.

    - *queues*: the steps that each scope has before it, the one it is in first.
    - *quiet*: the scopes that nothing is in flight in, and that have soaked.
    - *ready*: the steps that come first in each of their scopes, all of which are quiet.
    """

    def __init__(self, walk: Rehearsed, timings: Timings, now: datetime) -> None:
        self._walk = walk
        self._timings = timings
        self._now = now
        self._numbers = count()
        self._moments: list[tuple[datetime, int, Callable[[], None]]] = []
        self._queues: dict[ScopeId, deque[int]] = {}
        for number, step in enumerate(walk.steps):
            for scope_id in step.scope_ids:
                self._queues.setdefault(scope_id, deque()).append(number)
        self._quiet: set[ScopeId] = set()
        self._ready: list[int] = []
        self._canaries = set(walk.canaries)
        self._only_canaries = bool(self._canaries)
        self._under_way: dict[int, set[ScopeId]] = {}
        self._waits: dict[int, tuple[datetime, datetime]] = {}
        self._stretches: dict[int, Stretch] = {}

    def run(self) -> tuple[Stretch | None, ...]:
        for scope_id in self._queues:
            self._quieten(scope_id)
        self._begin_what_may()
        while self._moments:
            self._now = self._moments[0][0]
            while self._moments and self._moments[0][0] == self._now:
                heappop(self._moments)[2]()
            self._begin_what_may()
        return tuple(map(self._stretches.get, range(len(self._walk.steps))))

    def _begin_what_may(self) -> None:
        if self._is_full():
            return
        for number in tuple(self._ready):
            if not self._is_turn_of(number):
                continue
            self._ready.remove(number)
            opens = self._walk.opening(self._walk.steps[number], self._now)
            if opens is None:
                continue
            self._waits.setdefault(number, (self._now, opens))
            if opens > self._now:
                self._at(opens, partial(insort, self._ready, number))
                continue
            self._begin(number)
            if self._is_full():
                return

    def _is_full(self) -> bool:
        return self._walk.at_once is not None and len(self._under_way) >= self._walk.at_once

    def _is_turn_of(self, number: int) -> bool:
        return not self._only_canaries or number in self._walk.canaries

    def _begin(self, number: int) -> None:
        step = self._walk.steps[number]
        timings = {scope_id: self._timings(scope_id) for scope_id in step.scope_ids}
        starts = max(_start(self._now, timing.waits) for timing in timings.values())
        self._under_way[number] = set(timings)
        self._quiet -= step.scope_ids
        ends = []
        for scope_id, timing in timings.items():
            if timing.lasts is not None:
                ends.append(starts + timing.lasts)
                self._at(ends[-1], partial(self._end, number, scope_id))
        ready, opens = self._waits[number]
        self._stretches[number] = Stretch(
            ready=ready,
            opens=opens,
            begins=self._now,
            starts=starts,
            ends=max(ends) if len(ends) == len(timings) else None,
        )

    def _end(self, number: int, scope_id: ScopeId) -> None:
        self._queues[scope_id].popleft()
        self._at(self._now + self._walk.soak, partial(self._quieten, scope_id))
        self._under_way[number].discard(scope_id)
        if self._under_way[number]:
            return
        del self._under_way[number]
        self._canaries.discard(number)
        if self._only_canaries and not self._canaries:
            self._at(self._now + self._walk.soak, self._let_others_go)

    def _let_others_go(self) -> None:
        self._only_canaries = False

    def _quieten(self, scope_id: ScopeId) -> None:
        self._quiet.add(scope_id)
        if not self._queues[scope_id]:
            return
        first = self._queues[scope_id][0]
        scope_ids = self._walk.steps[first].scope_ids
        if scope_ids <= self._quiet and all(self._queues[each][0] == first for each in scope_ids):
            insort(self._ready, first)

    def _at(self, moment: datetime, do: Callable[[], None]) -> None:
        heappush(self._moments, (moment, next(self._numbers), do))


def _start(begins: datetime, waits: timedelta) -> datetime:
    return earliest_not_before(begins, waits) if waits else begins
