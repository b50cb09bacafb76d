"""Why an event is not moving."""

from dataclasses import dataclass

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.explanation import Reason, explain
from forewarn.operations.context import Context
from forewarn.operations.events import find_event
from forewarn.operations.snapshots import Impacts, look
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An event, and every reason that it is where it is; what holds it comes first."""

    event: ScheduledEvent
    reasons: tuple[Reason, ...]


def explain_event(
    reading: Reading, context: Context, event_id: EventId, impacts: Impacts
) -> Explanation:
    """Say why the event is where it is, or refuse one that never existed."""
    event = find_event(reading, event_id)
    snapshot = look(reading, impacts, {}, context.rules)
    reasons = explain(event, snapshot, context.now, speed=context.rules.speed)
    return Explanation(event=event, reasons=reasons)
