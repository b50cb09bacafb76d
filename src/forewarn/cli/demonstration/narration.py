"""What has happened between two pictures, in sentences that say why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.cli.demonstration.picture import (
    Activity,
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
from forewarn.protocol.vocabulary import EventId, EventStatus

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
_DOINGS: Final[Mapping[Doing, tuple[str, str]]] = {
    Doing.DRAINING: ("{vms} drains", "{vms} drain"),
    Doing.NOT_LEADING: ("{vms} leaves it to its leader", "{vms} leave it to their leader"),
    Doing.SILENT: ("{vms} says nothing", "{vms} say nothing"),
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
        *_tell_announcements(before, after),
        *_tell_turns(before, after),
        *_tell_machines(before, after),
        *_tell_approvals(before, after),
        *_tell_starts(before, after),
        *_tell_ends(before, after),
        *_tell_returns(before, after),
        *_tell_troubles(before, after),
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


def _tell_announcements(before: Picture, after: Picture) -> Iterator[Line]:
    for event in after.events.values():
        if event.is_announced and event.event_id not in before.events:
            who = _who_approves(event)
            said = f"{_subject(event)} is announced for {event.not_before:%H:%M:%S}; {who}"
            yield Line(at=event.created_at, text=said)


def _tell_turns(before: Picture, after: Picture) -> Iterator[Line]:
    known = {turn.host for turn in before.turns}
    for host, scopes in blockers(after).items():
        if host not in known and scopes:
            others = " and ".join(scopes)
            said = f"{host} has to wait: another update domain of {others} comes first"
            yield Line(at=after.now, text=said)


def _tell_machines(before: Picture, after: Picture) -> Iterator[Line]:
    for doing, (one, several) in _DOINGS.items():
        for host, vms in _by_host(_begun(before, after, doing), after).items():
            sentence = one if len(vms) == 1 else several
            yield Line(at=after.now, text=_placed(host, sentence.format(vms=", ".join(vms))))


def _tell_approvals(before: Picture, after: Picture) -> Iterator[Line]:
    for event in after.events.values():
        known = before.events.get(event.event_id)
        for approval in event.approvals[len(known.approvals) if known else 0 :]:
            said = f"{approval.name} approves"
            if event.event_status is EventStatus.SCHEDULED:
                wait = wait_for_approvals(after.operation(event))
                said += f"; {wait}" if wait else ""
            yield Line(at=approval.approved_at, text=said)


def _tell_starts(before: Picture, after: Picture) -> Iterator[Line]:
    for event in after.events.values():
        known = before.events.get(event.event_id)
        if event.started_at is not None and (known is None or known.started_at is None):
            text = f"{_subject(event)} starts{_why_started(event, after)}"
            yield Line(at=event.started_at, text=text)


def _tell_ends(before: Picture, after: Picture) -> Iterator[Line]:
    for event in after.events.values():
        known = before.events.get(event.event_id)
        if event.ended_at is None or (known and known.ended_at):
            continue
        reason = f": {event.reason}" if event.reason else ""
        if event.started_at is None:
            said = f"{_subject(event)} is canceled{reason}"
        elif event.outcome is Outcome.FAILED:
            said = f"{_subject(event)} has failed{reason}"
        else:
            said = f"{_subject(event)} is over after {_seconds(event.ended_at - event.started_at)}"
        yield Line(at=event.ended_at, text=said)


def _tell_returns(before: Picture, after: Picture) -> Iterator[Line]:
    back = [
        vm
        for vm, known in before.activities.items()
        if known and vm not in after.troubles and not after.activities.get(vm)
    ]
    for host, vms in _by_host(back, before).items():
        verb = "is" if len(vms) == 1 else "are"
        yield Line(at=after.now, text=_placed(host, f"{', '.join(vms)} {verb} back in service"))


def _tell_troubles(before: Picture, after: Picture) -> Iterator[Line]:
    for vm, trouble in after.troubles.items():
        if before.troubles.get(vm) != trouble:
            yield Line(at=after.now, text=f"{vm} is in trouble, and tries again: {trouble}")


def _who_approves(event: ScheduledEvent) -> str:
    if len(event.resources) == 1:
        return "its approval starts it early"
    return _WHO_APPROVES[approval_of(event)].format(leader=event.resources[0])


def _begun(before: Picture, after: Picture, doing: Doing) -> Iterator[VmName]:
    for vm, activities in after.activities.items():
        known: Mapping[EventId, Activity] = before.activities.get(vm, {})
        for event_id, activity in activities.items():
            if activity.doing is doing and event_id not in known:
                yield vm


def _by_host(vms: Iterable[VmName], picture: Picture) -> dict[HostName | None, list[VmName]]:
    grouped: dict[HostName | None, list[VmName]] = {}
    for vm in vms:
        event = picture.event_of(vm)
        grouped.setdefault(event.host if event else None, []).append(vm)
    return grouped


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


def _who_approved(event: ScheduledEvent) -> str:
    if any(given.approver is Approver.OPERATOR for given in event.approvals):
        return "an operator has approved"
    return _WHY_EARLY[approval_of(event)].format(
        first=event.approvals[0].name,
        last=event.approvals[-1].name,
        leader=event.resources[0],
    )


def _is_early(event: ScheduledEvent) -> bool:
    return event.started_at is not None and event.started_at < event.not_before


def _subject(event: ScheduledEvent) -> str:
    return _placed(event.host, f"{event.event_type} of {', '.join(event.resources)}")


def _placed(host: HostName | None, text: str) -> str:
    return f"{host}: {text}" if host else text


def _seconds(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
