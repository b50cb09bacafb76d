"""What may hold a Maintenance, each in a sentence, and what becomes of it all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from forewarn.domain import why
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.domain.phrases import count_of, say_count, say_moment, say_names
from forewarn.domain.why import OF_HOST, ReasonKind, Remedies, Verb
from forewarn.protocol.vocabulary import EventId


class Release(StrEnum):
    """How a brake is released."""

    BY_TIME = "by time"
    BY_PROGRESS = "by progress"
    BY_HAND = "by hand"


class BlockerKind(StrEnum):
    """What holds a Maintenance, beside what holds its events."""

    SERVER_PAUSED = "server-paused"
    PAUSED = "paused"
    ABORTED = "aborted"
    SHARED_HOST = "shared-host"
    FAILURE = "failure"
    FAILURE_HOLDS_ALL = "failure-holds-all"
    CANARY = "canary"
    CANARY_SOAK = "canary-soak"
    CANARY_HELD = "canary-held"
    BUSY = "busy"
    BUSY_SOON = "busy-soon"
    BUSY_HOST = "busy-host"
    BUSY_TASK = "busy-task"
    BUSY_UNKNOWN = "busy-unknown"
    CAPACITY = "capacity"
    CAPACITY_NEVER = "capacity-never"
    SOAK = "soak"
    CALENDAR = "calendar"
    CALENDAR_NEVER = "calendar-never"
    AT_ONCE = "at-once"
    GATE_ASKED = "gate-asked"
    GATE_SHUT = "gate-shut"
    GATE_HOLDS = "gate-holds"
    EARLIER_STEP = "earlier-step"
    ELSEWHERE = "elsewhere"


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


BRAKE_OF: Final[Mapping[BlockerKind | ReasonKind, BrakeKind]] = {
    BlockerKind.SERVER_PAUSED: BrakeKind.SERVER_PAUSED,
    BlockerKind.PAUSED: BrakeKind.PAUSED,
    BlockerKind.SHARED_HOST: BrakeKind.SHARED_HOST,
    BlockerKind.FAILURE: BrakeKind.FAILURE,
    BlockerKind.FAILURE_HOLDS_ALL: BrakeKind.FAILURE,
    BlockerKind.CANARY: BrakeKind.CANARY,
    BlockerKind.CANARY_SOAK: BrakeKind.CANARY,
    BlockerKind.CANARY_HELD: BrakeKind.CANARY,
    BlockerKind.BUSY: BrakeKind.BUSY,
    BlockerKind.BUSY_SOON: BrakeKind.BUSY,
    BlockerKind.BUSY_HOST: BrakeKind.BUSY,
    BlockerKind.BUSY_TASK: BrakeKind.BUSY,
    BlockerKind.BUSY_UNKNOWN: BrakeKind.BUSY,
    BlockerKind.CAPACITY: BrakeKind.CAPACITY,
    BlockerKind.CAPACITY_NEVER: BrakeKind.CAPACITY,
    BlockerKind.SOAK: BrakeKind.SOAK,
    BlockerKind.CALENDAR: BrakeKind.CALENDAR,
    BlockerKind.CALENDAR_NEVER: BrakeKind.CALENDAR,
    BlockerKind.AT_ONCE: BrakeKind.AT_ONCE,
    BlockerKind.GATE_ASKED: BrakeKind.GATE,
    BlockerKind.GATE_SHUT: BrakeKind.GATE,
    BlockerKind.GATE_HOLDS: BrakeKind.GATE,
    BlockerKind.EARLIER_STEP: BrakeKind.EARLIER_STEP,
}
"""What each kind that holds a step is in short."""


def kinds_of(*brakes: BrakeKind) -> frozenset[BlockerKind]:
    """Return the kinds of blockers that say *brakes* in detail."""
    return frozenset(kind for kind in BlockerKind if BRAKE_OF.get(kind) in brakes)


class VerdictKind(StrEnum):
    """What becomes of a Maintenance if nobody does anything."""

    OVER = "over"
    NOW = "now"
    BY_TIME = "by-time"
    BY_PROGRESS = "by-progress"
    NO_FURTHER_STEP = "no-further-step"
    STUCK = "stuck"
    NEVER = "never"


SENTENCES: Final[Mapping[BlockerKind, str]] = {
    BlockerKind.SERVER_PAUSED: "No step begins {where}: the server has been paused by {about}.",
    BlockerKind.PAUSED: "The maintenance was paused{about}; no further step begins.",
    BlockerKind.ABORTED: (
        "The maintenance was aborted{about}; no further step begins, but started events complete."
    ),
    BlockerKind.SHARED_HOST: "{about}",
    BlockerKind.FAILURE: "{place} {about}, so no further step begins {where}.",
    BlockerKind.FAILURE_HOLDS_ALL: "{place} {about}, so no further step begins anywhere.",
    BlockerKind.BUSY_HOST: "The next step {where} waits for another maintenance on the same host.",
    BlockerKind.BUSY_TASK: (
        "No step begins {where} until {about} has ended; it is still running, although its event "
        "has ended."
    ),
    BlockerKind.BUSY_UNKNOWN: (
        "No step begins {where}: the state of {about} is unknown, and it may still be running."
    ),
    BlockerKind.CANARY: "The next step {where} waits for the canary ({about}) to complete.",
    BlockerKind.CANARY_SOAK: (
        "The canary ({about}) has completed; the next step {where} waits until {until}, when "
        "its soak time ends."
    ),
    BlockerKind.CANARY_HELD: (
        "The next step {where} waits for the canary ({about}), which is held."
    ),
    BlockerKind.BUSY: ("The next step {where} waits for event {events} on {vms} to end ({about})."),
    BlockerKind.BUSY_SOON: (
        "The next step {where} waits for another maintenance, which begins a step there first."
    ),
    BlockerKind.CAPACITY: (
        "The next step {where} waits for capacity: {about} while {events} is in flight for {vms}."
    ),
    BlockerKind.CAPACITY_NEVER: (
        "The next step {where} takes too many virtual machines at once: {about}. Move some to "
        "other update domains, or abort the maintenance."
    ),
    BlockerKind.SOAK: "The next step {where} waits until {until}, when the soak time ends.",
    BlockerKind.CALENDAR: (
        "The next step {where} waits until {until}, when it next fits the calendar."
    ),
    BlockerKind.CALENDAR_NEVER: "The next step {where} is too long to ever fit the calendar.",
    BlockerKind.AT_ONCE: (
        "The next step {where} waits: at most {about} may be under way at once{places}."
    ),
    BlockerKind.GATE_ASKED: (
        "The next step {where} waits for gate {about}; the server is asking it."
    ),
    BlockerKind.GATE_SHUT: (
        "The next step {where} waits for gate {about}; the server asks again until {until}."
    ),
    BlockerKind.GATE_HOLDS: (
        "Gate {about} holds the next step {where}; the server has stopped asking."
    ),
    BlockerKind.EARLIER_STEP: (
        "The next step {where} waits for an earlier step of this maintenance."
    ),
    BlockerKind.ELSEWHERE: "The maintenance waits in scopes that this token does not cover.",
}
"""How each kind is said; what is in braces is filled from the blocker."""

NAMES_OTHERS: Final[frozenset[BlockerKind | ReasonKind]] = frozenset(
    {
        BlockerKind.AT_ONCE,
        BlockerKind.CANARY,
        BlockerKind.CANARY_SOAK,
        BlockerKind.CANARY_HELD,
        BlockerKind.BUSY_HOST,
        *OF_HOST,
    }
)
"""The kinds that name more than the scopes they hold."""

REMEDIES: Final[Mapping[BlockerKind | ReasonKind, tuple[Verb, ...]]] = {
    **dict(why.REMEDIES.items()),
    BlockerKind.SERVER_PAUSED: (Verb.RESUME_SERVER,),
    BlockerKind.PAUSED: (Verb.RESUME,),
    BlockerKind.SHARED_HOST: (Verb.MOVE_AWAY,),
    BlockerKind.FAILURE: (Verb.RETRY, Verb.SKIP),
    BlockerKind.FAILURE_HOLDS_ALL: (Verb.RETRY, Verb.SKIP),
    BlockerKind.BUSY: (Verb.COMPLETE,),
    BlockerKind.BUSY_UNKNOWN: why.SETTLE,
    BlockerKind.CAPACITY: (Verb.COMPLETE,),
    BlockerKind.CAPACITY_NEVER: (Verb.ABORT,),
    BlockerKind.CALENDAR_NEVER: (Verb.ABORT,),
    BlockerKind.GATE_HOLDS: (Verb.RESUME,),
    ReasonKind.WINDOW: (Verb.START,),
    ReasonKind.OTHER_EVENT: (Verb.COMPLETE,),
    ReasonKind.OTHER_IMPACT: (Verb.COMPLETE,),
    ReasonKind.NO_EXECUTOR: (Verb.CORRECT_EXECUTORS,),
    BlockerKind.ELSEWHERE: (Verb.ASK_OTHERS,),
}
"""What somebody can do about each kind that goes away by hand only."""

_EVENT: Final = "Event {events} {where}: {about}"
_EVENTS: Final = "{count} {where}: {about}"
_HOST: Final = "{about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that holds a Maintenance: events, or the next step on *hosts* or in some scopes.

    *release* says how it goes away: by time at *until*, by itself some time, or by hand. *place*
    is the host or scope it is about, and *places* are those that are under way. *awaited* are the
    events that an operator has to complete first.
    """

    kind: BlockerKind | ReasonKind
    release: Release
    scope_ids: tuple[ScopeId, ...] = ()
    hosts: tuple[HostName, ...] = ()
    vms: tuple[str, ...] = ()
    event_ids: tuple[EventId, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    about: str = ""
    places: tuple[str, ...] = ()
    awaited: tuple[EventId, ...] = ()
    place: str = ""
    task_ids: tuple[str, ...] = ()

    @property
    def brake(self) -> BrakeKind:
        """What it is in short. Only those that hold a step have one."""
        return BRAKE_OF[self.kind]

    def remedies(self, maintenance_id: MaintenanceId) -> Remedies:
        """Return what somebody has to do about it."""
        verbs = REMEDIES.get(self.kind, ())
        return why.find_remedies(
            verbs,
            task_ids=self.task_ids,
            event_ids=self.awaited or self.event_ids,
            place=(maintenance_id, self.place) if self.place else (maintenance_id,),
        )

    @property
    def sentence(self) -> str:
        return self._template.format(
            place=self.place,
            where=self._where,
            vms=say_names(self.vms),
            events=say_names(self.event_ids),
            count=count_of(len(self.event_ids), "event"),
            until=say_moment(self.until),
            about=self.about,
            places=f" (now: {say_names(self.places)})" if self.places else "",
        )

    @property
    def _where(self) -> str:
        if self.hosts:
            return f"on {say_count(self.hosts, 'host')}"
        return f"in {say_count(self.scope_ids, 'scope')}"

    @property
    def _template(self) -> str:
        if isinstance(self.kind, BlockerKind):
            return SENTENCES[self.kind]
        if self.kind in OF_HOST:
            return _HOST
        return _EVENT if len(self.event_ids) == 1 else _EVENTS


def remedies_for(blockers: Iterable[Blocker], maintenance_id: MaintenanceId) -> Remedies:
    """Return what somebody has to do about each of *blockers* that does not go by itself."""
    by_hand = (blocker for blocker in blockers if blocker.release is Release.BY_HAND)
    return tuple(
        dict.fromkeys(each for blocker in by_hand for each in blocker.remedies(maintenance_id))
    )


VERDICTS: Final[Mapping[VerdictKind, str]] = {
    VerdictKind.OVER: "The maintenance has ended.",
    VerdictKind.NOW: "Nothing holds the maintenance; it is about to continue.",
    VerdictKind.BY_TIME: "The maintenance continues automatically, at {until} at the latest.",
    VerdictKind.BY_PROGRESS: "The maintenance continues automatically, at an unknown time.",
    VerdictKind.NO_FURTHER_STEP: (
        "Steps under way complete, but no further step begins{until_somebody}."
    ),
    VerdictKind.STUCK: (
        "Other steps continue, but the maintenance does not end until an operator acts."
    ),
    VerdictKind.NEVER: "The maintenance does not continue until an operator acts.",
}
"""How each kind of verdict is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """When a Maintenance continues by itself, or what somebody has to do first."""

    kind: VerdictKind
    until: datetime | None = None
    remedies: Remedies = ()

    @property
    def needs_operator(self) -> bool:
        """Whether it waits for what only an operator can do."""
        return self.kind in {VerdictKind.STUCK, VerdictKind.NEVER}

    @property
    def sentence(self) -> str:
        until_somebody = " until an operator acts" if self.remedies else ""
        return VERDICTS[self.kind].format(
            until=say_moment(self.until), until_somebody=until_somebody
        )
