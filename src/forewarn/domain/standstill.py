"""Why a Maintenance is where it is: what holds its events and its next steps, and for how long.

No rule is written here: the blockers are what `explanation.explain` says of the events in flight,
and the brakes that `walk.walk` puts on the steps that remain.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from forewarn.domain.blockers import (
    Blocker,
    BlockerKind,
    BrakeKind,
    Release,
    Verdict,
    VerdictKind,
    remedies_for,
)
from forewarn.domain.brakes import failure_blocker, task_blocker
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.explanation import explain_itself, explain_operation, explain_window
from forewarn.domain.failures import Failure, Standings, find_failures
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import (
    Maintenance,
    canary_parts,
    is_canary,
    own_events,
    own_operations,
)
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.phrases import say_moment
from forewarn.domain.precedence import due_starts, needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.walk import Stage, Walks, find_stuck, walk_all
from forewarn.domain.why import OF_OTHERS, Reason, ReasonKind
from forewarn.protocol.vocabulary import EventId, EventStatus

T = TypeVar("T")

Covers: TypeAlias = Callable[[ScopeId], bool]
"""Tells whether somebody may know what is in a scope."""
EVERYTHING: Final[Covers] = lambda _: True  # noqa: E731

_APPROVALS: Final = frozenset(
    {ReasonKind.APPROVAL_OF_ANY, ReasonKind.APPROVAL_OF_ALL, ReasonKind.APPROVAL_OF_LEADER}
)
_BY_HAND: Final = frozenset(
    {
        ReasonKind.SERVER_PAUSED,
        ReasonKind.BY_HAND,
        ReasonKind.NO_EXECUTOR,
        ReasonKind.HOST_PAUSED,
        ReasonKind.OTHER_TASK_UNKNOWN,
    }
)
"""The reasons that remain until somebody acts."""
_OF_OTHERS: Final = OF_OTHERS | {ReasonKind.OTHER_TASK, ReasonKind.OTHER_TASK_UNKNOWN}
"""The reasons that end with something else, at an unknown time."""
_UNKNOWN: Final = frozenset({ReasonKind.WINDOW, ReasonKind.UNKNOWN, ReasonKind.HOST_UNKNOWN})
"""The reasons that do, too, unless it is known when they are looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Who has paused or aborted a Maintenance, and when."""

    who: str
    at: datetime

    def explain(self, blocker: Blocker) -> Blocker:
        """Return *blocker*, with who is behind it if it is this."""
        if blocker.kind not in {BlockerKind.PAUSED, BlockerKind.ABORTED}:
            return blocker
        return replace(blocker, since=self.at, about=f" by {self.who} at {say_moment(self.at)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Everything that holds a Maintenance, and what becomes of it if nobody does anything.

    *not_done* are the places it has left undone for good, each with the reason.
    """

    blockers: tuple[Blocker, ...]
    verdict: Verdict
    not_done: Standings = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """One reason that holds one event, and how that ends.

    The event starts at *latest*, if that is known.
    """

    event: ScheduledEvent
    reason: Reason
    release: Release
    until: datetime | None
    awaited: tuple[EventId, ...]
    latest: datetime | None

    @property
    def kind(self) -> ReasonKind:
        return self.reason.kind


def find_standstill(
    maintenance: Maintenance,
    snapshot: Snapshot,
    now: datetime,
    *,
    interruption: Interruption | None = None,
    is_simulated: bool = False,
    walks: Walks | None = None,
    covers: Covers = EVERYTHING,
) -> Standstill:
    """Say what holds *maintenance* at *now*.

    *interruption* is the last time it was paused or aborted. The end of impact that *is_simulated*
    is known, that of any other is not. *walks* is what `walk_all` says; whoever asks of many
    Maintenances looks that up once. Scopes that *covers* tells apart are not said together.
    """
    if maintenance.finished_at is not None:
        return Standstill(blockers=(), verdict=Verdict(kind=VerdictKind.OVER))
    flight = InFlight(maintenance, snapshot, now, is_simulated=is_simulated)
    ahead = Ahead(flight, walk_all(snapshot, now) if walks is None else walks)
    aborted = Blocker(kind=BlockerKind.ABORTED, release=Release.BY_PROGRESS)
    blockers = (
        *([aborted] if maintenance.is_aborted else ()),
        *flight.of_events(covers),
        *chain.from_iterable(flight.of_operations.values()),
        *_merged(chain.from_iterable((*ahead.of_stages, ahead.of_failures, ahead.of_tasks))),
    )
    if interruption is not None:
        blockers = tuple(map(interruption.explain, blockers))
    verdict = _verdict([*flight.movers(), *ahead.movers()], now)
    is_under_way = bool(flight.events or flight.operations)
    is_last = maintenance.is_paused if not ahead.stages else ahead.is_stuck
    if verdict.kind is not VerdictKind.NEVER and find_stuck(maintenance, snapshot):
        verdict = Verdict(kind=VerdictKind.STUCK, until=verdict.until)
    elif verdict.kind is not VerdictKind.NEVER and is_under_way and is_last:
        verdict = Verdict(kind=VerdictKind.NO_FURTHER_STEP)
    if verdict.needs_operator or verdict.kind is VerdictKind.NO_FURTHER_STEP:
        verdict = replace(verdict, remedies=remedies_for(blockers, maintenance.maintenance_id))
    return Standstill(blockers=blockers, verdict=verdict)


def _merged(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """Yield each blocker once, with all the scopes and hosts it holds."""
    held: dict[Blocker, tuple[dict[ScopeId, None], dict[HostName, None]]] = {}
    for blocker in blockers:
        scope_ids, hosts = held.setdefault(replace(blocker, scope_ids=(), hosts=()), ({}, {}))
        scope_ids.update(dict.fromkeys(blocker.scope_ids))
        hosts.update(dict.fromkeys(blocker.hosts))
    for blocker, (scope_ids, hosts) in held.items():
        yield replace(blocker, scope_ids=tuple(scope_ids), hosts=tuple(hosts))


def _verdict(movers: Sequence[Sequence[Blocker | _Hold]], now: datetime) -> Verdict:
    """Say when the first of *movers* goes on, each of which waits for all of its blockers.

    One is enough: whatever moves may release the others, and then they are looked at again.
    """
    if not movers or not all(movers):
        return Verdict(kind=VerdictKind.NOW, until=now)
    # That something takes longer than expected is good to know, but does not hold it.
    releases = [
        {blocker.release for blocker in mover if blocker.kind is not ReasonKind.OVERDUE}
        for mover in movers
    ]
    moments = [
        max(blocker.until or now for blocker in mover)
        for mover, found in zip(movers, releases, strict=True)
        if found == {Release.BY_TIME}
    ]
    if moments:
        return Verdict(kind=VerdictKind.BY_TIME, until=min(moments))
    if any(Release.BY_HAND not in found for found in releases):
        return Verdict(kind=VerdictKind.BY_PROGRESS)
    return Verdict(kind=VerdictKind.NEVER)


class InFlight:
    """The events and host operations of one Maintenance that are not over.

    *of_operations* are what holds each operation, beside what holds its events.
    """

    def __init__(
        self, maintenance: Maintenance, snapshot: Snapshot, now: datetime, *, is_simulated: bool
    ) -> None:
        self.maintenance = maintenance
        self.snapshot = snapshot
        self.now = now
        self._is_simulated = is_simulated
        self.own_events = tuple(own_events(maintenance, snapshot.events.values()))
        self.own_operations = tuple(own_operations(maintenance, snapshot.operations.values()))
        self.events = tuple(event for event in self.own_events if event.is_in_flight)
        self.operations = tuple(each for each in self.own_operations if not each.is_over)
        self.of_operations = {
            each.operation_id: tuple(self._of_operation(each)) for each in self.operations
        }
        starting = due_starts(snapshot, now) if self.events else {}
        self._holds = [
            (events[0].operation_id, tuple(self._find_holds(events, starting)))
            for events in _together(self.events)
        ]

    @property
    def places(self) -> Iterator[str]:
        """The hosts or scopes that are under way."""
        yield from (event.host or event.scope_id for event in self.events)
        yield from (operation.host for operation in self.operations)

    def of_events(self, covers: Covers) -> Iterator[Blocker]:
        """Yield what holds the events; what is alike for those of a host operation, once.

        Those of scopes that *covers* tells apart are not said together.
        """
        alike: dict[Hashable, list[_Hold]] = {}
        for hold in chain.from_iterable(holds for _, holds in self._holds):
            event, reason = hold.event, hold.reason
            place = event.operation_id or event.event_id
            key = (place, covers(event.scope_id), reason.kind, reason.about, hold.release)
            alike.setdefault(key, []).append(hold)
        return map(_say, alike.values())

    def movers(self) -> Iterator[tuple[Blocker | _Hold, ...]]:
        """Yield all that holds each event, and each host operation that has none in flight.

        Events that start together are held together. One that only waits for the impacts of others
        on its host moves when they do.
        """
        for operation_id, holds in self._holds:
            beside = self.of_operations.get(operation_id, ()) if operation_id else ()
            found: tuple[Blocker | _Hold, ...] = (*holds, *beside)
            if {each.kind for each in found} - {ReasonKind.OVERDUE} != {ReasonKind.HOST_GUESTS}:
                yield found
        told = {operation_id for operation_id, _ in self._holds}
        yield from (found for key, found in self.of_operations.items() if key not in told)

    def _find_holds(
        self, events: Sequence[ScheduledEvent], starting: Collection[EventId]
    ) -> Iterator[_Hold]:
        """Yield what holds *events*, which start together, and which takes longer than expected."""
        snapshot, now = self.snapshot, self.now
        window = tuple(explain_window(events, snapshot, now))
        found = [
            (event, reason)
            for event in events
            for reason in (*explain_itself(event, snapshot, now, starting), *window)
            if reason.holds or reason.kind is ReasonKind.OVERDUE
        ]
        # What holds one of them holds them all.
        latest = max((each.until for _, each in found if each.holds and each.until), default=None)
        is_shut_out = any(reason.until is None for reason in window)
        if is_shut_out or any(reason.kind in _OF_OTHERS for _, reason in found):
            latest = None
        yield from (self._hold(event, reason, latest) for event, reason in found)

    def _of_operation(self, operation: HostOperation) -> Iterator[Blocker]:
        """Yield what holds *operation*, beside what holds its events."""
        every = self.snapshot.events_of.get(operation.operation_id, ())
        events = [event for event in every if event.is_in_flight]
        for reason in explain_operation(operation, self.snapshot, self.now):
            yield Blocker(
                kind=reason.kind,
                release=Release.BY_HAND if _is_by_hand(reason) else Release.BY_PROGRESS,
                scope_ids=tuple(dict.fromkeys(event.scope_id for event in events)),
                hosts=(operation.host,),
                vms=reason.vms,
                event_ids=tuple(event.event_id for event in events),
                until=reason.until,
                about=reason.sentence,
                place=operation.host,
                task_ids=reason.task_ids,
            )

    def _hold(self, event: ScheduledEvent, reason: Reason, latest: datetime | None) -> _Hold:
        """Return how it ends that *reason* holds *event*."""
        until = reason.until
        awaited: tuple[EventId, ...] = ()
        if _is_by_hand(reason):
            release = Release.BY_HAND
        elif reason.kind is ReasonKind.OTHER_TASK:
            release = Release.BY_PROGRESS
        elif reason.kind in OF_OTHERS:
            awaited = self._needing_somebody(event, reason)
            release = Release.BY_HAND if awaited else Release.BY_PROGRESS
        elif event.event_status is EventStatus.SCHEDULED:
            release, until = Release.BY_TIME, until or self.now
        else:
            # When it is asked again, impact that is simulated has ended.
            is_over_then = self._is_simulated and reason.kind is ReasonKind.RUNNING and until
            release = Release.BY_TIME if is_over_then else Release.BY_PROGRESS
        is_approval = reason.kind in _APPROVALS
        return _Hold(
            event=event,
            reason=reason,
            release=release,
            until=until,
            awaited=awaited,
            latest=latest if is_approval else None,
        )

    def _needing_somebody(self, event: ScheduledEvent, reason: Reason) -> tuple[EventId, ...]:
        """Return what an operator has to complete, or *event* waits forever."""
        is_waiting = event.event_status is EventStatus.SCHEDULED
        # What its partners wait for is said of these.
        others = (
            [self.snapshot.events[each] for each in reason.event_ids] if is_waiting else [event]
        )
        return _each_once(needing_somebody(each, self.snapshot) for each in others)


def _together(events: Iterable[ScheduledEvent]) -> Iterable[Sequence[ScheduledEvent]]:
    """Return *events* as they start: those of a host operation together, until they have."""
    found: dict[str, list[ScheduledEvent]] = {}
    for event in events:
        is_waiting = event.event_status is EventStatus.SCHEDULED
        key = event.operation_id if is_waiting else None
        found.setdefault(key or event.event_id, []).append(event)
    return found.values()


def _say(holds: Sequence[_Hold]) -> Blocker:
    """Return *holds*, of which the same is to be said, as one blocker."""
    first, reason = holds[0], holds[0].reason
    events = {hold.event.event_id: hold.event for hold in holds}
    if len(holds) > 1:
        reason = replace(
            reason,
            vms=_each_once(hold.reason.vms for hold in holds),
            event_ids=_each_once(hold.reason.event_ids for hold in holds),
            task_ids=_each_once(hold.reason.task_ids for hold in holds),
            since=min(filter(None, (hold.reason.since for hold in holds)), default=None),
            until=max(filter(None, (hold.reason.until for hold in holds)), default=None),
        )
    about = reason.say_of(len(events))
    if first.latest:
        subject = "The event starts" if len(events) == 1 else "The events start"
        about += f" {subject} at {say_moment(first.latest)} at the latest."
    return Blocker(
        kind=reason.kind,
        release=first.release,
        scope_ids=tuple(dict.fromkeys(event.scope_id for event in events.values())),
        hosts=_hosts(first.event.host),
        vms=reason.vms,
        event_ids=tuple(events),
        since=reason.since,
        until=max(filter(None, (hold.until for hold in holds)), default=None),
        about=about,
        awaited=_each_once(hold.awaited for hold in holds),
        task_ids=reason.task_ids,
    )


def _each_once(names: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _is_by_hand(reason: Reason) -> bool:
    return reason.kind in _BY_HAND or (reason.kind in _UNKNOWN and reason.until is None)


class Ahead:
    """The steps that one Maintenance has before it, with *of_stages*, what holds each.

    A step that only waits for an event of its own Maintenance, or for an earlier step, has no
    blocker of its own: what it waits for has. By host, such steps are still said to wait, all in
    one sentence.
    """

    def __init__(self, flight: InFlight, walks: Walks) -> None:
        self._maintenance, self._snapshot = flight.maintenance, flight.snapshot
        self._now = flight.now
        self._events, self._operations = flight.own_events, flight.own_operations
        self._own = {event.event_id for event in flight.events}
        self._under_way = tuple(flight.places)
        self.stages = walks[self._maintenance.maintenance_id]
        self.of_stages = tuple(tuple(self._of_stage(stage)) for stage in self.stages)
        self.of_failures = () if self.stages else tuple(self._undecided())
        self.of_tasks = tuple(self._left_over(flight.events))

    @property
    def is_stuck(self) -> bool:
        """Whether no step begins unless somebody acts."""
        return all(stage.is_stuck for stage in self.stages)

    def movers(self) -> Iterator[tuple[Blocker, ...]]:
        """Yield all that holds each step that waits for no other of the same Maintenance."""
        yield from filter(None, [self.of_failures])
        yield from ((blocker,) for blocker in self.of_tasks)
        for stage, found in zip(self.stages, self.of_stages, strict=True):
            if not self._is_dependent(stage):
                yield (*found, *self._afterwards(stage, found))

    def _undecided(self) -> Iterator[Blocker]:
        """Yield what has to be decided about before it is over."""
        if not self._maintenance.is_aborted:
            for failure in find_failures(self._maintenance, self._events, self._operations):
                yield self._failed(failure, failure.host)

    def _left_over(self, in_flight: Sequence[ScheduledEvent]) -> Iterator[Blocker]:
        """Yield the tasks that keep it from ending and of which neither step nor event says so."""
        own = {event.event_id: event.scope_id for event in self._events}
        hosts = {each.operation_id for each in self._operations}
        told = {event.operation_id for event in in_flight}
        said = {key for found in self.of_stages for each in found for key in each.task_ids}
        for task in self._snapshot.lingering:
            scope_id, is_of_host = own.get(EventId(task.subject)), task.subject in hosts - told
            if task.task_id not in said and (scope_id or is_of_host):
                place = task.host if self._maintenance.hosts else None
                scope_ids = (scope_id,) if scope_id else ()
                blocker = task_blocker(task, self._snapshot, scope_ids=scope_ids)
                yield replace(blocker, hosts=_hosts(place))

    def _of_stage(self, stage: Stage) -> Iterator[Blocker]:
        found = [said for blocker in stage.blockers for said in self._say(stage, blocker)]
        yield from found
        if not found and stage.step.host and self._is_behind(stage):
            waiting = Blocker(kind=BlockerKind.EARLIER_STEP, release=Release.BY_PROGRESS)
            yield _placed(waiting, stage)

    def _say(self, stage: Stage, blocker: Blocker) -> Iterator[Blocker]:
        """Yield what there is to say of *blocker*, on the step it holds."""
        match blocker.kind:
            case BlockerKind.PAUSED:
                yield blocker
            case BlockerKind.FAILURE | BlockerKind.FAILURE_HOLDS_ALL:
                yield replace(blocker, hosts=_hosts(stage.step.host))
            case BlockerKind.SERVER_PAUSED | BlockerKind.SHARED_HOST:
                yield _placed(blocker, stage)
            case BlockerKind.BUSY | BlockerKind.BUSY_HOST | BlockerKind.BUSY_SOON:
                if self._is_of_others(stage, blocker):
                    yield _placed(blocker, stage)
            case _ if not self._is_behind(stage):
                if blocker.kind is BlockerKind.CANARY_HELD:
                    yield from self._failed_canaries(stage)
                places = self._places if blocker.kind is BlockerKind.AT_ONCE else ()
                yield replace(_placed(blocker, stage), places=places)
            case _:
                pass

    def _is_of_others(self, stage: Stage, busy: Blocker) -> bool:
        """Tell whether what keeps *stage* busy is not of its own Maintenance.

        That others are about to begin there is worth a word only where nothing is under way yet.
        """
        kinds = {blocker.kind for blocker in stage.blockers}
        is_host_taken = BlockerKind.BUSY_HOST in kinds and not self._holds(stage.step.host)
        if busy.kind is BlockerKind.BUSY_HOST:
            return is_host_taken
        if busy.kind is BlockerKind.BUSY_SOON:
            return not is_host_taken and BlockerKind.BUSY not in kinds
        return self._own.isdisjoint(busy.event_ids)

    def _holds(self, host: HostName | None) -> bool:
        """Tell whether its own operation is the one that is under way on *host*."""
        return any(each.host == host and not each.is_over for each in self._operations)

    def _failed_canaries(self, stage: Stage) -> Iterator[Blocker]:
        """Yield what went wrong with the canaries, when all have had their turn."""
        course = self._maintenance.course
        if not any(is_canary(course, each.step) for each in self.stages):
            canaries = canary_parts(course, self._events, self._operations)
            for failure in find_failures(self._maintenance, *canaries):
                yield self._failed(failure, stage.step.host)

    def _failed(self, failure: Failure, host: HostName | None) -> Blocker:
        blocker = failure_blocker(self._maintenance, failure, self._snapshot)
        return replace(blocker, hosts=_hosts(host))

    def _afterwards(self, stage: Stage, found: Sequence[Blocker]) -> Iterator[Blocker]:
        """Yield what holds *stage* when all that was *found* has let go, if that is known when."""
        if not found or any(blocker.release is not Release.BY_TIME for blocker in found):
            return
        maintenance, snapshot = self._maintenance, self._snapshot
        opening = next_beginning(
            maintenance.course,
            max(blocker.until or self._now for blocker in found),
            notice=longest_notice(maintenance, stage.step, snapshot),
            impact=expected_impact(maintenance, snapshot),
        )
        asks_gates = bool(maintenance.course.gates and self._events)
        is_known = opening is not None and not asks_gates
        yield Blocker(
            kind=BlockerKind.GATE_ASKED if asks_gates else BlockerKind.CALENDAR,
            release=Release.BY_TIME if is_known else Release.BY_PROGRESS,
            until=opening,
        )

    def _is_dependent(self, stage: Stage) -> bool:
        """Tell whether *stage* waits for another, or for an event of the same Maintenance."""
        return any(
            brake.kind in {BrakeKind.EARLIER_STEP, BrakeKind.AT_ONCE}
            or (brake.kind is BrakeKind.CANARY and not (brake.until or brake.event_ids))
            or (
                brake.release is Release.BY_PROGRESS
                and bool(brake.event_ids)
                and self._own.issuperset(brake.event_ids)
            )
            for brake in stage.brakes
        )

    def _is_behind(self, stage: Stage) -> bool:
        """Tell whether *stage* comes after another, or after one that is in flight."""
        return any(
            blocker.kind is BlockerKind.EARLIER_STEP
            or (blocker.kind is BlockerKind.BUSY and not self._own.isdisjoint(blocker.event_ids))
            for blocker in stage.blockers
        )

    @cached_property
    def _places(self) -> tuple[str, ...]:
        """The scopes or hosts that are under way, or that ask a gate whether they may be."""
        stages = self.stages
        asking = (stage.step.place for stage in stages if stage.awaited and not stage.is_stuck)
        return tuple(dict.fromkeys((*self._under_way, *asking)))


def _placed(blocker: Blocker, stage: Stage) -> Blocker:
    """Return *blocker* as what holds the step of *stage*, which it does not know."""
    scope_ids = blocker.scope_ids or tuple(sorted(stage.step.scope_ids))
    return replace(blocker, scope_ids=scope_ids, hosts=_hosts(stage.step.host))


def _hosts(host: HostName | None) -> tuple[HostName, ...]:
    return (host,) if host else ()
