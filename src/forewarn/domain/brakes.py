"""What holds back a step of a Maintenance: each brake is a rule, and all rules are in one table.

A rule yields blockers, with sentences of their own. They do not name the step: one that holds many
steps is made once, and `Blocker.placed` says it of one of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure, find_failures
from forewarn.domain.host_operation import HostOperation
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
    shared_hosts,
)
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.precedence import StartedOn, needing_somebody, started_on
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.windows import ALWAYS
from forewarn.domain.wording import say_moment
from forewarn.protocol.vocabulary import EventId

_CANARIES: Final = {
    Release.BY_TIME: BlockerKind.CANARY_SOAK,
    Release.BY_PROGRESS: BlockerKind.CANARY,
    Release.BY_HAND: BlockerKind.CANARY_HELD,
}


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
        self.failures = {
            failure: failure_blocker(maintenance, failure)
            for failure in find_failures(maintenance, self.own, self.operations)
        }
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
        self.held: dict[frozenset[ScopeId], tuple[Blocker, ...]] = {}
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
    def canary_brake(self) -> tuple[Blocker, ...]:
        """What holds everybody but the canaries, which all come first."""
        if self.canaries_ahead:
            is_stuck = any(self.canaries_ahead)
            return self._canary(Release.BY_HAND if is_stuck else Release.BY_PROGRESS)
        canaries, operations = canary_parts(self.course, self.own, self.operations)
        failed = find_failures(self.maintenance, canaries, operations)
        if failed:
            ids = [event_id for failure in failed for event_id in failure.event_ids]
            known = {event.event_id: event for event in canaries}
            return self._canary(Release.BY_HAND, [known[event_id] for event_id in ids])
        flying = [event for event in canaries if event.is_in_flight]
        if flying or any(not operation.is_over for operation in operations):
            return self._canary(Release.BY_PROGRESS, flying)
        ends = [
            *_last_ends(canaries).values(),
            *(operation.ended_at for operation in operations if operation.ended_at),
        ]
        until = max((end + self.soak for end in ends), default=self.now)
        return () if until <= self.now else self._canary(Release.BY_TIME, until=until)

    def _canary(
        self,
        release: Release,
        events: Sequence[ScheduledEvent] = (),
        until: datetime | None = None,
    ) -> tuple[Blocker, ...]:
        blocker = Blocker(
            kind=_CANARIES[release],
            release=release,
            vms=_vms(events),
            event_ids=_ids(events),
            until=until,
            about=", ".join(self.course.canary),
        )
        return (blocker,)

    def is_own(self, event: ScheduledEvent) -> bool:
        """Tell whether *event* is of a step of the Maintenance."""
        return event.maintenance_id == self.maintenance.maintenance_id

    def awaited(self, events: Iterable[ScheduledEvent]) -> tuple[EventId, ...]:
        """Return what somebody has to complete, or *events* never end."""
        found = (needing_somebody(event, self.snapshot, self._started) for event in events)
        return tuple(dict.fromkeys(event_id for ids in found for event_id in ids))

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


def canary_parts(
    course: Course, own: Collection[ScheduledEvent], operations: Iterable[HostOperation]
) -> tuple[tuple[ScheduledEvent, ...], tuple[HostOperation, ...]]:
    """Return the events and host operations of the canaries that have had their turn."""
    canaries = canary_events(course, own)
    hosts = {event.host for event in canaries}.union(course.canary)
    return canaries, tuple(each for each in operations if each.host in hosts)


def failure_blocker(maintenance: Maintenance, failure: Failure) -> Blocker:
    """Return *failure* as what holds steps of *maintenance*."""
    holds_all = maintenance.course.hold_all
    reason = f": {failure.reason}" if failure.reason else ""
    return Blocker(
        kind=BlockerKind.FAILURE_HOLDS_ALL if holds_all else BlockerKind.FAILURE,
        release=Release.BY_HAND,
        scope_ids=failure.scope_ids,
        vms=failure.vms,
        event_ids=failure.event_ids,
        since=failure.ended_at,
        about=f"{failure.ending} at {say_moment(failure.ended_at)}{reason}",
        place=failure.place,
    )


def server_pause(facts: Facts) -> tuple[Blocker, ...]:
    """Return what holds every step while the server is paused. No forecast goes by it."""
    pause = facts.snapshot.server_pause
    if pause is None:
        return ()
    about = f"{pause} since {say_moment(pause.since)}"
    kind, release = BlockerKind.SERVER_PAUSED, Release.BY_HAND
    return (Blocker(kind=kind, release=release, since=pause.since, about=about),)


def earlier_step(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    """Return what holds *step* if another one comes first in one of its scopes."""
    waiting = [scope_id for scope_id in step.scope_ids if scope_id in facts.ahead]
    if not waiting:
        return ()
    is_stuck = any(facts.ahead[scope_id] for scope_id in waiting)
    release = Release.BY_HAND if is_stuck else Release.BY_PROGRESS
    return (
        Blocker(kind=BlockerKind.EARLIER_STEP, release=release, scope_ids=tuple(sorted(waiting))),
    )


def _paused(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    del step
    if not facts.maintenance.is_paused:
        return ()
    return (Blocker(kind=BlockerKind.PAUSED, release=Release.BY_HAND),)


def _shared_host(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    del facts
    if step.is_safe:
        return ()
    return tuple(
        Blocker(
            kind=BlockerKind.SHARED_HOST,
            release=Release.BY_HAND,
            scope_ids=(ScopeId(error.scope),),
            vms=error.vms,
            about=str(error),
        )
        for error in shared_hosts(step)
    )


def _failure(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    return tuple(
        blocker
        for failure, blocker in facts.failures.items()
        if facts.course.hold_all
        or failure.host == step.host is not None
        or not step.scope_ids.isdisjoint(failure.scope_ids)
    )


def _canary(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    if not facts.course.canary or is_canary(facts.course, step):
        return ()
    return facts.canary_brake


def _busy(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    busy = []
    if step.host and (step.host in facts.busy_hosts or step.host in facts.taken):
        busy.append(Blocker(kind=BlockerKind.BUSY_HOST, release=Release.BY_PROGRESS))
    if soon := step.scope_ids.intersection(facts.taken):
        scope_ids = tuple(sorted(soon))
        busy.append(
            Blocker(kind=BlockerKind.BUSY_SOON, release=Release.BY_PROGRESS, scope_ids=scope_ids)
        )
    busy += [
        _busy_with(facts, event)
        for scope_id in step.scope_ids
        for event in facts.in_flight.get(scope_id, ())
        if is_in_the_way(event)
    ]
    return tuple(busy)


def _busy_with(facts: Facts, event: ScheduledEvent) -> Blocker:
    # What holds an event of its own is said of that event.
    awaited = () if facts.is_own(event) else facts.awaited([event])
    origin = f"maintenance {event.maintenance_id}" if event.maintenance_id else ""
    return Blocker(
        kind=BlockerKind.BUSY,
        release=Release.BY_HAND if awaited else Release.BY_PROGRESS,
        scope_ids=(event.scope_id,),
        vms=event.resources,
        event_ids=(event.event_id,),
        since=event.created_at,
        about=f"a step of {origin}" if origin else "not part of any maintenance",
        awaited=awaited,
    )


def _capacity(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    for share in (share for share in step.shares if share.scope_id in facts.sizes):
        members = facts.sizes[share.scope_id]
        in_flight = facts.in_flight.get(share.scope_id, ())
        lost = lost_capacity(facts.course, members, {*_vms(in_flight), *share.resources})
        if lost is None:
            continue
        scope_ids = (share.scope_id,)
        if lost_capacity(facts.course, members, frozenset(share.resources)) is not None:
            kind, release = BlockerKind.CAPACITY_NEVER, Release.BY_HAND
            return (Blocker(kind=kind, release=release, scope_ids=scope_ids, about=lost),)
        is_stuck = all(not facts.is_own(each) and facts.awaited([each]) for each in in_flight)
        blocker = Blocker(
            kind=BlockerKind.CAPACITY,
            release=Release.BY_HAND if is_stuck else Release.BY_PROGRESS,
            scope_ids=scope_ids,
            vms=_vms(in_flight),
            event_ids=_ids(in_flight),
            about=lost,
            awaited=facts.awaited(in_flight),
        )
        return (blocker,)
    return ()


def _soak(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    soaking = {
        scope_id: until
        for scope_id in step.scope_ids
        if (until := facts.soaks.get(scope_id)) and until > facts.now
    }
    if not soaking:
        return ()
    until, scope_ids = max(soaking.values()), tuple(sorted(soaking))
    return (
        Blocker(kind=BlockerKind.SOAK, release=Release.BY_TIME, until=until, scope_ids=scope_ids),
    )


def _calendar(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    if facts.course.calendar == ALWAYS:
        return ()
    opening = facts.opening(longest_notice(facts.maintenance, step, facts.snapshot))
    if opening is None:
        return (Blocker(kind=BlockerKind.CALENDAR_NEVER, release=Release.BY_HAND),)
    if opening <= facts.now:
        return ()
    return (Blocker(kind=BlockerKind.CALENDAR, release=Release.BY_TIME, until=opening),)


def _at_once(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    del step
    at_once = facts.course.at_once
    if at_once is None or facts.places < at_once:
        return ()
    return (Blocker(kind=BlockerKind.AT_ONCE, release=Release.BY_PROGRESS, about=str(at_once)),)


BRAKES: Final[tuple[Callable[[Facts, Step], tuple[Blocker, ...]], ...]] = (
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


def find_brakes(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    """Return all that these rules find to hold *step*."""
    return tuple(blocker for rule in BRAKES for blocker in rule(facts, step))


_GIVING_WAY: Final = frozenset(
    {
        BlockerKind.EARLIER_STEP,
        BlockerKind.SHARED_HOST,
        BlockerKind.FAILURE,
        BlockerKind.FAILURE_HOLDS_ALL,
        BlockerKind.BUSY,
        BlockerKind.BUSY_SOON,
        BlockerKind.BUSY_HOST,
        BlockerKind.CAPACITY,
        BlockerKind.CAPACITY_NEVER,
        BlockerKind.SOAK,
    }
)
"""What keeps a step from its own scopes or host, and is no reason for later ones to wait."""


def keeps_its_place(course: Course, blockers: Iterable[Blocker]) -> bool:
    """Tell whether later steps in the same scopes wait for one that *blockers* hold."""
    return course.in_order or not any(blocker.kind in _GIVING_WAY for blocker in blockers)


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


def _vms(events: Iterable[ScheduledEvent]) -> tuple[VmName, ...]:
    return tuple(vm for event in events for vm in event.resources)


def _ids(events: Collection[ScheduledEvent]) -> tuple[EventId, ...]:
    return tuple(event.event_id for event in events)
