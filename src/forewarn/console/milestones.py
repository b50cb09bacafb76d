"""The life of one event as a line: what has happened to it, what is now, and what is to come."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.phrases import say_moment
from forewarn.domain.policy import ApprovalPolicy, Policy, approved_at, missing_approvals
from forewarn.protocol.vocabulary import EventStatus


class MilestoneState(StrEnum):
    """Where a milestone is, seen from now."""

    PAST = "past"
    PRESENT = "present"
    AHEAD = "ahead"
    PASSED_OVER = "passed over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """One point on the line, with its time if that is known, and what there is to say about it."""

    title: str
    state: MilestoneState
    at: datetime | None = None
    note: str = ""


def draw_life(
    event: ScheduledEvent, policy: Policy, now: datetime, lasts: timedelta | None
) -> tuple[Milestone, ...]:
    """Return the line of *event*, whose scope has *policy*, from its beginning to its end.

    Its impact *lasts* so long in all likelihood, if anybody can tell.
    """
    if not event.is_announced:
        note = "" if event.is_published else "Never shown to virtual machines"
        return (
            Milestone(
                title="Started without notice",
                state=_reached(event, EventStatus.STARTED),
                at=event.started_at,
                note=note,
            ),
            _end(event, lasts),
        )
    announced = Milestone(title="Announced", state=MilestoneState.PAST, at=event.created_at)
    between = [_approval(event, policy), _not_before(event, now)]
    if (between[0].at or event.created_at) > event.not_before:
        between.reverse()
    return (announced, *between, *_start(event), _end(event, lasts))


def _approval(event: ScheduledEvent, policy: Policy) -> Milestone:
    at = approved_at(event, policy)
    if at is not None:
        last = event.approvals[-1].name
        others = len(event.approvals) - 1
        note = f"By {last} and {others} more" if others else f"By {last}"
        return Milestone(title="Approved", state=MilestoneState.PAST, at=at, note=note)
    if event.event_status is EventStatus.SCHEDULED:
        note = _say_missing(event, policy)
        return Milestone(title="Approval", state=MilestoneState.PRESENT, note=note)
    note = "Not given in full" if event.approvals else "Not given"
    return Milestone(title="Approval", state=MilestoneState.PASSED_OVER, note=note)


def _say_missing(event: ScheduledEvent, policy: Policy) -> str:
    missing = missing_approvals(event, policy.approval)
    match policy.approval:
        case ApprovalPolicy.ALL:
            given = len(event.resources) - len(missing)
            return f"{given} of {len(event.resources)} have approved"
        case ApprovalPolicy.LEADER:
            return f"{missing[0]} has not approved"
        case ApprovalPolicy.ANY:
            return "One approval is enough" if len(missing) > 1 else "Not given yet"


def _not_before(event: ScheduledEvent, now: datetime) -> Milestone:
    note = "Postponed" if event.not_before != event.first_not_before else ""
    if event.event_status is EventStatus.SCHEDULED:
        state = MilestoneState.PAST if event.has_reached_not_before(now) else MilestoneState.AHEAD
        return Milestone(title="NotBefore", state=state, at=event.not_before, note=note)
    over = event.started_at or event.ended_at or now
    if over >= event.not_before:
        return Milestone(
            title="NotBefore", state=MilestoneState.PAST, at=event.not_before, note=note
        )
    return Milestone(
        title="NotBefore",
        state=MilestoneState.PASSED_OVER,
        at=event.not_before,
        note="Skipped" if event.started_at else "Not reached",
    )


def _start(event: ScheduledEvent) -> Iterator[Milestone]:
    if event.started_at is not None:
        yield Milestone(
            title="Started",
            state=_reached(event, EventStatus.STARTED),
            at=event.started_at,
            note=f"Overdue since {say_moment(event.overdue_at)}" if event.overdue_at else "",
        )
    elif event.event_status is EventStatus.SCHEDULED:
        yield Milestone(title="Start", state=MilestoneState.AHEAD)


def _end(event: ScheduledEvent, lasts: timedelta | None) -> Milestone:
    if event.ended_at is not None:
        title = "Canceled" if event.outcome is None else "Completed"
        if event.outcome is Outcome.FAILED:
            title = "Failed"
        return Milestone(title=title, state=MilestoneState.PRESENT, at=event.ended_at)
    expected = event.started_at + lasts if event.started_at is not None and lasts else None
    note = "Expected" if expected else ""
    return Milestone(title="End", state=MilestoneState.AHEAD, at=expected, note=note)


def _reached(event: ScheduledEvent, status: EventStatus) -> MilestoneState:
    return MilestoneState.PRESENT if event.event_status is status else MilestoneState.PAST
