"""What a virtual machine can do for its events."""

from datetime import datetime

from forewarn.domain.errors import UnknownEventError
from forewarn.domain.event import Happening, ScheduledEvent, request_start
from forewarn.domain.names import VmName
from forewarn.domain.policy import check_step
from forewarn.operations.context import Context
from forewarn.operations.events import postpone_event
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId


def request_starts(
    tx: Transaction, context: Context, vm: VmName, event_ids: tuple[EventId, ...]
) -> None:
    """Take the StartRequests of *vm*: all of them, or none if one was never of its scope."""
    events = [event_in_scope(tx, vm, event_id) for event_id in event_ids]
    approved = [
        after
        for event in events
        if (after := request_start(event, vm=vm, now=context.now)) != event
    ]
    record_events(tx, context, [Deed(event=event, what=Happening.APPROVED) for event in approved])
    for event in approved:
        record_audit(tx, context, "event approve", event.event_id)


def postpone_from_vm(
    tx: Transaction, context: Context, vm: VmName, event_id: EventId, not_before: datetime
) -> ScheduledEvent:
    """Postpone on behalf of *vm*, if its scope allows."""
    event = event_in_scope(tx, vm, event_id)
    scope = tx.topology().scopes[event.scope_id]  # that of the caller, so it is there
    check_step(
        event,
        not_before,
        latest=event.first_not_before + scope.policy.postpone_until / context.rules.speed,
        times=sum(entry.what is Happening.POSTPONED for entry in tx.ledger(event_id)),
        speed=context.rules.speed,
    )
    return postpone_event(tx, context, event_id, not_before)


def event_in_scope(reading: Reading, vm: VmName, event_id: EventId) -> ScheduledEvent:
    """Return an event that *vm* can see or could once see, or refuse."""
    event = reading.event(event_id)
    caller = reading.topology().virtual_machines.get(vm)
    is_known = event is not None and caller is not None and event.scope_id == caller.scope_id
    if event is None or not is_known or not event.is_published:
        raise UnknownEventError(event_id)
    return event
