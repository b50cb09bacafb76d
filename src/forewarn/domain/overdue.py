"""When an event has taken longer than anybody expected."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from forewarn.domain.event import ScheduledEvent
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOverdue:
    """Record that the event takes longer than expected."""

    event_id: EventId


def overdue_moments(
    started: Iterable[ScheduledEvent], overdue_after: timedelta | None
) -> dict[EventId, datetime]:
    """Return when each event of *started* is overdue, of which that is not recorded yet.

    That is *overdue_after* beyond the duration it was announced with; never, if that is None.
    """
    if overdue_after is None:
        return {}
    return {
        event.event_id: event.started_at
        + timedelta(seconds=event.duration_in_seconds or 0)
        + overdue_after
        for event in started
        if event.started_at is not None and event.overdue_at is None
    }
