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
        **_told(event, "event_id event_type event_source event_status"),
        "resources": list(resource_names(event.resources, event.scope_id)),
        **_told(event, "not_before started_at ended_at outcome"),
        "ledger": [_told(entry, "at what") for entry in ledger],
    }


def describe_change(event: ScheduledEvent) -> dict[str, object]:
    """Return *event* as those who are notified of a change see it."""
    return {
        **_told(event, "event_id event_type event_source event_status scope_id update_domain"),
        **_told(event, "resources description duration_in_seconds maintenance_id host"),
        **_told(event, "operation_id created_at not_before"),
        "approved_by": [approval.name for approval in event.approvals],
        **_told(event, "started_at overdue_at ended_at outcome reason"),
    }


def describe_maintenance(
    maintenance: Maintenance, places: Mapping[Standing, int]
) -> dict[str, object]:
    """Return *maintenance* as those who are notified see it; *places* are counted already."""
    return {
        **_told(maintenance, "maintenance_id event_type description hosts"),
        **_told(maintenance, "started_at finished_at outcome"),
        "places": {standing.name.lower(): places.get(standing, 0) for standing in Standing},
    }


def describe_occurrence(schedule: Schedule) -> dict[str, object]:
    """Return the last occurrence of *schedule* as those who are notified see it."""
    met = schedule.occurrences[-1]
    return {
        "schedule": schedule.name,
        **_told(schedule.order, "event_type description"),
        **_told(met, "opens_at outcome"),
        "maintenance_id": schedule.maintenance_id,
        "detail": met.reason,
    }


def _told(thing: object, names: str) -> dict[str, object]:
    """Return what *thing* has under each of *names*."""
    return {name: _in_json(getattr(thing, name)) for name in names.split()}


def _in_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value
