"""Events, Maintenances and schedules in words that JSON has, for everybody who shows them."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.schedule import Schedule
from forewarn.domain.standing import Standing
from forewarn.domain.topology import resource_names
from forewarn.ports.entries import LedgerEntry


def describe_event(event: ScheduledEvent, ledger: Iterable[LedgerEntry]) -> dict[str, object]:
    """Return what became of *event*, with the names that its virtual machines know.

    Who did it and why is for operators: reasons may quote them, or what their scripts wrote.
    """
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_source": event.event_source,
        "event_status": event.event_status,
        "resources": list(resource_names(event.resources, event.scope_id)),
        "not_before": _moment(event.not_before),
        "started_at": _moment(event.started_at),
        "ended_at": _moment(event.ended_at),
        "outcome": event.outcome,
        "ledger": [{"at": _moment(entry.at), "what": entry.what} for entry in ledger],
    }


def describe_change(event: ScheduledEvent) -> dict[str, object]:
    """Return *event* as those who are notified of a change see it."""
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_source": event.event_source,
        "event_status": event.event_status,
        "scope_id": event.scope_id,
        "update_domain": event.update_domain,
        "resources": list(event.resources),
        "description": event.description,
        "duration_in_seconds": event.duration_in_seconds,
        "maintenance_id": event.maintenance_id,
        "host": event.host,
        "operation_id": event.operation_id,
        "created_at": _moment(event.created_at),
        "not_before": _moment(event.not_before),
        "approved_by": [approval.name for approval in event.approvals],
        "started_at": _moment(event.started_at),
        "overdue_at": _moment(event.overdue_at),
        "ended_at": _moment(event.ended_at),
        "outcome": event.outcome,
        "reason": event.reason,
    }


def describe_maintenance(
    maintenance: Maintenance, places: Mapping[Standing, int]
) -> dict[str, object]:
    """Return *maintenance* as those who are notified see it; *places* are counted already."""
    return {
        "maintenance_id": maintenance.maintenance_id,
        "event_type": maintenance.event_type,
        "description": maintenance.description,
        "hosts": list(maintenance.hosts),
        "started_at": _moment(maintenance.started_at),
        "finished_at": _moment(maintenance.finished_at),
        "outcome": maintenance.outcome,
        "places": {standing.name.lower(): places.get(standing, 0) for standing in Standing},
    }


def describe_occurrence(schedule: Schedule) -> dict[str, object]:
    """Return the last occurrence of *schedule* as those who are notified see it."""
    met = schedule.occurrences[-1]
    return {
        "schedule": schedule.name,
        "event_type": schedule.order.event_type,
        "description": schedule.order.description,
        "opens_at": _moment(met.opens_at),
        "outcome": met.outcome,
        "maintenance_id": schedule.maintenance_id,
        "detail": met.reason,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
