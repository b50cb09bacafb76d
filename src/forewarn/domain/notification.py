"""What people outside the virtual machines are told: when, who, and how often it is tried."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.event import Happening, Outcome, ScheduledEvent
from forewarn.domain.names import MaintenanceId, ScheduleName, ScopeId, names_place
from forewarn.domain.policy import Policy, is_approved
from forewarn.protocol.vocabulary import EventId, EventType


class Phase(StrEnum):
    """What has become of an event, a Maintenance or a schedule, as far as people are told."""

    SCHEDULED = "scheduled"
    APPROVED = "approved"
    POSTPONED = "postponed"
    STARTED = "started"
    OVERDUE = "overdue"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    STEP_FAILED = "step_failed"
    GATE_SHUT = "gate_shut"
    PAUSED = "paused"
    HELD = "held"
    STUCK = "stuck"
    RESUMED = "resumed"
    COMPLETED = "completed"
    ABORTED = "aborted"
    SKIPPED = "skipped"

    @property
    def topic(self) -> "Topic":
        """What it is about."""
        return _TOPICS.get(self, Topic.EVENT)


class Topic(StrEnum):
    """What a message is about."""

    EVENT = "event"
    MAINTENANCE = "maintenance"
    SCHEDULE = "schedule"


_TOPICS: Final[Mapping[Phase, Topic]] = {
    Phase.STEP_FAILED: Topic.MAINTENANCE,
    Phase.GATE_SHUT: Topic.MAINTENANCE,
    Phase.PAUSED: Topic.MAINTENANCE,
    Phase.HELD: Topic.MAINTENANCE,
    Phase.STUCK: Topic.MAINTENANCE,
    Phase.RESUMED: Topic.MAINTENANCE,
    Phase.COMPLETED: Topic.MAINTENANCE,
    Phase.ABORTED: Topic.MAINTENANCE,
    Phase.SKIPPED: Topic.SCHEDULE,
}

PHASES: Final[Mapping[tuple[Happening, Outcome | None], Phase]] = {
    (Happening.SCHEDULED, None): Phase.SCHEDULED,
    (Happening.APPROVED, None): Phase.APPROVED,
    (Happening.POSTPONED, None): Phase.POSTPONED,
    (Happening.STARTED, None): Phase.STARTED,
    (Happening.OVERDUE, None): Phase.OVERDUE,
    (Happening.COMPLETED, Outcome.SUCCEEDED): Phase.FINISHED,
    (Happening.COMPLETED, Outcome.FAILED): Phase.FAILED,
    (Happening.CANCELED, None): Phase.CANCELED,
}
"""The phase of an event for each happening and outcome; anything else is no news."""


class NotificationStatus(StrEnum):
    """What has become of a message."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Somebody who wants to know, and of what; where nothing is named, of everything.

    A scope is named as in the fleet file, or by its id.
    """

    name: str
    scopes: tuple[str, ...] = ()
    event_types: tuple[EventType, ...] = ()
    phases: tuple[Phase, ...] = ()

    def wants(self, phase: Phase, event_type: EventType, scope_ids: Iterable[ScopeId]) -> bool:
        """Tell whether it wants to know of *phase*; one of *scope_ids* is enough."""
        return (
            (not self.phases or phase in self.phases)
            and (not self.event_types or event_type in self.event_types)
            and (
                not self.scopes
                or any(names_place(scope, id_) for id_ in scope_ids for scope in self.scopes)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One message to one target. *data* is its subject as it was; times of attempts are real.

    The *subject* is the id of an event or of a Maintenance, or the name of a schedule. Messages
    about one subject to one target are delivered in the order they were written.
    """

    notification_id: str
    subject: str
    phase: Phase
    target: str
    data: Mapping[str, object]
    created_at: datetime
    maintenance_time: datetime
    next_attempt_at: datetime
    status: NotificationStatus = NotificationStatus.WAITING
    attempts: int = 0
    ended_at: datetime | None = None
    problem: str = ""

    @property
    def event_id(self) -> EventId | None:
        """The event that it is about, if it is about one."""
        return EventId(self.subject) if self.phase.topic is Topic.EVENT else None

    @property
    def maintenance_id(self) -> MaintenanceId | None:
        """The Maintenance that it is about, if it is about one."""
        return MaintenanceId(self.subject) if self.phase.topic is Topic.MAINTENANCE else None

    @property
    def schedule(self) -> ScheduleName | None:
        """The schedule that it is about, if it is about one."""
        return ScheduleName(self.subject) if self.phase.topic is Topic.SCHEDULE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What came of one attempt, in a sentence; *is_final* if there is no use in another."""

    is_delivered: bool
    answer: str
    is_final: bool = False
    retry_after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """How long to wait after a failed attempt: twice as long each time, up to the longest."""

    first: timedelta = timedelta(seconds=5)
    longest: timedelta = timedelta(hours=1)
    attempts: int = 34
    """After these a message is given up: with the rest as it is, after a day."""

    def wait(self, attempts: int, chance: float) -> timedelta:
        """Return the wait after *attempts*, a quarter more or less by *chance*, from 0 to 1."""
        # Doubled 64 times, the shortest wait is longer than the longest.
        doubled = self.first.total_seconds() * 2.0 ** min(attempts - 1, 64)
        seconds = min(doubled, self.longest.total_seconds())
        return timedelta(seconds=seconds * (0.75 + chance / 2))


def phase_of(
    what: Happening, before: ScheduledEvent | None, after: ScheduledEvent, policy: Policy
) -> Phase | None:
    """Return what there is to tell when *what* happened to an event, if anything.

    An approval is news when it is the last that was missing, and not again after that.
    """
    phase = PHASES.get((what, after.outcome))
    if phase is Phase.APPROVED and (
        not is_approved(after, policy) or (before is not None and is_approved(before, policy))
    ):
        return None
    return phase


def after_attempt(
    notification: Notification,
    delivery: Delivery,
    *,
    now: datetime,
    retrying: Retrying,
    chance: float,
) -> Notification:
    """Return *notification* after an attempt: delivered, given up, or waiting for the next."""
    attempts = notification.attempts + 1
    tried = replace(notification, attempts=attempts)
    if delivery.is_delivered:
        status = NotificationStatus.DELIVERED
        return replace(tried, status=status, ended_at=now, problem="")
    if delivery.is_final or attempts >= retrying.attempts:
        return give_up(tried, delivery.answer, now=now)
    wait = max(retrying.wait(attempts, chance), delivery.retry_after)
    return replace(tried, next_attempt_at=now + wait, problem=delivery.answer)


def give_up(notification: Notification, problem: str, *, now: datetime) -> Notification:
    """Return *notification* as one that is not tried again, unless somebody asks for it."""
    status = NotificationStatus.FAILED
    return replace(notification, status=status, ended_at=now, problem=problem)


def try_again(notification: Notification, *, now: datetime) -> Notification:
    """Return *notification* as if it had never been tried."""
    return replace(
        notification,
        status=NotificationStatus.WAITING,
        attempts=0,
        next_attempt_at=now,
        ended_at=None,
    )
