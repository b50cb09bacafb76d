"""What holds back a step of a Maintenance: each brake is a rule, and all rules are in one table."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Final

from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure, find_failures
from forewarn.domain.maintenance import (
    Maintenance,
    Step,
    canary_events,
    is_canary,
    is_in_the_way,
    lost_capacity,
    own_events,
    own_operations,
    set_sizes,
)
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.precedence import StartedOn, needing_somebody, started_on
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.windows import ALWAYS
from forewarn.domain.wording import say_moment
from forewarn.protocol.vocabulary import EventId


class BrakeKind(StrEnum):
    """What holds a step back."""

    PAUSED = "paused"
    SHARED_HOST = "shared-host"
    FAILURE = "failure"
    SERVER_PAUSED = "server-paused"
    EARLIER_STEP = "earlier-step"
    CANARY = "canary"
    BUSY = "busy"
    CAPACITY = "capacity"
    SOAK = "soak"
    CALENDAR = "calendar"
    AT_ONCE = "at-once"
    GATE = "gate"


class Release(StrEnum):
    """How a brake lets go."""

    BY_TIME = "by time"
    BY_PROGRESS = "by progress"
    BY_HAND = "by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """One thing that holds a step back, where, because of which events.

    BY_TIME it lets go at *until*, whatever happens. BY_PROGRESS it does when something has ended
    that is under way, comes first or is asked for again at *until*. BY_HAND it never does, unless
    somebody acts.
    """

    kind: BrakeKind
    release: Release
    until: datetime | None = None
    scope_ids: tuple[ScopeId, ...] = ()
    event_ids: tuple[EventId, ...] = ()
    failures: tuple[Failure, ...] = ()
    host: HostName | None = None
    gate: str = ""
    detail: str = ""


class Facts:
    """What the brakes go by: the Maintenance, all around it, and the steps that come first.

    *ahead* are the scopes of these where they keep their place, with whether they are stuck there,
    and *held* are scopes in which nothing begins, with the reasons; *places* is how many scopes
    or hosts are taken up by what is in flight or about to be.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        snapshot: Snapshot,
        now: datetime,
        taken: Collection[ScopeId | HostName],
    ) -> None:
        self.maintenance = maintenance
        self.course = maintenance.course
        self.snapshot = snapshot
        self.now = now
        self.taken = taken
        self.own = tuple(own_events(maintenance, snapshot.events.values()))
        self.operations = tuple(own_operations(maintenance, snapshot.operations.values()))
        self.soak = maintenance.course.soak / snapshot.speed
        self.failures = find_failures(maintenance, self.own, self.operations)
        self.busy_hosts = {
            operation.host: operation
            for operation in snapshot.operations.values()
            if not operation.is_over
        }
        self.in_flight = _by_scope(snapshot.events.values())
        self.soaks = dict(snapshot.soaks)
        for scope_id, ended_at in _last_ends(self.own).items():
            self.note_end(scope_id, ended_at)
        self.steps_done = Counter(event.scope_id for event in self.own)
        self.sizes = set_sizes(snapshot.topology) if self.course.min_available else {}
        self.places = len(
            {
                *(_place(event) for event in self.own if event.is_in_flight),
                *(operation.host for operation in self.operations if not operation.is_over),
            }
        )
        self.ahead: dict[ScopeId, bool] = {}
        self.held: dict[frozenset[ScopeId], tuple[Brake, ...]] = {}
        self.canaries_ahead: list[bool] = []
        self._openings: dict[timedelta, datetime | None] = {}

    def note_end(self, scope_id: ScopeId, ended_at: datetime) -> None:
        """Leave the scope alone for the soak after a step that ended then."""
        until = ended_at + self.soak
        self.soaks[scope_id] = max(until, self.soaks.get(scope_id, until))

    def move_to(self, now: datetime) -> None:
        """Go by what is so at a later moment."""
        self.now = now
        self._openings.clear()
        self.__dict__.pop("canary_brake", None)

    @cached_property
    def canary_brake(self) -> Brake | None:
        """What holds everybody but the canaries, which all come first."""
        if self.canaries_ahead:
            release = Release.BY_HAND if any(self.canaries_ahead) else Release.BY_PROGRESS
            return Brake(kind=BrakeKind.CANARY, release=release)
        canaries = canary_events(self.course, self.own)
        hosts = {event.host for event in canaries}.union(self.course.canary)
        operations = [each for each in self.operations if each.host in hosts]
        failed = find_failures(self.maintenance, canaries, operations)
        if failed:
            # It holds the others, not the scopes in which it failed.
            return replace(_held_by(BrakeKind.CANARY, failed), scope_ids=())
        flying = [event for event in canaries if event.is_in_flight]
        if flying or any(not operation.is_over for operation in operations):
            return Brake(kind=BrakeKind.CANARY, release=Release.BY_PROGRESS, event_ids=_ids(flying))
        ends = [
            *_last_ends(canaries).values(),
            *(operation.ended_at for operation in operations if operation.ended_at),
        ]
        until = max((end + self.soak for end in ends), default=self.now)
        if until <= self.now:
            return None
        return Brake(kind=BrakeKind.CANARY, release=Release.BY_TIME, until=until)

    def needs_somebody(self, events: Iterable[ScheduledEvent]) -> bool:
        """Tell whether one of *events*, not counting its own, needs somebody to complete it."""
        return any(
            needing_somebody(event, self.snapshot, self._started)
            for event in events
            if event.maintenance_id != self.maintenance.maintenance_id
        )

    @cached_property
    def _started(self) -> StartedOn:
        return started_on(self.snapshot)

    def opening(self, notice: timedelta) -> datetime | None:
        """Return when a step with so much notice may begin."""
        if notice not in self._openings:
            impact = expected_impact(self.maintenance, self.snapshot)
            self._openings[notice] = next_beginning(
                self.course, self.now, notice=notice, impact=impact
            )
        return self._openings[notice]


def server_pause(facts: Facts) -> tuple[Brake, ...]:
    """Return what holds every step while the server is paused. No forecast goes by it."""
    pause = facts.snapshot.server_pause
    if pause is None:
        return ()
    detail = f"{pause} since {say_moment(pause.since)}"
    return (Brake(kind=BrakeKind.SERVER_PAUSED, release=Release.BY_HAND, detail=detail),)


def earlier_step(facts: Facts, step: Step) -> Brake | None:
    """Return what holds *step* if another one comes first in one of its scopes."""
    waiting = [scope_id for scope_id in step.scope_ids if scope_id in facts.ahead]
    if not waiting:
        return None
    is_stuck = any(facts.ahead[scope_id] for scope_id in waiting)
    return Brake(
        kind=BrakeKind.EARLIER_STEP,
        release=Release.BY_HAND if is_stuck else Release.BY_PROGRESS,
        scope_ids=tuple(sorted(waiting)),
    )


def _paused(facts: Facts, step: Step) -> Brake | None:
    del step
    if not facts.maintenance.is_paused:
        return None
    return Brake(kind=BrakeKind.PAUSED, release=Release.BY_HAND)


def _shared_host(facts: Facts, step: Step) -> Brake | None:
    del facts
    if step.is_safe:
        return None
    return Brake(kind=BrakeKind.SHARED_HOST, release=Release.BY_HAND, detail=step.host or "")


def _failure(facts: Facts, step: Step) -> Brake | None:
    concerned = [
        failure
        for failure in facts.failures
        if facts.course.hold_all
        or failure.host == step.host is not None
        or not step.scope_ids.isdisjoint(failure.scope_ids)
    ]
    return _held_by(BrakeKind.FAILURE, concerned) if concerned else None


def _canary(facts: Facts, step: Step) -> Brake | None:
    if not facts.course.canary or is_canary(facts.course, step):
        return None
    return facts.canary_brake


def _busy(facts: Facts, step: Step) -> Brake | None:
    announced = [
        event
        for scope_id in step.scope_ids
        for event in facts.in_flight.get(scope_id, ())
        if is_in_the_way(event)
    ]
    scope_ids = {*_scopes(announced), *step.scope_ids.intersection(facts.taken)}
    busy = step.host and (step.host in facts.busy_hosts or step.host in facts.taken)
    if not scope_ids and not busy:
        return None
    return Brake(
        kind=BrakeKind.BUSY,
        release=Release.BY_HAND if facts.needs_somebody(announced) else Release.BY_PROGRESS,
        scope_ids=tuple(sorted(scope_ids)),
        event_ids=_ids(announced),
        host=step.host if busy else None,
    )


def _capacity(facts: Facts, step: Step) -> Brake | None:
    for share in (share for share in step.shares if share.scope_id in facts.sizes):
        members = facts.sizes[share.scope_id]
        in_flight = facts.in_flight.get(share.scope_id, ())
        down = {vm for event in in_flight for vm in event.resources}
        lost = lost_capacity(facts.course, members, down.union(share.resources))
        if lost is None:
            continue
        alone = lost_capacity(facts.course, members, frozenset(share.resources))
        is_stuck = alone is not None or all(facts.needs_somebody([each]) for each in in_flight)
        return Brake(
            kind=BrakeKind.CAPACITY,
            release=Release.BY_HAND if is_stuck else Release.BY_PROGRESS,
            scope_ids=(share.scope_id,),
            event_ids=_ids(in_flight) if alone is None else (),
            detail=lost,
        )
    return None


def _soak(facts: Facts, step: Step) -> Brake | None:
    soaking = {
        scope_id: until
        for scope_id in step.scope_ids
        if (until := facts.soaks.get(scope_id)) and until > facts.now
    }
    if not soaking:
        return None
    return Brake(
        kind=BrakeKind.SOAK,
        release=Release.BY_TIME,
        until=max(soaking.values()),
        scope_ids=tuple(sorted(soaking)),
    )


def _calendar(facts: Facts, step: Step) -> Brake | None:
    if facts.course.calendar == ALWAYS:
        return None
    opening = facts.opening(longest_notice(facts.maintenance, step, facts.snapshot))
    if opening is None:
        return Brake(kind=BrakeKind.CALENDAR, release=Release.BY_HAND)
    if opening <= facts.now:
        return None
    return Brake(kind=BrakeKind.CALENDAR, release=Release.BY_TIME, until=opening)


def _at_once(facts: Facts, step: Step) -> Brake | None:
    del step
    if facts.course.at_once is None or facts.places < facts.course.at_once:
        return None
    return Brake(kind=BrakeKind.AT_ONCE, release=Release.BY_PROGRESS)


BRAKES: Final[tuple[Callable[[Facts, Step], Brake | None], ...]] = (
    _paused,
    _shared_host,
    _failure,
    _canary,
    _busy,
    _capacity,
    _soak,
    _calendar,
    _at_once,
)
"""What may hold the next step of a scope. Gates are asked when none of these does."""


_GIVING_WAY: Final = frozenset(
    {
        BrakeKind.EARLIER_STEP,
        BrakeKind.SHARED_HOST,
        BrakeKind.FAILURE,
        BrakeKind.BUSY,
        BrakeKind.CAPACITY,
        BrakeKind.SOAK,
    }
)
"""What keeps a step from its own scopes or host, and is no reason for later ones to wait."""


def keeps_its_place(course: Course, brakes: Iterable[Brake]) -> bool:
    """Tell whether later steps in the same scopes wait for one that *brakes* hold."""
    return course.in_order or not any(brake.kind in _GIVING_WAY for brake in brakes)


def _held_by(kind: BrakeKind, failures: Sequence[Failure]) -> Brake:
    return Brake(
        kind=kind,
        release=Release.BY_HAND,
        scope_ids=tuple(sorted({each for failure in failures for each in failure.scope_ids})),
        event_ids=tuple(each for failure in failures for each in failure.event_ids),
        failures=tuple(failures),
    )


def _by_scope(events: Collection[ScheduledEvent]) -> dict[ScopeId, list[ScheduledEvent]]:
    found: dict[ScopeId, list[ScheduledEvent]] = {}
    for event in events:
        if event.is_in_flight:
            found.setdefault(event.scope_id, []).append(event)
    return found


def _last_ends(events: Collection[ScheduledEvent]) -> dict[ScopeId, datetime]:
    """Return when the impact on each scope was over; what was withdrawn had none."""
    ends: dict[ScopeId, datetime] = {}
    for event in events:
        if event.ended_at is not None and event.outcome is not None:
            ends[event.scope_id] = max(event.ended_at, ends.get(event.scope_id, event.ended_at))
    return ends


def _place(event: ScheduledEvent) -> HostName | ScopeId:
    return event.host or event.scope_id


def _scopes(events: Collection[ScheduledEvent]) -> tuple[ScopeId, ...]:
    return tuple(sorted({event.scope_id for event in events}))


def _ids(events: Collection[ScheduledEvent]) -> tuple[EventId, ...]:
    return tuple(event.event_id for event in events)
