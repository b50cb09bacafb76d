"""What holds the steps that a Maintenance still has before it.

A step that only waits for an event of its own Maintenance, or for an earlier step, has no blocker
of its own: what it waits for has. By host, such steps are still said to wait, all in one sentence.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from forewarn.domain.blockers import Blocker, BlockerKind
from forewarn.domain.brakes import Brake, BrakeKind, Release
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure, find_failures
from forewarn.domain.gate import GateStatus
from forewarn.domain.gate_brakes import patience_ends
from forewarn.domain.maintenance import Maintenance, own_events, shared_hosts
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.precedence import needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.walk import Stage, walk_all
from forewarn.domain.wording import say_moment
from forewarn.protocol.vocabulary import EventId

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Who has paused or aborted a Maintenance, and when."""

    who: str
    at: datetime


class Ahead:
    """The steps that one Maintenance has before it, with *of_stages*, what holds each.

    *under_way* are the hosts or scopes at which it is just now.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        snapshot: Snapshot,
        now: datetime,
        *,
        interruption: Interruption | None,
        under_way: Collection[str],
    ) -> None:
        self._maintenance = maintenance
        self._snapshot = snapshot
        self._now = now
        self._interruption = interruption
        events = tuple(own_events(maintenance, snapshot.events.values()))
        self._has_begun = bool(events)
        self._own = {event.event_id for event in events if event.is_in_flight}
        self._under_way = under_way
        self._stages = walk_all(snapshot, now)[maintenance.maintenance_id]
        self.of_stages = tuple(tuple(self._of_stage(stage)) for stage in self._stages)
        self.of_failures = () if self._stages else tuple(self._undecided())

    def movers(self) -> Iterator[tuple[Blocker, ...]]:
        """Yield all that holds each step that waits for no other of the same Maintenance."""
        yield from filter(None, [self.of_failures])
        for stage, found in zip(self._stages, self.of_stages, strict=True):
            if not self._is_dependent(stage):
                yield (*found, *self._afterwards(stage, found))

    def of_abort(self) -> Iterator[Blocker]:
        """Say who has aborted it, if somebody has."""
        if self._maintenance.is_aborted:
            yield self._interrupted(BlockerKind.ABORTED, Release.BY_PROGRESS)

    def _undecided(self) -> Iterator[Blocker]:
        """Yield what has to be decided about before it is over."""
        if not self._maintenance.is_aborted:
            snapshot = self._snapshot
            events, operations = snapshot.events.values(), snapshot.operations.values()
            for failure in find_failures(self._maintenance, events, operations):
                yield from self._failures([failure], (failure.host,) if failure.host else ())

    def _of_stage(self, stage: Stage) -> Iterator[Blocker]:
        found = [blocker for brake in stage.brakes for blocker in self._of_brake(stage, brake)]
        yield from found
        if not found and stage.step.host and self._is_behind(stage):
            yield Blocker(
                kind=BlockerKind.EARLIER_STEP,
                release=Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=tuple(sorted(stage.step.scope_ids)),
                hosts=_hosts(stage),
            )

    def _of_brake(self, stage: Stage, brake: Brake) -> Iterator[Blocker]:
        match brake.kind:
            case BrakeKind.SERVER_PAUSED:
                yield self._server_paused(stage, brake)
            case BrakeKind.PAUSED:
                yield self._interrupted(BlockerKind.PAUSED, Release.BY_HAND)
            case BrakeKind.SHARED_HOST:
                yield from self._shared_host(stage)
            case BrakeKind.FAILURE:
                yield from self._failures(brake.failures, _hosts(stage))
            case BrakeKind.BUSY:
                yield from self._busy(stage, brake)
            case _:
                yield from self._of_step(stage, brake)

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
        asks_gates = bool(maintenance.course.gates) and self._has_begun
        is_known = opening is not None and not asks_gates
        yield Blocker(
            kind=BlockerKind.GATE_ASKED if asks_gates else BlockerKind.CALENDAR,
            release=Release.BY_TIME if is_known else Release.BY_PROGRESS,
            maintenance_id=maintenance.maintenance_id,
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

    def _interrupted(self, kind: BlockerKind, release: Release) -> Blocker:
        last = self._interruption
        return Blocker(
            kind=kind,
            release=release,
            maintenance_id=self._maintenance.maintenance_id,
            since=last.at if last else None,
            about=f" by {last.who} at {say_moment(last.at)}" if last else "",
        )

    def _server_paused(self, stage: Stage, brake: Brake) -> Blocker:
        pause = self._snapshot.server_pause
        return Blocker(
            kind=BlockerKind.SERVER_PAUSED,
            release=brake.release,
            maintenance_id=self._maintenance.maintenance_id,
            scope_ids=tuple(sorted(stage.step.scope_ids)),
            hosts=_hosts(stage),
            since=pause.since if pause else None,
            about=brake.detail,
        )

    def _of_step(self, stage: Stage, brake: Brake) -> Iterator[Blocker]:
        if self._is_behind(stage):
            return
        if brake.kind is BrakeKind.CANARY and brake.release is Release.BY_HAND:
            yield from self._failures(brake.failures, _hosts(stage))
        yield self._next_step(stage, brake)

    def _is_behind(self, stage: Stage) -> bool:
        """Tell whether *stage* comes after another, or after one that is in flight."""
        return any(
            brake.kind is BrakeKind.EARLIER_STEP
            or (brake.kind is BrakeKind.BUSY and not self._own.isdisjoint(brake.event_ids))
            for brake in stage.brakes
        )

    def _next_step(self, stage: Stage, brake: Brake) -> Blocker:
        kind, until, about = _BRAKES[brake.kind, brake.release], brake.until, brake.detail
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
            release=brake.release,
            maintenance_id=self._maintenance.maintenance_id,
            scope_ids=brake.scope_ids or tuple(sorted(stage.step.scope_ids)),
            hosts=_hosts(stage),
            vms=tuple(vm for event in self._events(brake) for vm in event.resources),
            event_ids=brake.event_ids,
            until=until,
            about=about,
            places=places,
            awaited=awaited,
        )

    @cached_property
    def _places(self) -> tuple[str, ...]:
        """The scopes or hosts that are under way, or that ask a gate whether they may be."""
        stages = self._stages
        asking = (stage.step.place for stage in stages if stage.awaited and not stage.is_stuck)
        return tuple(dict.fromkeys((*self._under_way, *asking)))

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
                hosts=_hosts(stage),
                vms=error.vms,
                about=str(error),
            )

    def _failures(
        self, failures: Iterable[Failure], hosts: tuple[HostName, ...] = ()
    ) -> Iterator[Blocker]:
        """Yield each of *failures*, which keep steps on *hosts* from beginning."""
        holds_all = self._maintenance.course.hold_all
        for failure in failures:
            reason = f": {failure.reason}" if failure.reason else ""
            yield Blocker(
                kind=BlockerKind.FAILURE_HOLDS_ALL if holds_all else BlockerKind.FAILURE,
                release=Release.BY_HAND,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=failure.scope_ids,
                hosts=hosts,
                vms=failure.vms,
                event_ids=failure.event_ids,
                since=failure.ended_at,
                about=f"{failure.ending} at {say_moment(failure.ended_at)}{reason}",
                place=failure.place,
            )

    def _busy(self, stage: Stage, brake: Brake) -> Iterator[Blocker]:
        if brake.host and self._holder_of(brake.host) != self._maintenance.maintenance_id:
            yield Blocker(
                kind=BlockerKind.BUSY_HOST,
                release=Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=tuple(sorted(stage.step.scope_ids)),
                hosts=_hosts(stage),
            )
        elif not brake.event_ids and brake.scope_ids:
            yield Blocker(
                kind=BlockerKind.BUSY_SOON,
                release=Release.BY_PROGRESS,
                maintenance_id=self._maintenance.maintenance_id,
                scope_ids=brake.scope_ids,
                hosts=_hosts(stage),
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
                hosts=_hosts(stage),
                vms=event.resources,
                event_ids=(event.event_id,),
                since=event.created_at,
                about=f"a step of {origin}" if origin else "not part of any maintenance",
                awaited=awaited,
            )

    def _holder_of(self, host: HostName) -> str | None:
        """Return the Maintenance whose operation is under way on *host*."""
        operations = self._snapshot.operations.values()
        under_way = (each for each in operations if each.host == host and not each.is_over)
        return next((operation.maintenance_id for operation in under_way), None)

    def _events(self, brake: Brake) -> Iterator[ScheduledEvent]:
        return map(self._snapshot.events.__getitem__, brake.event_ids)


def _hosts(stage: Stage) -> tuple[HostName, ...]:
    return (stage.step.host,) if stage.step.host else ()
