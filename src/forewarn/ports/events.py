"""Events, and what has happened to them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import MaintenanceId, OperationId, ScopeId, VmName
from forewarn.ports.entries import LedgerEntry, LedgerLine
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType


class EventReading(Protocol):
    """A look at events and their ledger."""

    def event(self, event_id: EventId) -> ScheduledEvent | None: ...

    def events_in_flight(
        self, scope_ids: Iterable[ScopeId] | None = None
    ) -> tuple[ScheduledEvent, ...]: ...

    def operation_events(self, operation_id: OperationId) -> tuple[ScheduledEvent, ...]:
        """Return the events of a host operation that are in flight, or refuse to name them."""

    def user_operations_in_flight(self) -> tuple[ScheduledEvent, ...]:
        """Return those of the whole server, whoever looks: they are limited together."""

    def events_under_way(self) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight, and every event of a Maintenance that is not finished."""

    def events_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[ScheduledEvent, ...]: ...

    def events(
        self,
        *,
        status: Iterable[EventStatus] = (),
        vm: VmName | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        event_type: EventType | None = None,
        ended: tuple[datetime | None, datetime | None] = (None, None),
        created_before: datetime | None = None,
        older_than: EventId | None = None,
        limit: int = 1000,
    ) -> tuple[ScheduledEvent, ...]:
        """Return the newest *limit* of these; *ended* is from when on, and before when.

        A scale set has the events of all its placement groups. *older_than* is an event of the
        page before: only what was announced earlier is returned.
        """

    def ledger(self, event_id: EventId, /) -> tuple[LedgerEntry, ...]: ...

    def ledger_after(self, sequence: int, *, limit: int) -> tuple[LedgerLine, ...]:
        """Return the lines that follow *sequence*, of all events, in the order of commitment."""

    def last_sequence(self) -> int:
        """Return the number of the last line of the ledger, 0 if there is none."""


class EventWriting(EventReading, Protocol):
    """A look at events and their ledger that may also change them."""

    def put_event(self, event: ScheduledEvent, /) -> None: ...

    def append_ledger(self, entry: LedgerEntry, /) -> None: ...
