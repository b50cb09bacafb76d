"""Events of the demo's fleet, as its pictures show them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from forewarn.cli.demonstration.fleet import MEMBERS, SCOPES
from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    ScheduledEvent,
    Share,
    schedule,
)
from forewarn.domain.names import MaintenanceId, OperationId, ScopeId, VmName
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id

NOW = datetime(2026, 1, 5, 8, 0, 0, tzinfo=UTC)
NOTICE = timedelta(seconds=15)


def announced(number: int, *vms: str, is_rolled_out: bool = True) -> ScheduledEvent:
    """Return the event that announces a Freeze to members of the demo's fleet."""
    first = next(member for member in MEMBERS if member.name == vms[0])
    scopes = {scope.name: scope.scope_id for scope in SCOPES}
    draft = Draft(
        event_type=EventType.FREEZE,
        event_source=EventSource.PLATFORM,
        share=Share(
            scope_id=scopes.get(first.scope or "", ScopeId(f"virtual-machine/{first.name}")),
            update_domain=first.update_domain,
            resources=tuple(map(VmName, vms)),
        ),
        maintenance_id=MaintenanceId("m") if is_rolled_out else None,
        host=first.host if is_rolled_out else None,
        operation_id=OperationId(f"m/{first.host}") if is_rolled_out else None,
    )
    identifier = event_id(f"00000000-0000-4000-8000-{number:012d}")
    return schedule(draft, event_id=identifier, now=NOW, notice=NOTICE)


def approved(event: ScheduledEvent, *vms: str) -> ScheduledEvent:
    given = tuple(
        Approval(
            approver=Approver.VIRTUAL_MACHINE, name=vm, approved_at=NOW + timedelta(seconds=index)
        )
        for index, vm in enumerate(vms, 1)
    )
    return replace(event, approvals=(*event.approvals, *given))


def started(event: ScheduledEvent, seconds: float) -> ScheduledEvent:
    at = NOW + timedelta(seconds=seconds)
    return replace(event, event_status=EventStatus.STARTED, started_at=at)
