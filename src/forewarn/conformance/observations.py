"""What was observed of a handler in one situation: its requests, its hooks, and the events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus

from forewarn.ports.journal import JournalEntry
from forewarn.protocol.vocabulary import EventId


class HandlerHook(StrEnum):
    """What a handler is asked to run, so that the kit knows what it does."""

    PREPARE = "prepare"
    RECOVER = "recover"

    @property
    def variable(self) -> str:
        """The variable with the path of the program."""
        return f"FOREWARN_CONFORMANCE_{self.name}"


class MarkKind(StrEnum):
    """What a hook notes."""

    BEGUN = "prepare-begun"
    PREPARED = "prepare-ended"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMark:
    """A moment that a hook has noted, in real time."""

    kind: MarkKind
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEvent:
    """One event, in real time. One that a fault may hide need not be seen.

    *times_scheduled* is how often it becomes Scheduled: twice if a fault shows it so again.
    *is_unannounced* if it has Started when it is first shown.
    """

    event_id: EventId
    title: str
    is_own: bool
    announced_at: datetime
    started_at: datetime | None = None
    over_at: datetime | None = None
    is_to_be_seen: bool = True
    is_to_be_prepared: bool = True
    times_scheduled: int = 1
    is_unannounced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that the checks know. *requests* are those of the handler's machine.

    *end* says how the handler ended by itself, and is empty if it ran until it was stopped.
    *interruptions* is how often it was killed while it prepared. *started_at* is when it first
    read its document, once for each of its processes.
    """

    requests: Sequence[JournalEntry]
    marks: Sequence[HookMark]
    events: Sequence[ObservedEvent]
    end: str = ""
    interruptions: int = 0
    started_at: Sequence[datetime] = ()
    has_faults: bool = False
    hooks: frozenset[HandlerHook] = frozenset(HandlerHook)

    @property
    def polls(self) -> list[JournalEntry]:
        """The requests for the document."""
        return [entry for entry in self.requests if entry.is_poll]

    @property
    def start_requests(self) -> list[JournalEntry]:
        """The requests that mean to approve events."""
        return [entry for entry in self.requests if entry.is_start_request]

    @property
    def failed_start_requests(self) -> list[JournalEntry]:
        """Those that had no effect, through no fault of the handler."""
        return [
            entry
            for entry in self.start_requests
            if entry.is_reset or (entry.status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
        ]

    @property
    def impacts_end(self) -> datetime | None:
        """When the first impact on the handler's machine is over, of events that overlap the last.

        None if none of its events has ended.
        """
        end = None
        for event in self.events:
            if event.is_own and event.over_at and (end is None or event.announced_at < end):
                end = max(end or event.over_at, event.over_at)
        return end

    @property
    def recoverable_since(self) -> datetime | None:
        """Since when a recovery is the last that is needed; None if none is needed."""
        since = self.marks_of(MarkKind.BEGUN)
        since += [
            event.over_at
            for event in self.events
            if event.is_own and event.is_unannounced and event.over_at
        ]
        return max(since, default=None)

    def approvals_of(self, event: ObservedEvent) -> list[JournalEntry]:
        """Return the requests that approved *event*, and were accepted."""
        return [entry for entry in self.requests if event.event_id in entry.approved]

    def marks_of(self, kind: MarkKind, since: datetime | None = None) -> list[datetime]:
        """Return when a hook noted *kind*, *since* then if given."""
        marks = sorted(mark.at for mark in self.marks if mark.kind is kind)
        return [at for at in marks if since is None or at >= since]
