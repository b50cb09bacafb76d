"""Host operations as they follow from their events, for tests that make events by hand."""

from collections.abc import Iterable

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import find_failures, resolve
from forewarn.domain.host_operation import HostOperation, OperationFacts, advance
from forewarn.domain.maintenance import Maintenance, Resolution
from forewarn.domain.names import HostName, MaintenanceId, OperationId


def operations_of(events: Iterable[ScheduledEvent]) -> dict[OperationId, HostOperation]:
    """Return the operations that *events* are of, as far as they have come."""
    together: dict[OperationId, list[ScheduledEvent]] = {}
    for event in events:
        if event.operation_id is not None:
            together.setdefault(event.operation_id, []).append(event)
    return {key: _operation(key, own) for key, own in together.items()}


def resolved(
    maintenance: Maintenance,
    events: Iterable[ScheduledEvent],
    resolution: Resolution = Resolution.SKIP,
) -> Maintenance:
    """Return *maintenance* after the operator has decided about all that went wrong."""
    own = tuple(events)
    failures = find_failures(maintenance, own, operations_of(own).values())
    return resolve(maintenance, failures, resolution)


def _operation(operation_id: OperationId, events: list[ScheduledEvent]) -> HostOperation:
    first = events[0]
    operation = HostOperation(
        operation_id=operation_id,
        maintenance_id=first.maintenance_id or MaintenanceId("none"),
        event_type=first.event_type,
        host=first.host or HostName("none"),
        created_at=first.created_at,
    )
    facts = OperationFacts(events=events, impacts={}, tasks={}, rule=None)
    now = max(event.ended_at or event.created_at for event in events)
    while (advanced := advance(operation, facts, now)) != operation:
        operation = advanced
    return operation
