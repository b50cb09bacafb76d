"""The outbox, as operators and couriers see and change it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.errors import ConflictError, NotFoundError, says
from forewarn.domain.event import (
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    cancel,
    complete,
    move_not_before,
    request_start,
    schedule,
    start,
)
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import HostName, MaintenanceId, ScheduleName, ScopeId, VmName
from forewarn.domain.news import News
from forewarn.domain.notification import (
    Delivery,
    Notification,
    NotificationStatus,
    Phase,
    Retrying,
    Target,
    Topic,
    after_attempt,
    give_up,
    try_again,
)
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.schedule import Occurrence, OccurrenceOutcome, Schedule
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.operations.telling import describe_news
from forewarn.operations.views import describe_change, describe_maintenance, describe_occurrence
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventSource, EventType, event_id

KEPT: Final = {
    NotificationStatus.DELIVERED: timedelta(days=7),
    NotificationStatus.FAILED: timedelta(days=90),
}
"""How long a message is remembered after it has ended; one that waits stays."""


@says("Unknown notification {notification_id!r}.")
class UnknownNotificationError(NotFoundError):
    """A message that is not, or no longer, in the outbox."""

    notification_id: str


@says("Notification {notification_id} is {status}; only failed notifications can be retried.")
class NotificationNotFailedError(ConflictError):
    """A message that is still waiting or has arrived, and need not be tried again."""

    notification_id: str
    status: NotificationStatus


@says("Unknown notification target {target!r}.")
class UnknownTargetError(NotFoundError):
    """A target that is not in the file of notifications."""

    target: str


def retry_notification(tx: Transaction, context: Context, notification_id: str) -> Notification:
    """Have a message that was given up tried again, at once and as often as a new one."""
    found = _find(tx, notification_id)
    if found.status is not NotificationStatus.FAILED:
        raise NotificationNotFailedError(found.notification_id, found.status)
    find_target(context.rules.targets, found.target)
    again = try_again(found, now=context.at)
    tx.put_notification(again)
    record_audit(tx, context, "notification retry", notification_id)
    return again


def find_notifications(
    reading: Reading, *, status: NotificationStatus | None, older_than: str | None, limit: int
) -> tuple[Notification, ...]:
    """Return the newest messages, or the newest before one that was seen, oldest first."""
    if older_than is not None:
        _find(reading, older_than)
    return reading.notifications(status=status, older_than=older_than, limit=limit)


def prepare_test(tx: Transaction, context: Context, name: str) -> Notification:
    """Return a message about an event that there is not, to be delivered to a target at once."""
    target = find_target(context.rules.targets, name)
    record_audit(tx, context, "notification test", target.name)
    return example_notification(
        target.name,
        notification_id=context.new_id().lower(),
        who=context.who,
        now=context.now,
        at=context.at,
        phase=next(iter(target.phases), Phase.SCHEDULED),
    )


def example_notification(
    target: str,
    *,
    notification_id: str,
    who: str,
    now: datetime,
    at: datetime,
    phase: Phase = Phase.SCHEDULED,
) -> Notification:
    """Return a message about something that there is not, but that has come to *phase*."""
    subject, data = _EXAMPLES[phase.topic](target, phase, now)
    return Notification(
        notification_id=notification_id,
        subject=subject,
        phase=phase,
        target=target,
        data={**data, "who": who, "detail": "test"},
        created_at=at,
        maintenance_time=now,
        next_attempt_at=at,
    )


def _example_event(target: str, phase: Phase, now: datetime) -> tuple[str, dict[str, object]]:
    share = Share(
        scope_id=ScopeId("virtual-machine/example"),
        update_domain=0,
        resources=(_NO_VM,),
    )
    draft = Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        share=share,
        description=_EXAMPLE.format(target),
    )
    scheduled = schedule(draft, event_id=event_id(_NO_EVENT), now=now, notice=_NOTICE)
    event = _LIVES[phase](scheduled, now)
    return event.event_id, describe_change(event)


def _example_maintenance(target: str, phase: Phase, now: datetime) -> tuple[str, dict[str, object]]:
    maintenance = Maintenance(
        maintenance_id=MaintenanceId(_NO_EVENT),
        event_type=EventType.REBOOT,
        started_at=now,
        description=_EXAMPLE.format(target),
        hosts=(HostName("example"),),
        is_aborted=phase is Phase.ABORTED,
        finished_at=now if phase in _EXAMPLE_OUTCOMES else None,
        outcome=_EXAMPLE_OUTCOMES.get(phase),
    )
    news = News(
        phase=phase,
        place="example" if phase is Phase.STEP_FAILED else "",
        gate="example" if phase is Phase.GATE_SHUT else "",
    )
    return _NO_EVENT, describe_news(describe_maintenance(maintenance, {}), news, "")


def _example_schedule(target: str, _: Phase, now: datetime) -> tuple[str, dict[str, object]]:
    schedule = Schedule(
        name=ScheduleName("example"),
        order=MaintenanceOrder(event_type=EventType.REBOOT, description=_EXAMPLE.format(target)),
        every=read_recurrence("day"),
        from_date=now.date(),
        until_date=None,
        created_at=now,
        met_until=now,
        occurrences=(
            Occurrence(opens_at=now, met_at=now, outcome=OccurrenceOutcome.SKIPPED, reason="test"),
        ),
    )
    return schedule.name, describe_occurrence(schedule)


def find_target(targets: Collection[Target], name: str) -> Target:
    """Return the target called *name*, or refuse."""
    for target in targets:
        if target.name == name:
            return target
    raise UnknownTargetError(name)


def record_attempt(
    tx: Transaction,
    notification: Notification,
    delivery: Delivery,
    *,
    now: datetime,
    retrying: Retrying,
    chance: float,
) -> Notification:
    """Write down what came of an attempt to deliver *notification*.

    One that says something newer since the attempt began is still to be delivered.
    """
    known = tx.notification(notification.notification_id)
    if known is not None and known.data != notification.data:
        return known
    tried = after_attempt(notification, delivery, now=now, retrying=retrying, chance=chance)
    tx.put_notification(tried)
    return tried


def give_up_orphans(tx: Transaction, names: Collection[str], *, now: datetime) -> int:
    """Give up what waits for targets other than *names*, and tell how many messages those were."""
    number = 0
    for target in tx.targets_waited_for():
        while target not in names and (heads := tx.next_notifications(target)):
            for notification in heads:
                tx.put_notification(give_up(notification, _NOT_CONFIGURED, now=now))
            number += len(heads)
    return number


def prune_outbox(tx: Transaction, *, now: datetime) -> int:
    """Forget what has ended long ago, and tell how many messages those were."""
    return sum(
        tx.prune_notifications(status, ended_before=now - kept) for status, kept in KEPT.items()
    )


_NOT_CONFIGURED: Final = "The target is no longer configured."
_EXAMPLE_OUTCOMES: Final = {
    Phase.COMPLETED: MaintenanceOutcome.SUCCEEDED,
    Phase.ABORTED: MaintenanceOutcome.ABORTED,
}
_EXAMPLE: Final = "A test of the notification target {}: nothing will happen."
_NO_EVENT: Final = "00000000-0000-0000-0000-000000000000"
_NO_VM: Final = VmName("example")
_NOTICE: Final = timedelta(minutes=15)


_EXAMPLES: Final = {
    Topic.EVENT: _example_event,
    Topic.MAINTENANCE: _example_maintenance,
    Topic.SCHEDULE: _example_schedule,
}


def _end(event: ScheduledEvent, outcome: Outcome, now: datetime) -> ScheduledEvent:
    reason = "This is an example." if outcome is Outcome.FAILED else ""
    return complete(start(event, now=now), outcome=outcome, now=now, reason=reason)


_LIVES: Final[Mapping[Phase, Callable[[ScheduledEvent, datetime], ScheduledEvent]]] = {
    Phase.SCHEDULED: lambda event, _: event,
    Phase.APPROVED: lambda event, now: request_start(event, vm=_NO_VM, now=now),
    Phase.POSTPONED: lambda event, _: move_not_before(event, event.not_before + _NOTICE),
    Phase.STARTED: lambda event, now: start(event, now=now),
    Phase.OVERDUE: lambda event, now: replace(start(event, now=now), overdue_at=now),
    Phase.FINISHED: lambda event, now: _end(event, Outcome.SUCCEEDED, now),
    Phase.FAILED: lambda event, now: _end(event, Outcome.FAILED, now),
    Phase.CANCELED: lambda event, now: cancel(event, now=now),
}
"""How an event that was just scheduled comes to each of its phases."""


def _find(reading: Reading, notification_id: str) -> Notification:
    found = reading.notification(notification_id)
    if found is None:
        raise UnknownNotificationError(notification_id)
    return found
