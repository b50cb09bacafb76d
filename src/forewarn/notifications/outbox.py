"""From the outbox to the targets: one courier for each, so that none waits for another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

import structlog

from forewarn.domain.notification import (
    Delivery,
    Notification,
    NotificationStatus,
    Retrying,
    Target,
)
from forewarn.operations.notifications import prune_outbox, record_attempt
from forewarn.ports.changes import StoreChange
from forewarn.ports.clock import WallClock
from forewarn.ports.notifier import Notifier
from forewarn.ports.store import Store, Transaction
from forewarn.rounds import Rounds

log = structlog.get_logger()

T = TypeVar("T")

_PRUNE_EVERY: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """Whom to tell, the way to each, and how often to try. By itself: nobody."""

    targets: tuple[Target, ...] = ()
    notifiers: Mapping[str, Notifier] = field(default_factory=dict)
    retrying: Retrying = field(default_factory=Retrying)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Courier:
    """Delivers the messages for one target: at least once, in order for each event.

    What came of an attempt is recorded before the next is made. So if the store is unavailable,
    nothing is lost, and nobody gets the same message over and over.
    """

    target: str = field(kw_only=False)
    notifier: Notifier = field(kw_only=False)
    store: Store
    wall: WallClock
    retrying: Retrying
    chance: Callable[[], float]
    epoch: int
    rounds: Rounds = field(init=False)
    _prune_at: datetime | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.rounds = Rounds("courier", self._turn, target=self.target)

    def note(self, change: StoreChange) -> None:
        """Look again, if the outbox has grown."""
        if change.has_outbox_grown:
            self.rounds.wake()

    def _turn(self) -> float | None:
        """Deliver what is due, and return for how many seconds nothing will be, if it is known."""
        self._prune()
        heads = self.store.read(lambda reading: reading.next_notifications(self.target))
        now = self.wall.now()
        due = [notification for notification in heads if notification.next_attempt_at <= now]
        for notification in due:
            if self.rounds.is_stopping:
                break
            self._attempt(notification)
        if due or not heads:
            return 0.0 if due else None
        return (heads[0].next_attempt_at - now).total_seconds()

    def _attempt(self, notification: Notification) -> None:
        delivery = self._deliver(notification)
        now, chance = self.wall.now(), self.chance()
        tried = self._write(
            lambda tx: record_attempt(
                tx, notification, delivery, now=now, retrying=self.retrying, chance=chance
            )
        )
        if tried is not None:
            _report(notification, tried)

    def _deliver(self, notification: Notification) -> Delivery:
        try:
            return self.notifier.deliver(notification, now=self.wall.now())
        except Exception as error:
            # One message that cannot even be tried must not hold up those of other events.
            problem = f"The server failed to send the message: {type(error).__name__}."
            if notification.problem != problem:
                log.exception("notifier_failed", target=self.target)
            return Delivery(is_delivered=False, answer=problem)

    def _write(self, work: Callable[[Transaction], T]) -> T | None:
        """Have *work* done under the lease, however long the store is unavailable."""

        def work_as_leader(tx: Transaction) -> T:
            tx.check_epoch(self.epoch)
            return work(tx)

        return self.rounds.insist(lambda: self.store.write(work_as_leader))

    def _prune(self) -> None:
        now = self.wall.now()
        if self._prune_at is None or now >= self._prune_at:
            self._write(lambda tx: prune_outbox(tx, now=now))
            self._prune_at = now + _PRUNE_EVERY


def _report(before: Notification, after: Notification) -> None:
    """Log what changes: the first failure, the success after it, and the end of all attempts."""
    what = {"target": after.target, "notification_id": after.notification_id}
    if after.status is NotificationStatus.FAILED:
        log.error("notification_given_up", **what, attempts=after.attempts, problem=after.problem)
    elif after.status is NotificationStatus.DELIVERED and before.problem:
        log.info("notification_delivered_late", **what, attempts=after.attempts)
    elif after.problem and after.problem != before.problem:
        log.warning("notification_not_delivered", **what, problem=after.problem)
