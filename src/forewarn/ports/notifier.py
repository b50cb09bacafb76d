"""How a message gets to one target."""

from datetime import datetime
from typing import Protocol

from forewarn.domain.notification import Delivery, Notification


class Notifier(Protocol):
    """The way to one target. Used by one thread at a time, except for tests by operators."""

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        """Try once, and say what came of it; never raise for what the receiver does."""
