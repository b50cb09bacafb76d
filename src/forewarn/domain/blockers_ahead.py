"""What holds the steps that a Maintenance still has before it, as it is said."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.brakes import canary_parts, failure_blocker
from forewarn.domain.failures import find_failures
from forewarn.domain.maintenance import Maintenance, is_canary, own_events, own_operations
from forewarn.domain.names import HostName
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.stage import BrakeKind, Stage
from forewarn.domain.walk import walk_all
from forewarn.domain.wording import say_moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Who has paused or aborted a Maintenance, and when."""

    who: str
    at: datetime


class Ahead:
    """The steps that one Maintenance has before it, with *of_stages*, what holds each.

    A step that only waits for an event of its own Maintenance, or for an earlier step, has no
    blocker of its own: what it waits for has. By host, such steps are still said to wait, all in
    one sentence. *under_way* are the hosts or scopes at which it is just now.
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
        self._events = tuple(own_events(maintenance, snapshot.events.values()))
        self._operations = tuple(own_operations(maintenance, snapshot.operations.values()))
        self._own = {event.event_id for event in self._events if event.is_in_flight}
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
            aborted = Blocker(kind=BlockerKind.ABORTED, release=Release.BY_PROGRESS)
            yield self._interrupted(aborted)

    def _undecided(self) -> Iterator[Blocker]:
        """Yield what has to be decided about before it is over."""
        if not self._maintenance.is_aborted:
            for failure in find_failures(self._maintenance, self._events, self._operations):
                hosts = (failure.host,) if failure.host else ()
                yield replace(failure_blocker(self._maintenance, failure), hosts=hosts)

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
                yield self._interrupted(blocker)
            case BlockerKind.FAILURE | BlockerKind.FAILURE_HOLDS_ALL:
                yield replace(blocker, hosts=_hosts(stage))
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
        maintenance, course = self._maintenance, self._maintenance.course
        if not any(is_canary(course, each.step) for each in self._stages):
            canaries = canary_parts(course, self._events, self._operations)
            for failure in find_failures(maintenance, *canaries):
                yield replace(failure_blocker(maintenance, failure), hosts=_hosts(stage))

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

    def _interrupted(self, blocker: Blocker) -> Blocker:
        last = self._interruption
        if last is None:
            return blocker
        return replace(blocker, since=last.at, about=f" by {last.who} at {say_moment(last.at)}")

    @cached_property
    def _places(self) -> tuple[str, ...]:
        """The scopes or hosts that are under way, or that ask a gate whether they may be."""
        stages = self._stages
        asking = (stage.step.place for stage in stages if stage.awaited and not stage.is_stuck)
        return tuple(dict.fromkeys((*self._under_way, *asking)))


def _placed(blocker: Blocker, stage: Stage) -> Blocker:
    """Return *blocker* as what holds the step of *stage*, which it does not know."""
    scope_ids = blocker.scope_ids or tuple(sorted(stage.step.scope_ids))
    return replace(blocker, scope_ids=scope_ids, hosts=_hosts(stage))


def _hosts(stage: Stage) -> tuple[HostName, ...]:
    return (stage.step.host,) if stage.step.host else ()
