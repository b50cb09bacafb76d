"""What every change of an event writes: the event, its scope's document, ledger and audit."""

from collections.abc import Iterable

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.publication import publish
from forewarn.operations.context import Context
from forewarn.ports.store import AuditEntry, LedgerEntry, Transaction


def record_events(
    tx: Transaction, context: Context, what: str, events: Iterable[ScheduledEvent]
) -> None:
    """Store *events* after *what* was done to them, and show it to their scopes."""
    changed = tuple(events)
    for event in changed:
        tx.put_event(event)
        tx.append_ledger(
            LedgerEntry(
                event_id=event.event_id,
                at=context.now,
                what=what,
                who=context.who,
                detail=event.reason,
            )
        )
    for scope_id in dict.fromkeys(event.scope_id for event in changed):
        before = tx.document(scope_id)
        after = publish(before, tx.events_in_flight(scope_id))
        if after != before:
            tx.put_document(scope_id, after, at=context.now)


def record_audit(tx: Transaction, context: Context, action: str, subject: str) -> None:
    """Write down who did *action* to *subject*."""
    tx.append_audit(
        AuditEntry(
            at=context.at,
            maintenance_time=context.now,
            who=context.who,
            action=action,
            subject=subject,
        )
    )
