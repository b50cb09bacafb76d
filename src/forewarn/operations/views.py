"""Events in words that JSON has, for everybody who shows them."""

from collections.abc import Iterable
from datetime import datetime

from forewarn.domain.event import ScheduledEvent
from forewarn.ports.store import LedgerEntry


def describe_event(event: ScheduledEvent, ledger: Iterable[LedgerEntry]) -> dict[str, object]:
    """Return what became of *event*, and how."""
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_source": event.event_source,
        "event_status": event.event_status,
        "resources": list(event.resources),
        "not_before": _moment(event.not_before),
        "started_at": _moment(event.started_at),
        "ended_at": _moment(event.ended_at),
        "outcome": event.outcome,
        "reason": event.reason,
        "ledger": [
            {"at": _moment(entry.at), "what": entry.what, "who": entry.who, "detail": entry.detail}
            for entry in ledger
        ],
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
