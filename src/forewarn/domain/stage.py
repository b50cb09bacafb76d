"""A step that remains of a Maintenance, with what holds it: in full, and in short."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.gate import Answer, Question
from forewarn.domain.maintenance import Step
from forewarn.domain.names import ScopeId
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

    @classmethod
    def of(cls, kind: str) -> "BrakeKind":
        """Return the kind with whose name that of the blocker begins, which says it in detail."""
        return next(each for each in cls if kind.startswith(each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """All blockers of one kind on a step, in short.

    BY_TIME it lets go at *until*, whatever happens. BY_PROGRESS it does when something has ended
    that is under way, comes first or is asked for again at *until*. BY_HAND it never does, unless
    somebody acts.
    """

    kind: BrakeKind
    release: Release
    until: datetime | None = None
    scope_ids: tuple[ScopeId, ...] = ()
    event_ids: tuple[EventId, ...] = ()
    gate: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step that remains, with what holds it back and what its gates are asked.

    Of *questions* it waits for that to be answered well which is *awaited*, and has this *answer*
    so far.
    """

    step: Step
    blockers: tuple[Blocker, ...] = ()
    questions: tuple[Question, ...] = ()
    awaited: Question | None = None
    answer: Answer | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether it never begins unless somebody acts."""
        return any(blocker.release is Release.BY_HAND for blocker in self.blockers)

    @property
    def moments(self) -> Iterator[datetime]:
        """When something that holds it may let go, as far as that is known."""
        return (brake.until for brake in self.brakes if brake.until)

    @property
    def brakes(self) -> tuple[Brake, ...]:
        """What holds it back in short, each kind once."""
        alike: dict[BrakeKind, list[Blocker]] = {}
        for blocker in self.blockers:
            alike.setdefault(BrakeKind.of(blocker.kind), []).append(blocker)
        return tuple(self._brake(kind, found) for kind, found in alike.items())

    def _brake(self, kind: BrakeKind, found: Sequence[Blocker]) -> Brake:
        release = max(found, key=lambda each: each.release is Release.BY_HAND).release
        if kind is BrakeKind.GATE and self.awaited is not None:
            return Brake(
                kind=kind,
                release=release,
                until=self.answer.ask_again_at if self.answer and not self.is_stuck else None,
                gate=self.awaited.gate,
                detail=self.answer.output if self.answer else "",
            )
        if kind is BrakeKind.SHARED_HOST:
            return Brake(kind=kind, release=release, detail=self.step.host or "")
        says_more = found[0].kind in _SAYING_MORE
        return Brake(
            kind=kind,
            release=release,
            until=found[0].until,
            scope_ids=tuple(sorted({each for blocker in found for each in blocker.scope_ids})),
            event_ids=tuple(each for blocker in found for each in blocker.event_ids),
            detail=found[0].about if says_more else "",
        )


_SAYING_MORE = frozenset(
    {BlockerKind.SERVER_PAUSED, BlockerKind.CAPACITY, BlockerKind.CAPACITY_NEVER}
)
"""What is about more than its kind tells, also in short."""
