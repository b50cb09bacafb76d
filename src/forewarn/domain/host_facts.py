"""What the host operations of a snapshot depend on."""

from collections.abc import Mapping
from typing import TypeAlias

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation, OperationFacts
from forewarn.domain.host_work import HostWorkRule, work_for
from forewarn.domain.snapshot import Snapshot

Gathered: TypeAlias = Mapping[HostOperation, OperationFacts]
"""The host operations that are not over, with what their next phases depend on."""


def gather_facts(snapshot: Snapshot) -> Gathered:
    """Return the host operations of *snapshot* that are not over, each with its facts."""
    return {
        operation: facts_of(operation, snapshot)
        for operation in snapshot.operations.values()
        if not operation.is_over
    }


def facts_of(operation: HostOperation, snapshot: Snapshot) -> OperationFacts:
    """Return what the next phase of *operation* depends on."""
    return OperationFacts(
        events=snapshot.events_of.get(operation.operation_id, ()),
        impacts=snapshot.impacts,
        tasks=snapshot.tasks,
        rule=rule_of(operation, snapshot),
    )


def rule_of(operation: HostOperation, snapshot: Snapshot) -> HostWorkRule | None:
    """Return what work the host of *operation* has, if any."""
    host = snapshot.topology.hosts.get(operation.host)
    return None if host is None else work_for(snapshot.host_works, host)


def operation_at_work(event: ScheduledEvent, snapshot: Snapshot) -> HostOperation | None:
    """Return the host operation that *event* completes with: one whose host has work of its own."""
    operation = _operation_of(event, snapshot)
    if operation is None:
        return None
    is_at_work = has_impact_behind(event, snapshot)
    return operation if is_at_work or rule_of(operation, snapshot) else None


def has_impact_behind(event: ScheduledEvent, snapshot: Snapshot) -> bool:
    """Tell whether the host of *event* is past the impacts of its operation.

    Whoever comes to the host then is told, and goes through what happens to the host.
    """
    operation = _operation_of(event, snapshot)
    return operation is not None and (operation.is_at_work or operation.is_over)


def _operation_of(event: ScheduledEvent, snapshot: Snapshot) -> HostOperation | None:
    return snapshot.operations.get(event.operation_id) if event.operation_id else None
