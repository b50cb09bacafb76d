"""What every change of an event writes: the event, its scope's document, ledger and audit."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Final

from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.maintenance import soaks_until
from forewarn.domain.names import ScopeId
from forewarn.domain.notification import Notification, NotificationStatus, Phase, phase_of
from forewarn.domain.policy import Policy
from forewarn.domain.publication import publish
from forewarn.operations.context import Context
from forewarn.operations.views import describe_change
from forewarn.ports.entries import AuditEntry, LedgerEntry
from forewarn.ports.store import Transaction
from forewarn.protocol.vocabulary import event_id

POSTPONEMENTS_TOGETHER: Final = timedelta(seconds=10)
"""How long a message about a repeated postponement waits for the next one."""
_RECENT: Final = 100
"""Among how many messages the one is looked for that still waits: it was written just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What was done to an event, which is now as *event* says."""

    event: ScheduledEvent
    what: Happening
    detail: str = ""


def record_events(tx: Transaction, context: Context, deeds: Iterable[Deed]) -> None:
    """Store what was done to events, and show it to their scopes.

    Called once in a transaction, so that a document changes once however many events do.
    """
    done = tuple(deeds)
    for deed in done:
        # Of what the event was before, which is lost when it is put.
        messages = tuple(_messages(tx, context, deed))
        tx.put_event(deed.event)
        tx.append_ledger(
            LedgerEntry(
                event_id=deed.event.event_id,
                at=context.now,
                what=deed.what,
                who=context.who,
                where=context.where,
                detail=deed.detail or deed.event.reason,
            )
        )
        for message in messages:
            tx.put_notification(message)
    _record_soaks(tx, context, [deed.event for deed in done])
    _publish(tx, context, tuple(dict.fromkeys(deed.event.scope_id for deed in done)))


def _publish(tx: Transaction, context: Context, scope_ids: Sequence[ScopeId]) -> None:
    in_flight: dict[ScopeId, list[ScheduledEvent]] = defaultdict(list)
    for event in tx.events_in_flight(scope_ids):
        in_flight[event.scope_id].append(event)
    for scope_id, before in tx.documents(scope_ids).items():
        after = publish(before, in_flight[scope_id])
        if after != before:
            tx.put_document(scope_id, after, at=context.now)


def _record_soaks(tx: Transaction, context: Context, events: Iterable[ScheduledEvent]) -> None:
    """Keep until when scopes are left alone, also for when the Maintenance has finished."""
    find = cache(tx.maintenance)
    known = None
    for event in events:
        if event.outcome is None or event.maintenance_id is None:
            continue
        maintenance = find(event.maintenance_id)
        if maintenance is None or not maintenance.course.soak:
            continue
        known = dict(tx.soaks()) if known is None else known
        until = soaks_until(maintenance, event, speed=context.rules.speed)
        known[event.scope_id] = max(until, known.get(event.scope_id, until))
        tx.put_soak(event.scope_id, known[event.scope_id], at=context.now)


def _messages(tx: Transaction, context: Context, deed: Deed) -> Iterator[Notification]:
    """Return what is told outside; it is kept if and only if the change is."""
    if not context.rules.targets:
        return
    event = deed.event
    scope = tx.topology().scopes.get(event.scope_id)
    policy = scope.policy if scope else Policy()
    phase = phase_of(deed.what, tx.event(event.event_id), event, policy)
    if phase is None:
        return
    data = {**describe_change(event), "who": context.who, "detail": deed.detail or event.reason}
    for target in context.rules.targets:
        if target.wants(phase, event.event_type, (event.scope_id,)):
            message = new_notification(context, event.event_id, phase, target.name, data)
            yield _coalesce(tx, context, message) if phase is Phase.POSTPONED else message


def _coalesce(tx: Transaction, context: Context, message: Notification) -> Notification:
    """Tell the first postponement at once, and of those that follow shortly only the last."""
    if all(entry.what is not Happening.POSTPONED for entry in tx.ledger(event_id(message.subject))):
        return message
    for waiting in tx.notifications(status=NotificationStatus.WAITING, limit=_RECENT):
        # Whose time has come is perhaps being delivered just now.
        is_early = not waiting.attempts and waiting.next_attempt_at > context.at
        if is_early and _address(waiting) == _address(message):
            known = waiting.notification_id
            return replace(message, notification_id=known, next_attempt_at=waiting.next_attempt_at)
    return replace(message, next_attempt_at=context.at + POSTPONEMENTS_TOGETHER)


def _address(message: Notification) -> tuple[str, str, Phase]:
    return message.target, message.subject, message.phase


def new_notification(
    context: Context, subject: str, phase: Phase, target: str, data: Mapping[str, object]
) -> Notification:
    """Return a message to *target*, to be delivered at once."""
    return Notification(
        notification_id=context.new_id().lower(),
        subject=subject,
        phase=phase,
        target=target,
        data=data,
        created_at=context.at,
        maintenance_time=context.now,
        next_attempt_at=context.at,
    )


def record_audit(
    tx: Transaction, context: Context, action: str, subject: str, *, detail: str = ""
) -> None:
    """Write down who did *action* to *subject*."""
    tx.append_audit(
        AuditEntry(
            at=context.at,
            maintenance_time=context.now,
            who=context.who,
            actor=context.actor,
            where=context.where,
            action=action,
            subject=subject,
            detail=detail,
        )
    )
