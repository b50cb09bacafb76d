"""What a delivery scope lets happen.

Whose approval counts, how far an event may be postponed, how user operations begin and how many
there may be.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Final, assert_never

from forewarn.domain.errors import (
    PostponeRefusedError,
    UserOperationInFlightError,
    UserOperationLimitError,
)
from forewarn.domain.event import Approver, Draft, ScheduledEvent, move_not_before
from forewarn.domain.limits import USER_INITIATED_LIMIT
from forewarn.domain.names import VmName
from forewarn.domain.notice import NoticeMode, minimum_notice, round_up_to_second
from forewarn.protocol.vocabulary import EventSource, EventType

SMALLEST_STEP: Final = timedelta(minutes=1)
"""By how much a virtual machine postpones an event at least; the last step may be smaller."""
MOST_POSTPONEMENTS: Final = 300
"""How often virtual machines may postpone one event: a day, in steps of five minutes."""


class ApprovalPolicy(StrEnum):
    """Whose approval starts an event before its NotBefore."""

    ANY = "any"
    ALL = "all"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one delivery scope.

    *notice* is what platform events of any type are announced with, where it is longer than the
    minimum of the type.
    """

    approval: ApprovalPolicy = ApprovalPolicy.ANY
    postpone_until: timedelta = timedelta(0)
    auto_approve_user: bool = False
    terminate_notice: timedelta | None = None
    notice: timedelta | None = None


class Beginning(Enum):
    """How an operation comes into the world."""

    SCHEDULED = "announced, and waits for approval or NotBefore"
    STARTED = "published as Started"
    UNPUBLISHED = "started at once and never shown"


def usual_notice(event_type: EventType, policy: Policy, *, speed: float = 1) -> timedelta:
    """Return how long ahead a platform event is announced where nobody says: the minimum or more.

    Both the minimum and what *policy* asks for are divided by *speed*.
    """
    minimum = minimum_notice(event_type, terminate_notice=policy.terminate_notice, speed=speed)
    return minimum if policy.notice is None else max(minimum, policy.notice / speed)


def missing_approvals(event: ScheduledEvent, approval: ApprovalPolicy) -> tuple[VmName, ...]:
    """Return whose approval *event* waits for; under ANY, one of them will do."""
    if any(given.approver is Approver.OPERATOR for given in event.approvals):
        return ()
    approved = {given.name for given in event.approvals}
    match approval:
        case ApprovalPolicy.ANY:
            return () if approved else event.resources
        case ApprovalPolicy.ALL:
            return tuple(vm for vm in event.resources if vm not in approved)
        case ApprovalPolicy.LEADER:
            return tuple(vm for vm in event.resources[:1] if vm not in approved)
        case _:
            assert_never(approval)


def is_approved(event: ScheduledEvent, policy: Policy) -> bool:
    """Tell whether the approvals *policy* asks for are there."""
    return not missing_approvals(event, policy.approval)


def approved_at(event: ScheduledEvent, policy: Policy) -> datetime | None:
    """Return when the approval came that was enough for *policy*, if it did."""
    for number, approval in enumerate(event.approvals, start=1):
        if is_approved(replace(event, approvals=event.approvals[:number]), policy):
            return approval.approved_at
    return None


def latest_not_before(event: ScheduledEvent, policy: Policy, *, speed: float = 1) -> datetime:
    """Return the last NotBefore that *policy* allows *event* to have."""
    return event.first_not_before + policy.postpone_until / speed


def is_postponable(event: ScheduledEvent, policy: Policy, now: datetime) -> bool:
    """Tell whether *event*, which is Scheduled, may still be moved."""
    return _problem_now(event, policy, now) is None


def postpone(
    event: ScheduledEvent,
    not_before: datetime,
    *,
    policy: Policy,
    now: datetime,
    speed: float = 1,
) -> ScheduledEvent:
    """Move *event* to the later *not_before*, up to the policy's hard deadline."""
    wanted = round_up_to_second(not_before)
    postponed = move_not_before(event, wanted)
    latest = latest_not_before(event, policy, speed=speed)
    problem = _problem_now(event, policy, now) or _problem_then(event, wanted, latest)
    if problem:
        raise PostponeRefusedError(event.event_id, problem)
    return postponed


def check_step(
    event: ScheduledEvent, not_before: datetime, *, latest: datetime, times: int, speed: float = 1
) -> None:
    """Refuse a virtual machine that postpones by too little, or has done it *times* too often."""
    smallest = min(event.not_before + SMALLEST_STEP / speed, latest)
    if event.not_before < not_before < smallest:
        problem = f"the earliest new time is {smallest:%Y-%m-%d %H:%M:%S} GMT"
        raise PostponeRefusedError(event.event_id, problem)
    if times >= MOST_POSTPONEMENTS:
        raise PostponeRefusedError(
            event.event_id, f"it has been postponed {times} times, which is the maximum"
        )


def how_to_begin(draft: Draft, *, policy: Policy, mode: NoticeMode, enabled: bool) -> Beginning:
    """Say how *draft* begins. Only user operations are ever spared the notice."""
    if draft.event_source is not EventSource.USER:
        return Beginning.SCHEDULED
    if mode is NoticeMode.WHEN_ENABLED and not enabled:
        return Beginning.UNPUBLISHED
    return Beginning.STARTED if policy.auto_approve_user else Beginning.SCHEDULED


def admit_user_operation(
    vm: VmName, in_flight: Iterable[ScheduledEvent], *, limit: int = USER_INITIATED_LIMIT
) -> None:
    """Refuse a second user operation on *vm*, and one more than *limit* on the server."""
    operations = [
        event
        for event in in_flight
        if event.is_in_flight and event.event_source is EventSource.USER
    ]
    same_vm = tuple(event.event_id for event in operations if vm in event.resources)
    if same_vm:
        raise UserOperationInFlightError(vm, same_vm)
    if len(operations) >= limit:
        raise UserOperationLimitError(limit, [event.event_id for event in operations])


def _problem_now(event: ScheduledEvent, policy: Policy, now: datetime) -> str | None:
    if not policy.postpone_until:
        return "its scope does not allow it (postpone_until)"
    if is_approved(event, policy):
        return "it is already approved"
    if event.has_reached_not_before(now):
        return "its notice has ended"
    return None


def _problem_then(event: ScheduledEvent, wanted: datetime, latest: datetime) -> str | None:
    if wanted <= event.not_before:
        return f"it is already scheduled for {event.not_before:%Y-%m-%d %H:%M:%S} GMT"
    if wanted > latest:
        return f"the latest time that its scope allows is {latest:%Y-%m-%d %H:%M:%S} GMT"
    return None
