"""How much there is of everything that may wait, counted by the database."""

from typing import Any, Final

from sqlalchemy import Connection, Select, func, select

from forewarn.domain.notification import NotificationStatus
from forewarn.ports.entries import Figures
from forewarn.protocol.vocabulary import EventStatus
from forewarn.storage.tables import events, leases, outbox

_VISIBLE: Final = [status for status in EventStatus if status.is_visible]
_IN_FLIGHT: Final = events.c.event_status.in_(_VISIBLE)
_EVENTS: Final = (
    select(
        events.c.event_type, events.c.event_status, func.count(), func.count(events.c.overdue_at)
    )
    .where(_IN_FLIGHT)
    .group_by(events.c.event_type, events.c.event_status)
)
_NOTIFICATIONS: Final = select(outbox.c.status, func.count()).group_by(outbox.c.status)
_OLDEST: Final = (
    select(outbox.c.created_at)
    .where(outbox.c.status == NotificationStatus.WAITING)
    .order_by(outbox.c.created_at)
    .limit(1)
)
_EPOCH: Final = select(func.max(leases.c.epoch))


def count_figures(connection: Connection) -> Figures:
    """Count what *connection* sees."""
    found = _rows(connection, _EVENTS)
    return Figures(
        events_in_flight={(kind, status): number for kind, status, number, _ in found},
        events_overdue=sum(overdue for *_, overdue in found),
        notifications=dict(_rows(connection, _NOTIFICATIONS)),
        waiting_since=connection.scalar(_OLDEST),
        epoch=connection.scalar(_EPOCH) or 0,
    )


def _rows(connection: Connection, look: Select[Any]) -> list[Any]:
    return [tuple(row) for row in connection.execute(look)]
