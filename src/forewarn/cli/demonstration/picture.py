"""What is going on at one moment: what the server says, and what the virtual machines do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from forewarn.cli.demonstration.fleet import APPROVALS
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, missing_approvals
from forewarn.protocol.vocabulary import EventId, EventStatus


class Doing(Enum):
    """What a virtual machine makes of an event that names it."""

    DRAINING = "drains, and then approves"
    NOT_LEADING = "leaves it to the first in Resources"
    SILENT = "does nothing"
    IN_IMPACT = "is in the middle of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One moment. *events* are all that were seen, also those that have ended.

    *turns* are the hosts that the roll-out has still to come to, with the scopes they carry.
    """

    now: datetime
    events: Mapping[EventId, ScheduledEvent] = field(default_factory=dict)
    turns: Mapping[HostName, frozenset[ScopeId]] = field(default_factory=dict)
    doings: Mapping[VmName, Mapping[EventId, Doing]] = field(default_factory=dict)
    troubles: Mapping[VmName, str] = field(default_factory=dict)

    def operation(self, event: ScheduledEvent) -> tuple[ScheduledEvent, ...]:
        """Return the Scheduled events that start only together with *event*, itself included."""
        if event.operation_id is None:
            return (event,)
        return tuple(
            other
            for other in self.events.values()
            if other.operation_id == event.operation_id
            and other.event_status is EventStatus.SCHEDULED
        )


def approval_of(event: ScheduledEvent) -> ApprovalPolicy:
    """Return whose approval counts for *event*."""
    return APPROVALS.get(event.scope_id, ApprovalPolicy.ANY)


def missing(event: ScheduledEvent) -> tuple[VmName, ...]:
    """Return whose approval *event* waits for."""
    return missing_approvals(event, approval_of(event))


def wait_for_approvals(events: Iterable[ScheduledEvent]) -> str:
    """Return what *events*, which start together, wait for; nothing if all may start."""
    held = [event for event in events if missing(event)]
    if not held:
        return ""
    first = held[0]
    subject = first.host or f"{first.event_type} of {', '.join(first.resources)}"
    whom = ", ".join(
        (" or " if approval_of(event) is ApprovalPolicy.ANY else ", ").join(missing(event))
        for event in held
    )
    until = max(event.not_before for event in held)
    return f"{subject} waits for {whom} until {until:%H:%M:%S}"


def blockers(picture: Picture) -> Mapping[HostName, tuple[str, ...]]:
    """Return for each host whose turn has not come the scopes that have to be quiet before."""
    busy = {event.scope_id for event in picture.events.values() if event.is_in_flight}
    blocked = {}
    for host, scope_ids in picture.turns.items():
        blocked[host] = tuple(sorted(each.partition("/")[2] for each in scope_ids & busy))
        busy |= scope_ids
    return blocked
