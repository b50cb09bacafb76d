"""One turn of the loop, inside one transaction: look, decide, and record what was decided."""

from collections.abc import Mapping
from itertools import count

from forewarn.domain.decisions import Decisions, Impact, Snapshot, StartEvent, decide, record
from forewarn.domain.names import VmName
from forewarn.operations.context import Context
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId

Impacts = Mapping[tuple[EventId, VmName], Impact]


def look(reading: Reading, impacts: Impacts) -> Snapshot:
    """Return all that the next decision depends on."""
    maintenances = {
        maintenance.maintenance_id: maintenance
        for maintenance in reading.maintenances(finished=False)
    }
    events = (*reading.events_in_flight(), *reading.events_of(maintenances))
    return Snapshot(
        topology=reading.topology(),
        events={event.event_id: event for event in events},
        maintenances=maintenances,
        impacts=impacts,
    )


def decide_and_record(
    tx: Transaction, context: Context, impacts: Impacts, *, epoch: int
) -> tuple[Snapshot, Decisions]:
    """Decide on what is committed now, and write the decisions down under the lease *epoch*."""
    tx.check_epoch(epoch)
    before = look(tx, impacts)
    decisions = decide(before, context.now)
    after = record(
        before,
        decisions.actions,
        now=context.now,
        event_ids=(context.new_id() for _ in count()),
        speed=context.rules.speed,
    )
    changed = [
        event for event in after.events.values() if before.events.get(event.event_id) != event
    ]
    reasons = {
        action.event_id: action.reason.value
        for action in decisions.actions
        if isinstance(action, StartEvent)
    }
    deeds = [
        Deed(event=event, what=event.event_status.lower(), detail=reasons.get(event.event_id, ""))
        for event in changed
    ]
    record_events(tx, context, deeds)
    for maintenance_id, maintenance in after.maintenances.items():
        if maintenance != before.maintenances[maintenance_id]:
            tx.put_maintenance(maintenance)
            record_audit(tx, context, "maintenance finish", maintenance_id)
    return before, decisions
