"""Messages on their way to people."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from forewarn.domain.names import ScopeId
from forewarn.domain.notification import Notification, NotificationStatus


class OutboxReading(Protocol):
    """A look at messages."""

    def notification(self, notification_id: str) -> Notification | None: ...

    def notifications(
        self,
        *,
        status: NotificationStatus | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        older_than: str | None = None,
        limit: int = 1000,
    ) -> tuple[Notification, ...]:
        """Return the newest *limit* of these, in scopes and before another as for `events`."""

    def next_notifications(self, target: str, *, limit: int = 100) -> tuple[Notification, ...]:
        """Return the first waiting message of each subject for *target*, soonest first."""

    def targets_waited_for(self) -> tuple[str, ...]:
        """Return the name of every target for which a message is waiting."""


class OutboxWriting(OutboxReading, Protocol):
    """A look at messages that may also change them."""

    def put_notification(self, notification: Notification, /) -> None:
        """Put *notification* into the outbox, or replace what is known of it."""

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        """Forget messages of *status* that ended before then, and tell how many those were."""
