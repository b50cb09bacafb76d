"""The fleet as a table: where each virtual machine is, and what it does about which event."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.cli.demonstration.fleet import MEMBERS, DemoMachine
from forewarn.cli.demonstration.picture import (
    Activity,
    Doing,
    Picture,
    blockers,
    wait_for_approvals,
    waits,
)
from forewarn.domain.event import ScheduledEvent
from forewarn.protocol.vocabulary import EventType

_IN_IMPACT: Final[Mapping[EventType, str]] = {
    EventType.FREEZE: "frozen",
    EventType.REBOOT: "rebooting",
    EventType.REDEPLOY: "moving to another host",
    EventType.PREEMPT: "being evicted",
    EventType.TERMINATE: "being deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One virtual machine."""

    host: str
    vm: str
    scope: str
    answers: str
    event: str = ""
    status: str = ""
    doing: str


def rows(picture: Picture) -> tuple[Row, ...]:
    """Return one row for each virtual machine of the demo, host by host."""
    return tuple(_row(member, picture) for member in MEMBERS)


def reasons(picture: Picture) -> tuple[str, ...]:
    """Return why the roll-out is not further than it is."""
    own = [str(wait) for wait in waits(picture)]
    turns = [
        f"{host} comes after the other update domains of {' and '.join(scopes)}"
        for host, scopes in blockers(picture).items()
        if scopes
    ]
    return (*own, *turns)


def _row(member: DemoMachine, picture: Picture) -> Row:
    event = picture.event_of(member.name)
    return Row(
        host=member.host,
        vm=member.name,
        scope=member.place,
        answers=member.behaviour,
        event=event.event_type if event else "",
        status=event.event_status if event else "",
        doing=_doing(member, event, picture),
    )


def _doing(member: DemoMachine, event: ScheduledEvent | None, picture: Picture) -> str:
    if member.name in picture.troubles:
        return f"in trouble: {picture.troubles[member.name]}"
    if event is None:
        return "in service"
    activity = picture.activities.get(member.name, {}).get(event.event_id)
    if activity is None:
        return "has not heard of it yet"
    return _describe(activity, event, picture)


def _describe(activity: Activity, event: ScheduledEvent, picture: Picture) -> str:
    match activity.doing:
        case Doing.DRAINING:
            return f"drains{_left(activity.until, picture.now)}"
        case Doing.APPROVED:
            wait = wait_for_approvals(picture.operation(event))
            return f"waits for {', '.join(wait.whom)}" if wait else "approved"
        case Doing.NOT_LEADING:
            return f"leaves it to {event.resources[0]}"
        case Doing.SILENT:
            return f"says nothing{_left(event.not_before, picture.now)}"
        case Doing.IN_IMPACT:
            return _IN_IMPACT[event.event_type]


def _left(until: datetime | None, now: datetime) -> str:
    if until is None:
        return ""
    return f", {max((until - now).total_seconds(), 0):.0f} s left"
