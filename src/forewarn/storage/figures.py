"""How much there is of everything that may wait, counted by the database."""

from typing import Final

from sqlalchemy import Connection, func, select

from forewarn.domain.notification import NotificationStatus
from forewarn.ports.entries import Figures
from forewarn.storage.statements import IS_IN_FLIGHT
from forewarn.storage.tables import events, leases, outbox

_EVENTS: Final = (
    select(
        events.c.event_type, events.c.event_status, func.count(), func.count(events.c.overdue_at)
    )
    .where(IS_IN_FLIGHT)
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
    found = connection.execute(_EVENTS).all()
    return Figures(
        events_in_flight={(kind, status): number for kind, status, number, _ in found},
        events_overdue=sum(overdue for *_, overdue in found),
        notifications=dict(connection.execute(_NOTIFICATIONS).all()),
        waiting_since=connection.scalar(_OLDEST),
        epoch=connection.scalar(_EPOCH) or 0,
    )
