"""What has happened between two pictures, in sentences that say why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.cli.demonstration.fleet import HOST_OF, HOSTS
from forewarn.cli.demonstration.picture import (
    Doing,
    Picture,
    approval_of,
    blockers,
    missing,
    wait_for_approvals,
)
from forewarn.domain.event import Approver, Outcome, ScheduledEvent
from forewarn.domain.names import HostName, VmName
from forewarn.domain.policy import ApprovalPolicy
from forewarn.protocol.vocabulary import EventStatus

_WHO_APPROVES: Final[Mapping[ApprovalPolicy, str]] = {
    ApprovalPolicy.ANY: "one approval starts it early",
    ApprovalPolicy.ALL: "all must approve to start it early",
    ApprovalPolicy.LEADER: "{leader} leads, its approval starts it early",
}
_WHY_EARLY: Final[Mapping[ApprovalPolicy, str]] = {
    ApprovalPolicy.ANY: "{first} has approved",
    ApprovalPolicy.ALL: "all have approved, {last} last",
    ApprovalPolicy.LEADER: "{leader}, its leader, has approved",
}
_DOINGS: Final[Mapping[Doing | None, tuple[str, str]]] = {
    Doing.DRAINING: ("drains", "drain"),
    Doing.NOT_LEADING: ("leaves it to its leader", "leave it to their leader"),
    Doing.SILENT: ("says nothing", "say nothing"),
    None: ("is back in service", "are back in service"),
}
"""What is told of virtual machines, of one and of several; the rest is told of their events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sentence, and the maintenance time it is about."""

    at: datetime
    text: str

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S}  {self.text}"


def tell(before: Picture, after: Picture) -> tuple[Line, ...]:
    """Return what has happened from *before* to *after*, in order."""
    lines = [
        *_tell_events(before, after),
        *_tell_turns(before, after),
        *_tell_machines(before, after),
        *(
            Line(at=after.now, text=f"{vm} is in trouble, and tries again: {trouble}")
            for vm, trouble in after.troubles.items()
            if before.troubles.get(vm) != trouble
        ),
    ]
    return tuple(sorted(lines, key=lambda line: line.at))


def summarize(events: Iterable[ScheduledEvent], took: timedelta) -> str:
    """Return what came of a roll-out."""
    ended = [event for event in events if event.started_at is not None]
    early = sum(_is_early(event) for event in ended)
    hosts = {event.host for event in ended}
    failed = sum(event.outcome is Outcome.FAILED for event in ended)
    return (
        f"The roll-out is over after {_seconds(took)}: {len(hosts)} hosts, {len(ended)} events. "
        f"{early} started early because they were approved, {len(ended) - early} at NotBefore"
        f"{f', {failed} failed' if failed else ''}."
    )


def _tell_events(before: Picture, after: Picture) -> Iterator[Line]:
    for event in after.events.values():
        known = before.events.get(event.event_id)
        told = len(tuple(_life(known, before))) if known else 0
        yield from tuple(_life(event, after))[told:]


def _life(event: ScheduledEvent, picture: Picture) -> Iterator[Line]:
    """Yield all that has happened to *event* so far."""
    host = f"{event.host}: " if event.host else ""
    subject = f"{host}{event.event_type} of {', '.join(event.resources)}"
    if event.is_announced:
        who = _who_approves(event)
        said = f"{subject} is announced for {event.not_before:%H:%M:%S}; {who}"
        yield Line(at=event.created_at, text=said)
    for approval in event.approvals:
        is_waiting = event.event_status is EventStatus.SCHEDULED
        wait = wait_for_approvals(picture.operation(event)) if is_waiting else ""
        said = f"{approval.name} approves{f'; {wait}' if wait else ''}"
        yield Line(at=approval.approved_at, text=said)
    if event.started_at is not None:
        yield Line(at=event.started_at, text=f"{subject} starts{_why_started(event, picture)}")
    if event.ended_at is not None:
        yield Line(at=event.ended_at, text=f"{subject} {_how_ended(event, event.ended_at)}")


def _tell_turns(before: Picture, after: Picture) -> Iterator[Line]:
    for host, scopes in blockers(after).items():
        if host not in before.turns and scopes:
            others = " and ".join(scopes)
            said = f"{host} has to wait: another update domain of {others} comes first"
            yield Line(at=after.now, text=said)


def _tell_machines(before: Picture, after: Picture) -> Iterator[Line]:
    begun: dict[tuple[Doing | None, HostName], list[VmName]] = {}
    for vm, doings in after.doings.items():
        known = before.doings.get(vm, {})
        news = {doings[event_id] for event_id in doings.keys() - known.keys()}
        is_back = known and not doings and vm not in after.troubles
        for doing in (None,) if is_back else news:
            begun.setdefault((doing, HOST_OF[vm]), []).append(vm)
    for doing, (one, several) in _DOINGS.items():
        for host in HOSTS:
            if vms := begun.get((doing, host)):
                sentence = one if len(vms) == 1 else several
                yield Line(at=after.now, text=f"{host}: {', '.join(vms)} {sentence}")


def _who_approves(event: ScheduledEvent) -> str:
    if len(event.resources) == 1:
        return "its approval starts it early"
    return _WHO_APPROVES[approval_of(event)].format(leader=event.resources[0])


def _why_started(event: ScheduledEvent, picture: Picture) -> str:
    if not event.is_announced:
        return " without notice"
    assert event.started_at is not None  # noqa: S101 - it has started
    if _is_early(event):
        notice_left = f" {_seconds(event.not_before - event.started_at)} early"
        if missing(event):
            return f"{notice_left}: an operator says so"
        return f"{notice_left}: {_who_approved(event)}"
    if missing(event):
        return f": NotBefore has come without the approval of {' or '.join(missing(event))}"
    operation = event.operation_id
    others = picture.events.values() if operation else ()
    held_by = [vm for other in others if other.operation_id == operation for vm in missing(other)]
    return f" at NotBefore: {event.host} had to wait for {', '.join(held_by)}" if held_by else ""


def _how_ended(event: ScheduledEvent, ended_at: datetime) -> str:
    reason = f": {event.reason}" if event.reason else ""
    if event.started_at is None:
        return f"is canceled{reason}"
    if event.outcome is Outcome.FAILED:
        return f"has failed{reason}"
    return f"is over after {_seconds(ended_at - event.started_at)}"


def _who_approved(event: ScheduledEvent) -> str:
    if any(given.approver is Approver.OPERATOR for given in event.approvals):
        return "an operator has approved"
    names, leader = [given.name for given in event.approvals], event.resources[0]
    return _WHY_EARLY[approval_of(event)].format(first=names[0], last=names[-1], leader=leader)


def _is_early(event: ScheduledEvent) -> bool:
    return event.started_at is not None and event.started_at < event.not_before


def _seconds(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
