"""Why a Maintenance is where it is: what holds its events and its next steps, and for how long.

No rule is written here: the blockers are what `explanation.explain` says of the events in flight,
and the brakes that `walk.walk` puts on the steps that remain. A step that only waits for an event
of its own Maintenance, or for an earlier step, has no blocker of its own: what it waits for has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from forewarn.domain.blockers import Blocker, BlockerKind, Verdict, VerdictKind, actions_for
from forewarn.domain.brakes import (
    Brake,
    BrakeKind,
    Release,
    patience_ends,
)
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.explanation import OF_HOST, Reason, ReasonKind, explain, explain_operation
from forewarn.domain.failures import Failure, Standings, find_failures
from forewarn.domain.gate import GateStatus
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance, own_events, own_operations, shared_hosts
from forewarn.domain.names import ScopeId
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.precedence import needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.walk import Stage, walk_all
from forewarn.domain.wording import say_moment
from forewarn.protocol.vocabulary import EventId, EventStatus

_BRAKES: Final[Mapping[tuple[BrakeKind, Release], BlockerKind]] = {
    (BrakeKind.CANARY, Release.BY_TIME): BlockerKind.CANARY_SOAK,
    (BrakeKind.CANARY, Release.BY_PROGRESS): BlockerKind.CANARY,
    (BrakeKind.CANARY, Release.BY_HAND): BlockerKind.CANARY_HELD,
    (BrakeKind.CAPACITY, Release.BY_PROGRESS): BlockerKind.CAPACITY,
    (BrakeKind.CAPACITY, Release.BY_HAND): BlockerKind.CAPACITY,
    (BrakeKind.SOAK, Release.BY_TIME): BlockerKind.SOAK,
    (BrakeKind.CALENDAR, Release.BY_TIME): BlockerKind.CALENDAR,
    (BrakeKind.CALENDAR, Release.BY_HAND): BlockerKind.CALENDAR_NEVER,
    (BrakeKind.AT_ONCE, Release.BY_PROGRESS): BlockerKind.AT_ONCE,
    (BrakeKind.GATE, Release.BY_PROGRESS): BlockerKind.GATE_SHUT,
    (BrakeKind.GATE, Release.BY_HAND): BlockerKind.GATE_HOLDS,
}
"""The brakes that are said with the step they hold; the others say more, or nothing."""


_APPROVALS: Final = frozenset(
    {ReasonKind.APPROVAL_OF_ANY, ReasonKind.APPROVAL_OF_ALL, ReasonKind.APPROVAL_OF_LEADER}
)


_OTHERS: Final = frozenset(
    {ReasonKind.OTHER_EVENT, ReasonKind.HOST_OPERATION_BUSY, ReasonKind.OTHER_IMPACT}
)
"""The reasons that are other events on the same virtual machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Who has paused or aborted a Maintenance, and when."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Everything that holds a Maintenance, and what becomes of it if nobody does anything.

    *not_done* are the places it has left undone for good, each with the reason.
    """

    blockers: tuple[Blocker, ...]
    verdict: Verdict
    not_done: Standings = field(default_factory=dict)


def find_standstill(
    maintenance: Maintenance,
    snapshot: Snapshot,
    now: datetime,
    *,
    interruption: Interruption | None = None,
    is_simulated: bool = False,
) -> Standstill:
    """Say what holds *maintenance* at *now*.

    *interruption* is the last time it was paused or aborted. The end of impact that *is_simulated*
    is known, that of any other is not.
    """
    if maintenance.finished_at is not None:
        return Standstill(blockers=(), verdict=Verdict(kind=VerdictKind.OVER))
    scene = _Scene(maintenance, snapshot, now, interruption, is_simulated=is_simulated)
    of_events = [tuple(scene.of_event(event)) for event in scene.in_flight]
    of_operations = {each: tuple(scene.of_operation(each)) for each in scene.operations}
    of_stages = [tuple(scene.of_stage(stage)) for stage in scene.stages]
    of_failures = () if scene.stages else tuple(scene.of_failures())
    blockers = (
        *scene.of_interruption(),
        *(blocker for found in (*of_events, *of_operations.values()) for blocker in found),
        *_merged(blocker for found in (*of_stages, of_failures) for blocker in found),
    )
    movers = [
        *scene.together(of_events, of_operations),
        *filter(None, [of_failures]),
        *(
            (*found, *scene.afterwards(stage, found))
            for stage, found in zip(scene.stages, of_stages, strict=True)
            if not scene.is_dependent(stage)
        ),
    ]
    return Standstill(blockers=blockers, verdict=_verdict(movers, blockers, now))


class _Scene:
    """One Maintenance, and what its blockers are made of."""

    def __init__(
        self,
        maintenance: Maintenance,
        snapshot: Snapshot,
        now: datetime,
        interruption: Interruption | None,
        *,
        is_simulated: bool,
    ) -> None:
        self._maintenance = maintenance
        self._interruption = interruption
        self._snapshot = snapshot
        self._now = now
        self._is_simulated = is_simulated
        events = tuple(own_events(maintenance, snapshot.events.values()))
        self._has_begun = bool(events)
        self.in_flight = tuple(event for event in events if event.is_in_flight)
        own = own_operations(maintenance, snapshot.operations.values())
        self.operations = tuple(each for each in own if not each.is_over)
        self.stages = walk_all(snapshot, now)[maintenance.maintenance_id]
        self._own = {event.event_id for event in self.in_flight}
        self._holders = {
            each.host: each.maintenance_id
            for each in snapshot.operations.values()
            if not each.is_over
        }

    def of_interruption(self) -> Iterator[Blocker]:
        """Say who has paused or aborted it, if somebody has."""
        if self._maintenance.is_aborted:
            yield self._interrupted(BlockerKind.ABORTED, Release.BY_PROGRESS)

    def of_event(self, event: ScheduledEvent) -> Iterator[Blocker]:
        """Yield what holds *event*, and whether that takes longer than expected."""
        reasons = explain(event, self._snapshot, self._now, speed=self._snapshot.speed)
        # Events of a host operation start together: what holds another one holds this one too.
        latest = max((each.until for each in reasons if each.holds and each.until), default=None)
        if any(each.kind in _OTHERS or _is_shut_out(each) for each in reasons):
            latest = None
        for reason in reasons:
            # What holds a host operation is said once, not for each of its events.
            is_of_event = reason.kind not in OF_HOST
            if is_of_event and (reason.holds or reason.kind is ReasonKind.OVERDUE):
                yield self._of_reason(event, reason, latest)

    def of_operation(self, operation: HostOperation) -> Iterator[Blocker]:
        """Yield what holds *operation*, beside what holds its events."""
        events = [each for each in self.in_flight if each.operation_id == operation.operation_id]
        for reason in explain_operation(operation, self._snapshot, self._now):
            is_lost = reason.kind is ReasonKind.HOST_UNKNOWN and reason.until is None
            is_by_hand = is_lost or reason.kind is ReasonKind.HOST_PAUSED
            release = Release.BY_HAND if is_by_hand else Release.BY_PROGRESS
            yield Blocker(
                kind=reason.kind,
                release=release,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=tuple(dict.fromkeys(event.scope_id for event in events)),
                vms=reason.vms,
                event_ids=tuple(event.event_id for event in events),
                until=reason.until,
                about=reason.sentence,
                place=operation.host,
            )

    def together(
        self,
        of_events: Sequence[tuple[Blocker, ...]],
        of_operations: Mapping[HostOperation, tuple[Blocker, ...]],
    ) -> Iterator[tuple[Blocker, ...]]:
        """Yield all that holds each event, and each host operation that has none in flight."""
        by_id = {each.operation_id: found for each, found in of_operations.items()}
        for event, found in zip(self.in_flight, of_events, strict=True):
            yield (*found, *(by_id.get(event.operation_id, ()) if event.operation_id else ()))
        told = {event.operation_id for event in self.in_flight}
        yield from (found for key, found in by_id.items() if key not in told)

    def of_failures(self) -> Iterator[Blocker]:
        """Yield what has to be decided about before it is over."""
        if not self._maintenance.is_aborted:
            snapshot = self._snapshot
            events, operations = snapshot.events.values(), snapshot.operations.values()
            yield from self._failures(find_failures(self._maintenance, events, operations))

    def of_stage(self, stage: Stage) -> Iterator[Blocker]:
        """Yield what holds *stage*."""
        if (pause := self._snapshot.server_pause) is not None:
            yield Blocker(
                kind=BlockerKind.SERVER_PAUSED,
                release=Release.BY_HAND,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=tuple(sorted(stage.step.scope_ids)),
                since=pause.since,
                about=f"{pause.who} since {_say(pause.since)}",
            )
        for brake in stage.brakes:
            match brake.kind:
                case BrakeKind.PAUSED:
                    yield self._interrupted(BlockerKind.PAUSED, Release.BY_HAND)
                case BrakeKind.SHARED_HOST:
                    yield from self._shared_host(stage)
                case BrakeKind.FAILURE:
                    yield from self._failures(brake.failures)
                case BrakeKind.BUSY:
                    yield from self._busy(stage, brake)
                case _:
                    yield from self._of_step(stage, brake)

    def afterwards(self, stage: Stage, found: Sequence[Blocker]) -> Iterator[Blocker]:
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
        asks_gates = bool(maintenance.course.gates) and self._has_begun
        is_known = opening is not None and not asks_gates
        yield Blocker(
            kind=BlockerKind.GATE_ASKED if asks_gates else BlockerKind.CALENDAR,
            release=Release.BY_TIME if is_known else Release.BY_PROGRESS,
            maintenance_id=maintenance.maintenance_id,
            until=opening,
        )

    def is_dependent(self, stage: Stage) -> bool:
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

    def _interrupted(self, kind: BlockerKind, release: Release) -> Blocker:
        last = self._interruption
        return Blocker(
            kind=kind,
            release=release,
            maintenance_id=self._maintenance.maintenance_id,
            since=last.at if last else None,
            about=f" by {last.who} at {_say(last.at)}" if last else "",
        )

    def _of_reason(self, event: ScheduledEvent, reason: Reason, latest: datetime | None) -> Blocker:
        about, until = reason.sentence, reason.until
        awaited: tuple[EventId, ...] = ()
        if reason.kind is ReasonKind.SERVER_PAUSED or _is_shut_out(reason):
            release = Release.BY_HAND
        elif reason.kind in _OTHERS:
            awaited = needing_somebody(event, self._snapshot)
            release = Release.BY_HAND if awaited else Release.BY_PROGRESS
        elif event.event_status is EventStatus.SCHEDULED:
            release, until = Release.BY_TIME, until or self._now
            if latest and reason.kind in _APPROVALS:
                about += f" It starts at {_say(latest)} at the latest."
        else:
            release = self._release(reason)
        return Blocker(
            kind=reason.kind,
            release=release,
            maintenance_id=self._maintenance.maintenance_id,
            scope_ids=(event.scope_id,),
            vms=reason.vms,
            event_ids=(event.event_id,),
            since=reason.since,
            until=until,
            about=about,
            awaited=awaited,
        )

    def _release(self, reason: Reason) -> Release:
        is_asked_again = reason.until is not None
        if reason.kind is ReasonKind.BY_HAND:
            return Release.BY_HAND
        if reason.kind is ReasonKind.UNKNOWN and not is_asked_again:
            return Release.BY_HAND
        # When it is asked again, impact that is simulated has ended.
        is_over_then = self._is_simulated and reason.kind is ReasonKind.RUNNING and is_asked_again
        return Release.BY_TIME if is_over_then else Release.BY_PROGRESS

    def _of_step(self, stage: Stage, brake: Brake) -> Iterator[Blocker]:
        if self._is_behind(stage):
            return
        if brake.kind is BrakeKind.CANARY and brake.release is Release.BY_HAND:
            yield from self._failures(brake.failures)
        yield self._of_brake(stage, brake)

    def _is_behind(self, stage: Stage) -> bool:
        """Tell whether *stage* comes after another, or after one that is in flight."""
        return any(
            brake.kind is BrakeKind.EARLIER_STEP
            or (brake.kind is BrakeKind.BUSY and not self._own.isdisjoint(brake.event_ids))
            for brake in stage.brakes
        )

    def _of_brake(self, stage: Stage, brake: Brake) -> Blocker:
        kind, until, about = _BRAKES[brake.kind, brake.release], brake.until, brake.detail
        release = brake.release
        places: tuple[str, ...] = ()
        awaited: tuple[EventId, ...] = ()
        if brake.kind is BrakeKind.CANARY:
            about = ", ".join(self._maintenance.course.canary)
        elif brake.kind is BrakeKind.CAPACITY:
            needing = [needing_somebody(event, self._snapshot) for event in self._events(brake)]
            awaited = tuple(dict.fromkeys(event_id for found in needing for event_id in found))
            kind = kind if brake.event_ids else BlockerKind.CAPACITY_NEVER
        elif brake.kind is BrakeKind.AT_ONCE:
            about = str(self._maintenance.course.at_once)
            places = self._places
        elif brake.kind is BrakeKind.GATE:
            kind, until = self._gate(stage, kind)
            said = " / ".join(brake.detail.splitlines())
            about = f"{brake.gate} ({said})" if said else brake.gate
        return Blocker(
            kind=kind,
            release=release,
            maintenance_id=self._maintenance.maintenance_id,
            scope_ids=brake.scope_ids or tuple(sorted(stage.step.scope_ids)),
            vms=tuple(vm for event in self._events(brake) for vm in event.resources),
            event_ids=brake.event_ids,
            until=until,
            about=about,
            places=places,
            awaited=awaited,
        )

    @cached_property
    def _places(self) -> tuple[str, ...]:
        """Return the scopes or hosts that are under way, or that ask a gate whether they may be."""
        flying = (
            *(event.host or event.scope_id for event in self.in_flight),
            *(operation.host for operation in self.operations),
        )
        asking = (stage.step.place for stage in self.stages if stage.awaited and not stage.is_stuck)
        return tuple(dict.fromkeys((*flying, *asking)))

    def _gate(self, stage: Stage, kind: BlockerKind) -> tuple[BlockerKind, datetime | None]:
        answer = self._snapshot.answers.get(stage.awaited) if stage.awaited else None
        if answer is None or answer.status is not GateStatus.SHUT:
            return BlockerKind.GATE_ASKED, None
        return kind, patience_ends(self._maintenance, answer, self._now)

    def _shared_host(self, stage: Stage) -> Iterator[Blocker]:
        for error in shared_hosts(stage.step):
            yield Blocker(
                kind=BlockerKind.SHARED_HOST,
                release=Release.BY_HAND,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=(ScopeId(error.scope),),
                vms=error.vms,
                about=str(error),
            )

    def _failures(self, failures: Iterable[Failure]) -> Iterator[Blocker]:
        holds_all = self._maintenance.course.hold_all
        for failure in failures:
            reason = f": {failure.reason}" if failure.reason else ""
            yield Blocker(
                kind=BlockerKind.FAILURE_HOLDS_ALL if holds_all else BlockerKind.FAILURE,
                release=Release.BY_HAND,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=failure.scope_ids,
                vms=failure.vms,
                event_ids=failure.event_ids,
                since=failure.ended_at,
                about=f"{failure.ending} at {_say(failure.ended_at)}{reason}",
                place=failure.place,
            )

    def _busy(self, stage: Stage, brake: Brake) -> Iterator[Blocker]:
        holder = self._holders.get(brake.host) if brake.host else None
        if brake.host and holder != self._maintenance.maintenance_id:
            yield Blocker(
                kind=BlockerKind.BUSY_HOST,
                release=Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=tuple(sorted(stage.step.scope_ids)),
                place=brake.host,
            )
        elif not brake.event_ids and brake.scope_ids:
            yield Blocker(
                kind=BlockerKind.BUSY_SOON,
                release=Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=brake.scope_ids,
            )
        for event in self._events(brake):
            if event.maintenance_id == self._maintenance.maintenance_id:
                continue
            origin = f"maintenance {event.maintenance_id}" if event.maintenance_id else ""
            awaited = needing_somebody(event, self._snapshot)
            yield Blocker(
                kind=BlockerKind.BUSY,
                release=Release.BY_HAND if awaited else Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=(event.scope_id,),
                vms=event.resources,
                event_ids=(event.event_id,),
                since=event.created_at,
                about=f"a step of {origin}" if origin else "no part of any maintenance",
                awaited=awaited,
            )

    def _events(self, brake: Brake) -> Iterator[ScheduledEvent]:
        return map(self._snapshot.events.__getitem__, brake.event_ids)


def _merged(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """Yield each blocker once, with all the scopes it holds."""
    scopes: dict[Blocker, dict[ScopeId, None]] = {}
    for blocker in blockers:
        found = scopes.setdefault(replace(blocker, scope_ids=()), {})
        found.update(dict.fromkeys(blocker.scope_ids))
    return (replace(blocker, scope_ids=tuple(found)) for blocker, found in scopes.items())


def _verdict(
    movers: Sequence[Sequence[Blocker]], blockers: Sequence[Blocker], now: datetime
) -> Verdict:
    """Say when the first of *movers* goes on, each of which waits for all of its blockers."""
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
    return Verdict(kind=VerdictKind.NEVER, actions=actions_for(blockers))


def _is_shut_out(reason: Reason) -> bool:
    """Tell whether the calendar never has room for the event again."""
    return reason.kind is ReasonKind.WINDOW and reason.until is None


def _say(moment: datetime | None) -> str:
    return "" if moment is None else say_moment(moment)
