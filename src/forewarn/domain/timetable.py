"""The walk, gone through on paper: when each step would begin, start and end.

What holds a step back are the brakes of the real walk. The fleet stays as it is, nothing fails,
every gate is open, and events take as long as `Timings` say. Where that does not say when an event
ends, whatever waits for its end never begins.

`Timings` are made by the rules, or from what events of the past took, each with a `Timing` for
every scope.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Final, TypeAlias

from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.brakes import Facts, find_blockers, keeps_its_place
from forewarn.domain.event import Outcome, ScheduledEvent, complete, schedule, start
from forewarn.domain.maintenance import Maintenance, Step, draft_events, is_canary
from forewarn.domain.names import ScopeId
from forewarn.domain.notice import earliest_not_before
from forewarn.domain.openings import expected_impact, next_room
from forewarn.domain.snapshot import Snapshot
from forewarn.protocol.vocabulary import EventId, EventSource

LEAST_SAMPLES: Final = 10
"""How many events tell something about the next; a scope with fewer is taken for an average one."""
LOW: Final = 10
HIGH: Final = 90
"""The percentiles a forecast lies between."""

_NOBODY: Final = EventId("")
"""The id of events that are never created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long an event waits until it starts, and how long its impact lasts, if that is known."""

    waits: timedelta
    lasts: timedelta | None


Timings: TypeAlias = Callable[[ScopeId], Timing]
"""What is expected of the events of each scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How long one event of the past took: *waited* for approval or NotBefore, then *lasted*."""

    scope_id: ScopeId
    waited: timedelta
    lasted: timedelta


def measure(events: Iterable[ScheduledEvent]) -> tuple[Sample, ...]:
    """Return how long each of *events* took that was announced by the platform and ended well."""
    return tuple(
        Sample(
            scope_id=event.scope_id,
            waited=event.started_at - event.created_at,
            lasted=event.ended_at - event.started_at,
        )
        for event in events
        if event.event_source is EventSource.PLATFORM
        and event.is_announced
        and event.outcome is Outcome.SUCCEEDED
        and event.started_at is not None
        and event.ended_at is not None
    )


def expect(samples: Sequence[Sample], percent: int) -> Timings | None:
    """Return the *percent* percentile of *samples* of each scope; None if they are too few.

    A scope with too few of its own is expected to take what all of them took.
    """
    if len(samples) < LEAST_SAMPLES:
        return None
    of_scopes: dict[ScopeId, list[Sample]] = {}
    for sample in samples:
        of_scopes.setdefault(sample.scope_id, []).append(sample)
    known: Mapping[ScopeId, Timing] = {
        scope_id: _percentile(own, percent)
        for scope_id, own in of_scopes.items()
        if len(own) >= LEAST_SAMPLES
    }
    of_all = _percentile(samples, percent)
    return lambda scope_id: known.get(scope_id, of_all)


def _percentile(samples: Sequence[Sample], percent: int) -> Timing:
    # The nearest rank: what really happened to somebody, nothing in between.
    index = ceil(len(samples) * percent / 100) - 1
    return Timing(
        waits=sorted(sample.waited for sample in samples)[index],
        lasts=sorted(sample.lasted for sample in samples)[index],
    )


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
class UnderWay:
    """A step that has begun before, and is expected to end then."""

    scope_ids: frozenset[ScopeId]
    ends: datetime


def make_timetable(
    maintenance: Maintenance,
    steps: Sequence[Step],
    snapshot: Snapshot,
    timings: Timings,
    now: datetime,
    *,
    under_way: Sequence[UnderWay] = (),
) -> tuple[Stretch | None, ...]:
    """Return when each of *steps* would take place from *now* on; None if it never begins.

    *snapshot* is the fleet with nothing in flight, but for the Maintenance's own events, which
    *under_way* tells the ends of.
    """
    timetable = _Timetable(maintenance, steps, snapshot, timings, now)
    timetable.occupy(under_way)
    return timetable.run()


class _Timetable:
    """Where the walk is. Steps are known by their number in the order.

    The brakes are asked about each of the *remaining* steps in order, where no scope is *busy* with
    another step, or kept for an earlier one.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        steps: Sequence[Step],
        snapshot: Snapshot,
        timings: Timings,
        now: datetime,
    ) -> None:
        self._maintenance = maintenance
        self._steps = steps
        self._timings = timings
        self._facts = Facts(maintenance, snapshot, now, taken=())
        canaries = [step for step in steps if is_canary(maintenance.course, step)]
        self._facts.canaries_ahead = [False] * len(canaries)
        # A host without virtual machines announces nothing, so it has no times.
        self._remaining = [number for number, step in enumerate(steps) if step.scope_ids]
        self._woken_at: set[datetime] = set()
        self._busy: set[ScopeId] = set()
        self._under_way: dict[int, set[ScopeId]] = {}
        self._waits: dict[int, tuple[datetime, datetime]] = {}
        self._stretches: dict[int, Stretch] = {}
        # What is in flight keeps its scopes busy, which is all that anybody waits for here.
        self._facts.in_flight = {}
        # What is at the same moment comes in the order in which it was noted.
        self._order = count()
        self._moments: list[tuple[datetime, int, Callable[[], None]]] = []

    def occupy(self, under_way: Sequence[UnderWay]) -> None:
        """Have the scopes of what is under way busy until it ends; its numbers are negative."""
        for number, each in enumerate(under_way, start=-len(under_way)):
            self._under_way[number] = set(each.scope_ids)
            self._busy |= each.scope_ids
            for scope_id in each.scope_ids:
                self._at(max(each.ends, self._facts.now), partial(self._free, number, scope_id))

    def run(self) -> tuple[Stretch | None, ...]:
        self._begin_what_may()
        while self._moments:
            moment = self._moments[0][0]
            self._facts.move_to(moment)
            while self._moments and self._moments[0][0] == moment:
                heappop(self._moments)[2]()
            self._begin_what_may()
        return tuple(map(self._stretches.get, range(len(self._steps))))

    def _begin_what_may(self) -> None:
        kept: set[ScopeId] = set()
        begun = set()
        for number in self._remaining:
            step = self._steps[number]
            if not (self._busy.isdisjoint(step.scope_ids) and kept.isdisjoint(step.scope_ids)):
                if self._maintenance.course.in_order:
                    kept |= step.scope_ids
                continue
            blockers = find_blockers(self._facts, step)
            if any(blocker.kind is BlockerKind.AT_ONCE for blocker in blockers):
                break  # and so it is for all that follow
            if not blockers:
                begun.add(number)
                self._begin(number, step)
                continue
            self._note_wait(number, blockers)
            if keeps_its_place(self._maintenance.course, blockers):
                kept |= step.scope_ids
        if begun:
            self._remaining = [number for number in self._remaining if number not in begun]

    def _note_wait(self, number: int, blockers: Sequence[Blocker]) -> None:
        """Come back to a step when the first of *blockers* ends, if they all end by time."""
        # Others end when a step does, and then all that remain are looked at again anyway.
        if any(blocker.release is not Release.BY_TIME for blocker in blockers):
            return
        moments = [blocker.until for blocker in blockers if blocker.until]
        if blockers[0].kind is BlockerKind.CALENDAR:
            self._waits.setdefault(number, (self._facts.now, moments[0]))
        moment = min(moments)
        if moment not in self._woken_at:  # thousands of steps may wait for the same opening
            self._woken_at.add(moment)
            self._at(moment, lambda: None)

    def _begin(self, number: int, step: Step) -> None:
        now = self._facts.now
        timings = {scope_id: self._timings(scope_id) for scope_id in step.scope_ids}
        starts = self._start_inside(max(_start(now, each.waits) for each in timings.values()))
        ends = [starts + timing.lasts for timing in timings.values() if timing.lasts is not None]
        ready, opens = self._waits.get(number, (now, now))
        self._stretches[number] = Stretch(
            ready=ready,
            opens=opens,
            begins=now,
            starts=starts,
            ends=max(ends) if len(ends) == len(timings) else None,
        )
        self._facts.places += 1
        self._under_way[number] = set(timings)
        self._busy |= timings.keys()
        self._note_canaries(step)
        for scope_id, timing in timings.items():
            if timing.lasts is not None:
                self._at(starts + timing.lasts, partial(self._free, number, scope_id))

    def _start_inside(self, due: datetime) -> datetime:
        """Return when events start that are *due*: where the calendar is open."""
        impact = expected_impact(self._maintenance, self._facts.snapshot)
        return next_room(self._maintenance.course.calendar, due, impact) or due

    def _free(self, number: int, scope_id: ScopeId) -> None:
        facts = self._facts
        facts.note_end(scope_id, facts.now)
        facts.own = tuple(
            _ended(event, facts.now) if event.scope_id == scope_id and event.is_in_flight else event
            for event in facts.own
        )
        self._busy.discard(scope_id)
        self._under_way[number].discard(scope_id)
        if not self._under_way[number]:
            facts.places -= 1

    def _note_canaries(self, step: Step) -> None:
        """Have the others wait for *step*, if it is a canary: of these the brakes know events."""
        if not is_canary(self._maintenance.course, step):
            return
        self._facts.canaries_ahead.pop()  # any: what counts is how many have not begun
        drafts = draft_events(self._maintenance, step)
        self._facts.own += tuple(
            schedule(draft, event_id=_NOBODY, now=self._facts.now, notice=timedelta(0))
            for draft in drafts
        )

    def _at(self, moment: datetime, do: Callable[[], None]) -> None:
        heappush(self._moments, (moment, next(self._order), do))


def _ended(event: ScheduledEvent, now: datetime) -> ScheduledEvent:
    started = event if event.started_at else start(event, now=now)
    return complete(started, outcome=Outcome.SUCCEEDED, now=now)


def _start(begins: datetime, waits: timedelta) -> datetime:
    return earliest_not_before(begins, waits) if waits else begins
