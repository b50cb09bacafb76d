from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.errors import (
    IllegalTransitionError,
    PostponeRefusedError,
    UserOperationInFlightError,
    UserOperationLimitError,
)
from forewarn.domain.event import Approval, Approver, Draft, ScheduledEvent, approve, request_start
from forewarn.domain.limits import USER_INITIATED_LIMIT
from forewarn.domain.names import VmName
from forewarn.domain.notice import NoticeMode
from forewarn.domain.policy import (
    ApprovalPolicy,
    Beginning,
    Policy,
    admit_user_operation,
    approved_at,
    how_to_begin,
    is_approved,
    is_postponable,
    latest_not_before,
    missing_approvals,
    postpone,
    usual_notice,
)
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

ANY, ALL, LEADER = ApprovalPolicy.ANY, ApprovalPolicy.ALL, ApprovalPolicy.LEADER
TEN_MINUTES = Policy(postpone_until=timedelta(minutes=10))


@pytest.mark.parametrize(
    ("policy", "speed", "minutes"),
    [
        (Policy(), 1, 15),
        (Policy(notice=timedelta(minutes=5)), 1, 15),
        (Policy(notice=timedelta(hours=1)), 1, 60),
        (Policy(notice=timedelta(hours=1)), 10, 6),
    ],
)
def test_policy_lengthens_the_notice_and_never_shortens_it(
    policy: Policy, speed: float, minutes: int
) -> None:
    notice = usual_notice(EventType.REBOOT, policy, speed=speed)

    assert notice == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("approval", "voters", "missing"),
    [
        (ANY, [], ("web-0", "web-2")),
        (ANY, ["web-2"], ()),
        (ANY, ["web-1"], ()),
        (ALL, [], ("web-0", "web-2")),
        (ALL, ["web-2"], ("web-0",)),
        (ALL, ["web-1"], ("web-0", "web-2")),
        (ALL, ["web-2", "web-0"], ()),
        (LEADER, [], ("web-0",)),
        (LEADER, ["web-2"], ("web-0",)),
        (LEADER, ["web-0"], ()),
    ],
)
def test_policy_says_whose_approval_is_missing(
    event: ScheduledEvent,
    now: datetime,
    approval: ApprovalPolicy,
    voters: Sequence[str],
    missing: tuple[str, ...],
) -> None:
    for vm in voters:
        event = request_start(event, vm=VmName(vm), now=now)

    assert missing_approvals(event, approval) == missing
    assert is_approved(event, Policy(approval=approval)) is not bool(missing)


@pytest.mark.parametrize(("approval", "minutes"), [(ANY, 1), (LEADER, 2), (ALL, 2)])
def test_event_is_approved_when_the_last_approval_that_was_missing_came(
    event: ScheduledEvent, now: datetime, approval: ApprovalPolicy, minutes: int
) -> None:
    for minute, vm in enumerate(("web-2", "web-0", "web-1"), start=1):
        assert approved_at(event, Policy(approval=ALL)) is None or vm == "web-1"
        event = request_start(event, vm=VmName(vm), now=now + timedelta(minutes=minute))

    assert approved_at(event, Policy(approval=approval)) == now + timedelta(minutes=minutes)


@pytest.mark.parametrize("approval", ApprovalPolicy)
def test_operator_satisfies_every_policy(
    event: ScheduledEvent, now: datetime, approval: ApprovalPolicy
) -> None:
    word = Approval(approver=Approver.OPERATOR, name="ada", approved_at=now)

    assert is_approved(approve(event, word), Policy(approval=approval))


def test_scope_that_says_nothing_has_azures_policy() -> None:
    assert Policy() == Policy(
        approval=ANY,
        postpone_until=timedelta(0),
        auto_approve_user=False,
        terminate_notice=None,
    )


def test_postponed_event_keeps_its_id_and_moves_not_before(
    event: ScheduledEvent, now: datetime
) -> None:
    later = event.not_before + timedelta(minutes=5)

    postponed = postpone(event, later, policy=TEN_MINUTES, now=now)

    assert postponed == replace(event, not_before=later)


def test_postponing_clears_the_votes(event: ScheduledEvent, now: datetime) -> None:
    policy = replace(TEN_MINUTES, approval=ALL)
    voted = request_start(event, vm=VmName("web-0"), now=now)

    postponed = postpone(voted, event.not_before + timedelta(minutes=5), policy=policy, now=now)

    assert missing_approvals(postponed, ALL) == event.resources


def test_event_may_be_postponed_up_to_the_hard_deadline(
    event: ScheduledEvent, now: datetime
) -> None:
    latest = event.not_before + TEN_MINUTES.postpone_until

    postponed = postpone(event, latest, policy=TEN_MINUTES, now=now)

    assert postponed.not_before == latest


def test_postponed_not_before_is_rounded_up_to_the_second(
    event: ScheduledEvent, now: datetime
) -> None:
    wanted = event.not_before + timedelta(milliseconds=1)

    postponed = postpone(event, wanted, policy=TEN_MINUTES, now=now)

    assert postponed.not_before == event.not_before + timedelta(seconds=1)


def test_hard_deadline_counts_from_the_first_not_before(
    event: ScheduledEvent, now: datetime
) -> None:
    latest = event.not_before + TEN_MINUTES.postpone_until
    postponed = postpone(event, latest, policy=TEN_MINUTES, now=now)

    with pytest.raises(PostponeRefusedError, match="scope allows is 2026-03-02 12:25:00 GMT"):
        postpone(postponed, latest + timedelta(seconds=1), policy=TEN_MINUTES, now=now)


@pytest.mark.parametrize(
    ("postpone_until", "wanted", "asked", "problem"),
    [
        (0, 20, 0, "its scope does not allow it"),
        (10, 20, 15, "its notice has ended"),
        (10, 15, 0, "it is already scheduled for 2026-03-02 12:15:00 GMT"),
        (10, 10, 0, "it is already scheduled for 2026-03-02 12:15:00 GMT"),
        (10, 26, 0, "scope allows is 2026-03-02 12:25:00 GMT"),
    ],
)
def test_postponement_is_refused_with_the_reason(
    event: ScheduledEvent, now: datetime, postpone_until: int, wanted: int, asked: int, problem: str
) -> None:
    policy = Policy(postpone_until=timedelta(minutes=postpone_until))

    with pytest.raises(PostponeRefusedError, match=problem) as refusal:
        postpone(
            event,
            now + timedelta(minutes=wanted),
            policy=policy,
            now=now + timedelta(minutes=asked),
        )

    assert refusal.value.event_id == event.event_id


@pytest.mark.parametrize("speed", [1, 60])
def test_latest_not_before_comes_sooner_at_speed(
    event: ScheduledEvent, now: datetime, speed: float
) -> None:
    latest = latest_not_before(event, TEN_MINUTES, speed=speed)

    assert latest == event.first_not_before + timedelta(minutes=10) / speed
    moved = postpone(event, latest, policy=TEN_MINUTES, now=now, speed=speed)
    assert moved.not_before == latest
    with pytest.raises(PostponeRefusedError, match="the latest time that its scope allows"):
        postpone(event, latest + timedelta(seconds=1), policy=TEN_MINUTES, now=now, speed=speed)


def test_event_is_postponable_while_nothing_but_the_new_time_can_be_wrong(
    event: ScheduledEvent, now: datetime
) -> None:
    approved = request_start(event, vm=VmName("web-0"), now=now)

    assert is_postponable(event, TEN_MINUTES, now)
    assert not is_postponable(event, Policy(), now)
    assert not is_postponable(approved, TEN_MINUTES, now)
    assert not is_postponable(event, TEN_MINUTES, event.not_before)


def test_approved_event_is_not_postponed(event: ScheduledEvent, now: datetime) -> None:
    approved = request_start(event, vm=VmName("web-0"), now=now)
    later = event.not_before + timedelta(minutes=5)

    with pytest.raises(PostponeRefusedError, match="it is already approved"):
        postpone(approved, later, policy=TEN_MINUTES, now=now)


@pytest.mark.parametrize("event_status", sorted(set(EventStatus) - {EventStatus.SCHEDULED}))
def test_only_a_scheduled_event_is_postponed(
    event: ScheduledEvent, now: datetime, event_status: EventStatus
) -> None:
    late = replace(event, event_status=event_status)
    later = event.not_before + timedelta(minutes=5)

    with pytest.raises(IllegalTransitionError):
        postpone(late, later, policy=TEN_MINUTES, now=now)


@pytest.mark.parametrize(
    ("mode", "enabled", "auto_approve_user", "expected"),
    [
        (NoticeMode.ALWAYS, True, False, Beginning.SCHEDULED),
        (NoticeMode.ALWAYS, True, True, Beginning.STARTED),
        (NoticeMode.ALWAYS, False, False, Beginning.SCHEDULED),
        (NoticeMode.ALWAYS, False, True, Beginning.STARTED),
        (NoticeMode.WHEN_ENABLED, True, False, Beginning.SCHEDULED),
        (NoticeMode.WHEN_ENABLED, True, True, Beginning.STARTED),
        (NoticeMode.WHEN_ENABLED, False, False, Beginning.UNPUBLISHED),
        (NoticeMode.WHEN_ENABLED, False, True, Beginning.UNPUBLISHED),
    ],
)
def test_user_operation_begins_as_mode_and_policy_say(
    draft: Draft,
    mode: NoticeMode,
    expected: Beginning,
    *,
    enabled: bool,
    auto_approve_user: bool,
) -> None:
    operation = replace(draft, event_source=EventSource.USER)
    policy = Policy(auto_approve_user=auto_approve_user)

    assert how_to_begin(operation, policy=policy, mode=mode, enabled=enabled) is expected


@pytest.mark.parametrize("mode", NoticeMode)
def test_platform_always_gives_notice(draft: Draft, mode: NoticeMode) -> None:
    policy = Policy(auto_approve_user=True)

    begun = how_to_begin(draft, policy=policy, mode=mode, enabled=False)

    assert begun is Beginning.SCHEDULED


@pytest.mark.parametrize("event_status", [EventStatus.SCHEDULED, EventStatus.STARTED])
def test_second_user_operation_on_one_vm_is_refused(
    event: ScheduledEvent, event_status: EventStatus
) -> None:
    restart = replace(event, event_source=EventSource.USER, event_status=event_status)

    with pytest.raises(UserOperationInFlightError) as refusal:
        admit_user_operation(VmName("web-0"), [restart])

    assert refusal.value.in_flight == (restart.event_id,)


def test_user_operation_on_another_vm_is_admitted(event: ScheduledEvent) -> None:
    restart = replace(event, event_source=EventSource.USER)

    admit_user_operation(VmName("web-1"), [restart])


def test_platform_event_on_the_vm_does_not_hinder_a_user_operation(event: ScheduledEvent) -> None:
    admit_user_operation(VmName("web-0"), [event])


@pytest.mark.parametrize("event_status", [EventStatus.COMPLETED, EventStatus.CANCELED])
def test_ended_user_operation_does_not_hinder_the_next(
    event: ScheduledEvent, event_status: EventStatus
) -> None:
    restart = replace(event, event_source=EventSource.USER, event_status=event_status)

    admit_user_operation(VmName("web-0"), [restart], limit=1)


def test_tenth_user_operation_is_admitted(event: ScheduledEvent) -> None:
    admit_user_operation(VmName("web-0"), _user_operations(event, 9))


def test_eleventh_user_operation_is_refused_naming_those_in_flight(event: ScheduledEvent) -> None:
    operations = _user_operations(event, 10)

    with pytest.raises(UserOperationLimitError) as refusal:
        admit_user_operation(VmName("web-0"), operations)

    assert refusal.value.limit == USER_INITIATED_LIMIT == 10
    assert refusal.value.in_flight == tuple(operation.event_id for operation in operations)


def test_server_may_set_its_own_limit_of_user_operations(event: ScheduledEvent) -> None:
    with pytest.raises(UserOperationLimitError, match="the limit is 2"):
        admit_user_operation(VmName("web-0"), _user_operations(event, 2), limit=2)


def _user_operations(event: ScheduledEvent, count: int) -> list[ScheduledEvent]:
    return [
        replace(
            event,
            event_id=EventId(f"E{number}"),
            event_source=EventSource.USER,
            resources=(VmName(f"other-{number}"),),
        )
        for number in range(count)
    ]
