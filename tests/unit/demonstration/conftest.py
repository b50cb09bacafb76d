"""Events of the demo's fleet, and scenes with them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from forewarn.cli.demonstration.fleet import MEMBERS
from forewarn.cli.demonstration.machines import Machine, Workload
from forewarn.cli.demonstration.story import Scene
from forewarn.domain.event import Approval, Approver, Draft, ScheduledEvent, Share, schedule
from forewarn.domain.names import HostName, OperationId, ScopeId, VmName
from forewarn.domain.standing import MaintenanceStatus
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id

NOW = datetime(2026, 1, 5, 8, 0, 0, tzinfo=UTC)
NOTICE = timedelta(seconds=15)
LINK = "http://127.0.0.1:8170/login#fw_0123456789012345678901234567890123456789012"


def announced(vm: str, host: str | None = None) -> ScheduledEvent:
    """Return the event that announces a Freeze to *vm*, as a part of the roll-out if by *host*."""
    draft = Draft(
        event_type=EventType.FREEZE,
        event_source=EventSource.PLATFORM,
        share=Share(scope_id=ScopeId("s"), update_domain=0, resources=(VmName(vm),)),
        host=HostName(host) if host else None,
        operation_id=OperationId(f"m/{host}") if host else None,
    )
    identifier = event_id(f"00000000-0000-4000-8000-{sum(vm.encode()):012d}")
    return schedule(draft, event_id=identifier, now=NOW, notice=NOTICE)


def approved(
    event: ScheduledEvent, seconds: float = 1, *, by: Approver = Approver.VIRTUAL_MACHINE
) -> ScheduledEvent:
    name = "admin" if by is Approver.OPERATOR else event.resources[0]
    given = Approval(approver=by, name=name, approved_at=NOW + timedelta(seconds=seconds))
    return replace(event, approvals=(*event.approvals, given))


def started(event: ScheduledEvent, seconds: float) -> ScheduledEvent:
    at = NOW + timedelta(seconds=seconds)
    return replace(event, event_status=EventStatus.STARTED, started_at=at)


def make_scene(*events: ScheduledEvent, seconds: float = 5, suggested: Sequence[str] = ()) -> Scene:
    """Return what is going on some *seconds* after the first notice."""
    machines = [Machine(member, "http://127.0.0.1:9", 1) for member in MEMBERS.values()]
    for machine in machines:
        machine.watching.set()
    services = [
        Workload(scope, [each for each in machines if each.member.scope == scope])
        for scope in ("web", "cart")
    ]
    scene = Scene(machines, services, NOW + timedelta(seconds=seconds), 60, suggested, link=LINK)
    scene.events, scene.status = events, MaintenanceStatus.RUNNING
    return scene
