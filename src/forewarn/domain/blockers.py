"""What may hold a Maintenance, each in a sentence, and what becomes of it all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from forewarn.domain.brakes import Release
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.domain.reasons import OF_HOST, ReasonKind
from forewarn.domain.wording import say_count, say_moment, say_names
from forewarn.protocol.vocabulary import EventId


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


class VerdictKind(StrEnum):
    """What becomes of a Maintenance if nobody does anything."""

    OVER = "over"
    NOW = "now"
    BY_TIME = "by-time"
    BY_PROGRESS = "by-progress"
    NEVER = "never"


SENTENCES: Final[Mapping[BlockerKind, str]] = {
    BlockerKind.SERVER_PAUSED: "No step begins {where}: the server has been paused by {about}.",
    BlockerKind.PAUSED: (
        "It was paused{about}: no further step begins. "
        "Continue with: forewarn maintenance resume {maintenance}"
    ),
    BlockerKind.ABORTED: (
        "It was aborted{about}: no further step begins, and started events run to their end."
    ),
    BlockerKind.SHARED_HOST: "{about}",
    BlockerKind.FAILURE: (
        "{place} {about}, so no further step begins {where}. Retry with: "
        "forewarn maintenance retry {maintenance} {place}; or skip it with: "
        "forewarn maintenance skip {maintenance} {place}"
    ),
    BlockerKind.FAILURE_HOLDS_ALL: (
        "{place} {about}, so no further step begins anywhere. Retry with: "
        "forewarn maintenance retry {maintenance} {place}; or skip it with: "
        "forewarn maintenance skip {maintenance} {place}"
    ),
    BlockerKind.BUSY_HOST: "The next step {where} waits for another maintenance on the same host.",
    BlockerKind.CANARY: "The next step {where} waits for the canary ({about}) to complete.",
    BlockerKind.CANARY_SOAK: (
        "The canary ({about}) has completed; the next step {where} waits until {until} "
        "to see how it does."
    ),
    BlockerKind.CANARY_HELD: (
        "The next step {where} waits for the canary ({about}), which is held."
    ),
    BlockerKind.BUSY: (
        "The next step {where} waits until event {events} for {vms} has ended, which is {about}."
    ),
    BlockerKind.BUSY_SOON: (
        "The next step {where} waits for another maintenance, which is about to begin a step there."
    ),
    BlockerKind.CAPACITY: (
        "The next step {where} waits until enough is available: {about} "
        "while {events} is in flight for {vms}."
    ),
    BlockerKind.CAPACITY_NEVER: (
        "The next step {where} takes too many at once: {about}. Move virtual machines to "
        "other update domains, or end it with: forewarn maintenance abort {maintenance}"
    ),
    BlockerKind.SOAK: "The next step {where} waits until {until}, when the last has soaked.",
    BlockerKind.CALENDAR: (
        "The next step {where} waits until {until}, when the calendar has room for it."
    ),
    BlockerKind.CALENDAR_NEVER: (
        "The next step {where} is longer than the calendar is ever open. "
        "End it with: forewarn maintenance abort {maintenance}"
    ),
    BlockerKind.AT_ONCE: (
        "The next step {where} waits: at most {about} may be under way at once{places}."
    ),
    BlockerKind.GATE_ASKED: "The next step {where} waits for gate {about}, which is asked.",
    BlockerKind.GATE_SHUT: (
        "The next step {where} waits for gate {about}; it is asked until {until}."
    ),
    BlockerKind.GATE_HOLDS: (
        "The next step {where} is held by gate {about}; the server has stopped asking. "
        "Have it asked again with: forewarn maintenance resume {maintenance}"
    ),
    BlockerKind.EARLIER_STEP: (
        "The next step {where} waits for an earlier step of this maintenance."
    ),
    BlockerKind.ELSEWHERE: "Something in other scopes holds it.",
}
"""How each kind is said; what is in braces is filled from the blocker."""

NAMES_OTHERS: Final[frozenset[BlockerKind | ReasonKind]] = frozenset(
    {
        BlockerKind.AT_ONCE,
        BlockerKind.CANARY,
        BlockerKind.CANARY_SOAK,
        BlockerKind.CANARY_HELD,
        BlockerKind.BUSY_HOST,
        ReasonKind.HOST_OPERATION,
        ReasonKind.HOST_OPERATION_BUSY,
        *OF_HOST,
    }
)
"""The kinds that name more than the scopes they hold."""

_EVENT: Final = "Event {events} {where}: {about}"
_HOST: Final = "{about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that holds a Maintenance: an event, or the next step on *hosts* or in some scopes.

    *release* says how it goes away: by time at *until*, by itself some time, or by hand. *place*
    is the host or scope it is about, and *places* are those that are under way. *awaited* are the
    events that an operator has to complete first.
    """

    kind: BlockerKind | ReasonKind
    release: Release
    maintenance_id: MaintenanceId
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

    @property
    def sentence(self) -> str:
        return self._template.format(
            place=self.place,
            maintenance=self.maintenance_id,
            where=self._where,
            vms=say_names(self.vms),
            events=say_names(self.event_ids),
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
        return _HOST if self.kind in OF_HOST else _EVENT


_RESUME_SERVER: Final = "forewarn resume"
_RESUME: Final = "forewarn maintenance resume {maintenance}"
_SKIP: Final = "forewarn maintenance skip {maintenance} {place}"
_DECIDE: Final = "forewarn maintenance retry {maintenance} {place}, or " + _SKIP
_ABORT: Final = "forewarn maintenance abort {maintenance}"
_COMPLETE: Final = "forewarn event complete {events}"
ACTIONS: Final[Mapping[BlockerKind | ReasonKind, str]] = {
    BlockerKind.SERVER_PAUSED: _RESUME_SERVER,
    ReasonKind.SERVER_PAUSED: _RESUME_SERVER,
    BlockerKind.PAUSED: _RESUME,
    BlockerKind.SHARED_HOST: "move virtual machines to another host",
    BlockerKind.FAILURE: _DECIDE,
    BlockerKind.FAILURE_HOLDS_ALL: _DECIDE,
    BlockerKind.BUSY: _COMPLETE,
    BlockerKind.CAPACITY: _COMPLETE,
    BlockerKind.CAPACITY_NEVER: _ABORT,
    BlockerKind.CALENDAR_NEVER: _ABORT,
    BlockerKind.GATE_HOLDS: _RESUME,
    ReasonKind.WINDOW: "forewarn event start {events}",
    ReasonKind.OTHER_EVENT: _COMPLETE,
    ReasonKind.OTHER_IMPACT: _COMPLETE,
    ReasonKind.HOST_OPERATION_BUSY: _COMPLETE,
    ReasonKind.BY_HAND: _COMPLETE,
    ReasonKind.UNKNOWN: _COMPLETE,
    ReasonKind.NO_EXECUTOR: "correct the executor file and send the server a SIGHUP",
    ReasonKind.HOST_UNKNOWN: _SKIP,
    ReasonKind.HOST_PAUSED: _RESUME_SERVER,
    BlockerKind.ELSEWHERE: "ask whoever is in charge of the other scopes",
}
"""What somebody has to do about each kind that goes away by hand only."""


def actions_for(blockers: Iterable[Blocker]) -> tuple[str, ...]:
    """Return what somebody has to do about *blockers*, as far as they do not go by themselves."""
    actions = (
        ACTIONS[blocker.kind].format(
            maintenance=blocker.maintenance_id,
            events=" ".join(blocker.awaited or blocker.event_ids),
            place=blocker.place,
        )
        for blocker in blockers
        if blocker.release is Release.BY_HAND and blocker.kind in ACTIONS
    )
    return tuple(dict.fromkeys(actions))


VERDICTS: Final[Mapping[VerdictKind, str]] = {
    VerdictKind.OVER: "It has ended.",
    VerdictKind.NOW: "Nothing is holding it: it is about to continue.",
    VerdictKind.BY_TIME: "It continues by itself, at {until} at the latest.",
    VerdictKind.BY_PROGRESS: "It continues by itself; the time is not known.",
    VerdictKind.NEVER: "It does not continue until somebody acts: {actions}.",
}
"""How each kind of verdict is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """When a Maintenance continues by itself, or what somebody has to do first."""

    kind: VerdictKind
    until: datetime | None = None
    actions: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return VERDICTS[self.kind].format(
            until=say_moment(self.until), actions="; ".join(self.actions)
        )
