"""What is going on at one moment: what the server says, and what the virtual machines do.

Everything that is shown, in words or as a table, follows from pictures and from nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import assert_never

from forewarn.cli.demonstration.fleet import APPROVALS
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, missing_approvals
from forewarn.protocol.vocabulary import EventId, EventStatus


class Doing(Enum):
    """What a virtual machine makes of an event that names it."""

    DRAINING = "drains"
    APPROVED = "has approved"
    NOT_LEADING = "leaves it to the first in Resources"
    SILENT = "does nothing"
    IN_IMPACT = "is in the middle of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a virtual machine is doing about one event, and until when if it knows."""

    doing: Doing
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTurn:
    """A host that the roll-out has still to come to, and whose update domains it carries."""

    host: HostName
    scope_ids: frozenset[ScopeId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One moment. *events* are all that were seen, also those that have ended."""

    now: datetime
    events: Mapping[EventId, ScheduledEvent] = field(default_factory=dict)
    turns: tuple[DemoTurn, ...] = ()
    activities: Mapping[VmName, Mapping[EventId, Activity]] = field(default_factory=dict)
    troubles: Mapping[VmName, str] = field(default_factory=dict)

    @property
    def in_flight(self) -> tuple[ScheduledEvent, ...]:
        return tuple(event for event in self.events.values() if event.is_in_flight)

    def event_of(self, vm: VmName) -> ScheduledEvent | None:
        """Return what is in flight for *vm*; what has started comes first."""
        own = [event for event in self.in_flight if vm in event.resources]
        return min(own, key=lambda event: event.event_status is EventStatus.SCHEDULED, default=None)

    def operation(self, event: ScheduledEvent) -> tuple[ScheduledEvent, ...]:
        """Return the Scheduled events that start only together with *event*, itself included."""
        if event.operation_id is None:
            return (event,)
        return tuple(
            other
            for other in self.in_flight
            if other.operation_id == event.operation_id
            and other.event_status is EventStatus.SCHEDULED
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """For whom events wait that start together, and until when at the latest."""

    subject: str
    whom: tuple[str, ...]
    until: datetime

    def __str__(self) -> str:
        return f"{self.subject} waits for {', '.join(self.whom)} until {self.until:%H:%M:%S}"


def approval_of(event: ScheduledEvent) -> ApprovalPolicy:
    """Return whose approval counts for *event*."""
    return APPROVALS.get(event.scope_id, ApprovalPolicy.ANY)


def missing(event: ScheduledEvent) -> tuple[VmName, ...]:
    """Return whose approval *event* waits for."""
    return missing_approvals(event, approval_of(event))


def wait_for_approvals(events: Iterable[ScheduledEvent]) -> Wait | None:
    """Return what *events*, which start together, wait for; nothing if all may start."""
    held = [event for event in events if missing(event)]
    if not held:
        return None
    first = held[0]
    subject = first.host or f"{first.event_type} of {', '.join(first.resources)}"
    whom = tuple(name for event in held for name in _missing_words(event))
    return Wait(subject=subject, whom=whom, until=max(event.not_before for event in held))


def waits(picture: Picture) -> tuple[Wait, ...]:
    """Return why whatever is Scheduled has not started, once for events that start together."""
    found = (
        wait_for_approvals(picture.operation(event))
        for event in picture.in_flight
        if event.event_status is EventStatus.SCHEDULED
    )
    return tuple(dict.fromkeys(wait for wait in found if wait))


def blockers(picture: Picture) -> Mapping[HostName, tuple[str, ...]]:
    """Return for each host whose turn has not come the scopes that have to be quiet before."""
    busy = {event.scope_id for event in picture.in_flight}
    blocked = {}
    for turn in picture.turns:
        blocked[turn.host] = tuple(
            sorted(scope_id.partition("/")[2] for scope_id in turn.scope_ids & busy)
        )
        busy |= turn.scope_ids
    return blocked


def _missing_words(event: ScheduledEvent) -> tuple[str, ...]:
    names = missing(event)
    approval = approval_of(event)
    match approval:
        case ApprovalPolicy.ANY:
            return (" or ".join(names),)
        case ApprovalPolicy.ALL | ApprovalPolicy.LEADER:
            return names
        case _:
            assert_never(approval)
