"""Why an event is not moving, and why a Maintenance is not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.explanation import explain
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import NOT_DONE, MaintenanceState, MaintenanceStatus
from forewarn.domain.standstill import (
    EVERYTHING,
    Covers,
    Interruption,
    Standstill,
    find_standstill,
)
from forewarn.domain.walk import Walks, find_state, walk_all
from forewarn.domain.why import Reason, ReasonKind
from forewarn.operations.context import Context
from forewarn.operations.events import find_event
from forewarn.operations.maintenances import find_maintenance, find_places
from forewarn.operations.snapshots import look
from forewarn.ports.entries import DONE
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An event, and every reason that it is where it is; what holds it comes first."""

    event: ScheduledEvent
    reasons: tuple[Reason, ...]


def explain_event(reading: Reading, context: Context, event_id: EventId) -> Explanation:
    """Say why the event is where it is, or refuse one that never existed."""
    event = find_event(reading, event_id)
    snapshot = look(reading, context)
    moves = (
        Reason(kind=ReasonKind.MOVED, since=entry.at, about=entry.detail)
        for entry in reading.ledger(event.event_id)
        if entry.what is Happening.MOVED
    )
    reasons = (*explain(event, snapshot, context.now), *moves)
    return Explanation(event=event, reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceExplanation:
    """A Maintenance, where it is, and everything that holds it there."""

    maintenance: Maintenance
    state: MaintenanceState
    standstill: Standstill

    @property
    def status(self) -> MaintenanceStatus:
        return self.state.status


def explain_maintenance(
    reading: Reading, context: Context, maintenance_id: str, *, covers: Covers = EVERYTHING
) -> MaintenanceExplanation:
    """Say what holds a Maintenance, or refuse one that nobody has started."""
    maintenance = find_maintenance(reading, maintenance_id)
    snapshot = look(reading, context)
    walks = walk_all(snapshot, context.now)
    explained = _explain(reading, context, maintenance, snapshot, walks, covers)
    places = find_places(reading, snapshot, maintenance)
    not_done = {place: said for place, said in places.items() if said in NOT_DONE}
    return replace(explained, standstill=replace(explained.standstill, not_done=not_done))


def explain_maintenances(
    reading: Reading, context: Context, snapshot: Snapshot, covers: Covers
) -> Mapping[MaintenanceId, MaintenanceExplanation]:
    """Say what holds each Maintenance of *snapshot*, which is of this moment.

    What they have left undone for good is not among it.
    """
    walks = walk_all(snapshot, context.now)
    return {
        key: _explain(reading, context, maintenance, snapshot, walks, covers)
        for key, maintenance in snapshot.maintenances.items()
    }


def _explain(
    reading: Reading,
    context: Context,
    maintenance: Maintenance,
    snapshot: Snapshot,
    walks: Walks,
    covers: Covers,
) -> MaintenanceExplanation:
    is_interrupted = maintenance.is_paused or maintenance.is_aborted
    return MaintenanceExplanation(
        maintenance=maintenance,
        state=find_state(maintenance, snapshot, context.now, walks),
        standstill=find_standstill(
            maintenance,
            snapshot,
            context.now,
            interruption=_last_interruption(reading, maintenance) if is_interrupted else None,
            is_simulated=context.rules.is_simulated,
            walks=walks,
            covers=covers,
        ),
    )


def _last_interruption(reading: Reading, maintenance: Maintenance) -> Interruption | None:
    action = "maintenance abort" if maintenance.is_aborted else "maintenance pause"
    for entry in reversed(reading.audit(action=action)):
        if entry.subject == maintenance.maintenance_id and entry.outcome == DONE:
            return Interruption(who=entry.who, at=entry.maintenance_time)
    return None
