"""The life of one scheduled event. Every rule about status changes is in this file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.errors import IllegalTransitionError, NoticeTooShortError
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.domain.notice import earliest_not_before, round_up_to_second
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType


class Trigger(StrEnum):
    """What can be done to an event."""

    APPROVE = "approve"
    POSTPONE = "postpone"
    START = "start"
    COMPLETE = "complete"
    CANCEL = "cancel"


TRANSITIONS: Final[Mapping[tuple[EventStatus, Trigger], EventStatus]] = {
    (EventStatus.SCHEDULED, Trigger.APPROVE): EventStatus.SCHEDULED,
    (EventStatus.SCHEDULED, Trigger.POSTPONE): EventStatus.SCHEDULED,
    (EventStatus.SCHEDULED, Trigger.START): EventStatus.STARTED,
    (EventStatus.SCHEDULED, Trigger.CANCEL): EventStatus.CANCELED,
    (EventStatus.STARTED, Trigger.COMPLETE): EventStatus.COMPLETED,
}
"""Every change of status there is; any other pair is refused."""

DESCRIPTIONS: Final[Mapping[tuple[EventType, EventSource], str]] = {
    (EventType.FREEZE, EventSource.PLATFORM): "Host server is undergoing maintenance.",
    (EventType.REBOOT, EventSource.PLATFORM): "Host server is undergoing maintenance.",
    (EventType.REBOOT, EventSource.USER): (
        "Virtual machine is going to be restarted as requested by authorized user."
    ),
    (EventType.REDEPLOY, EventSource.PLATFORM): "Virtual machine has encountered a failure.",
    (EventType.REDEPLOY, EventSource.USER): (
        "Virtual machine is going to be redeployed as requested by authorized user."
    ),
}
"""Descriptions in the words of Azure, by type and source: compatibility.md#description."""


def usual_description(event_type: EventType, event_source: EventSource) -> str:
    """Return the Description of an event for which nobody has written one."""
    return DESCRIPTIONS.get((event_type, event_source), "")


class Happening(StrEnum):
    """What can happen to an event, as its ledger says it."""

    SCHEDULED = "scheduled"
    APPROVED = "approved"
    POSTPONED = "postponed"
    STARTED = "started"
    OVERDUE = "overdue"
    MOVED = "moved"
    COMPLETED = "completed"
    CANCELED = "canceled"
    STEP_SKIPPED = "step skipped"


class Outcome(StrEnum):
    """How a completed event ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Approver(StrEnum):
    """On which side of the wire an approval was given."""

    VIRTUAL_MACHINE = "virtual machine"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Somebody's word that the event may start."""

    approver: Approver
    name: str
    approved_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Virtual machines of one update domain of one delivery scope: what one event may name."""

    scope_id: ScopeId
    update_domain: int
    resources: tuple[VmName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event before it has an id and a date.

    *simulated_duration* is how long its impact takes if it is simulated; as usual if not given.
    """

    event_type: EventType
    event_source: EventSource
    share: Share
    description: str = ""
    duration_in_seconds: int | None = None
    maintenance_id: MaintenanceId | None = None
    host: HostName | None = None
    operation_id: OperationId | None = None
    simulated_duration: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    """One event as we track it, from its creation to its place in history.

    It is announced if it had notice, and published if virtual machines are shown it at all. The
    events of one host operation start together.
    """

    event_id: EventId
    event_type: EventType
    event_source: EventSource
    event_status: EventStatus
    scope_id: ScopeId
    update_domain: int
    resources: tuple[VmName, ...]
    description: str
    duration_in_seconds: int | None
    maintenance_id: MaintenanceId | None
    host: HostName | None
    created_at: datetime
    not_before: datetime
    first_not_before: datetime
    is_announced: bool
    is_published: bool
    approvals: tuple[Approval, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    reason: str = ""
    simulated_duration: timedelta | None = None
    overdue_at: datetime | None = None
    operation_id: OperationId | None = None

    @property
    def is_in_flight(self) -> bool:
        return self.event_status.is_visible

    def has_reached_not_before(self, now: datetime) -> bool:
        return now >= self.not_before


def schedule(
    draft: Draft,
    *,
    event_id: EventId,
    now: datetime,
    notice: timedelta,
    not_before: datetime | None = None,
) -> ScheduledEvent:
    """Announce *draft* for *not_before*, or as early as *notice* allows, and never earlier."""
    earliest = earliest_not_before(now, notice)
    wanted = earliest if not_before is None else round_up_to_second(not_before)
    if wanted < earliest:
        raise NoticeTooShortError(draft.event_type, wanted, earliest)
    return _create(
        draft, event_id=event_id, now=now, not_before=wanted, event_status=EventStatus.SCHEDULED
    )


def start_unannounced(
    draft: Draft, *, event_id: EventId, now: datetime, is_published: bool = True
) -> ScheduledEvent:
    """Create *draft* straight as Started: a failure, or an operation that nobody has to approve."""
    event = _create(
        draft,
        event_id=event_id,
        now=now,
        not_before=round_up_to_second(now),
        event_status=EventStatus.STARTED,
    )
    return replace(event, is_announced=False, is_published=is_published, started_at=now)


def approve(event: ScheduledEvent, approval: Approval) -> ScheduledEvent:
    """Add *approval*, once per approver."""
    _next_status(event, Trigger.APPROVE)
    given = {(known.approver, known.name) for known in event.approvals}
    if (approval.approver, approval.name) in given:
        return event
    return replace(event, approvals=(*event.approvals, approval))


def request_start(event: ScheduledEvent, *, vm: VmName, now: datetime) -> ScheduledEvent:
    """Take a StartRequest of *vm*. It is idempotent and comes too late without harm."""
    if event.event_status is not EventStatus.SCHEDULED:
        return event
    approval = Approval(approver=Approver.VIRTUAL_MACHINE, name=vm, approved_at=now)
    return approve(event, approval)


def move_not_before(event: ScheduledEvent, not_before: datetime) -> ScheduledEvent:
    """Postpone to *not_before*, which voids the approvals given for the old date."""
    _next_status(event, Trigger.POSTPONE)
    return replace(event, not_before=not_before, approvals=())


def start(event: ScheduledEvent, *, now: datetime) -> ScheduledEvent:
    """Begin the impact."""
    return replace(event, event_status=_next_status(event, Trigger.START), started_at=now)


def complete(
    event: ScheduledEvent, *, outcome: Outcome, now: datetime, reason: str = ""
) -> ScheduledEvent:
    """End the impact."""
    return replace(
        event,
        event_status=_next_status(event, Trigger.COMPLETE),
        ended_at=now,
        outcome=outcome,
        reason=reason,
    )


def cancel(event: ScheduledEvent, *, now: datetime, reason: str = "") -> ScheduledEvent:
    """Withdraw an event that has not started."""
    return replace(
        event, event_status=_next_status(event, Trigger.CANCEL), ended_at=now, reason=reason
    )


def _create(
    draft: Draft,
    *,
    event_id: EventId,
    now: datetime,
    not_before: datetime,
    event_status: EventStatus,
) -> ScheduledEvent:
    return ScheduledEvent(
        event_id=event_id,
        event_type=draft.event_type,
        event_source=draft.event_source,
        event_status=event_status,
        scope_id=draft.share.scope_id,
        update_domain=draft.share.update_domain,
        resources=draft.share.resources,
        description=draft.description,
        duration_in_seconds=draft.duration_in_seconds,
        maintenance_id=draft.maintenance_id,
        host=draft.host,
        created_at=now,
        not_before=not_before,
        first_not_before=not_before,
        is_announced=True,
        is_published=True,
        simulated_duration=draft.simulated_duration,
        operation_id=draft.operation_id,
    )


def _next_status(event: ScheduledEvent, trigger: Trigger) -> EventStatus:
    try:
        return TRANSITIONS[event.event_status, trigger]
    except KeyError:
        raise IllegalTransitionError(event.event_id, event.event_status, trigger) from None
