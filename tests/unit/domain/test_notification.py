"""What is told when, to whom, and how often it is tried."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.event import (
    Approval,
    Approver,
    Happening,
    Outcome,
    ScheduledEvent,
    approve,
    cancel,
    complete,
    move_not_before,
    start,
)
from forewarn.domain.names import VmName
from forewarn.domain.notification import (
    PHASES,
    Delivery,
    Notification,
    NotificationStatus,
    Phase,
    Retrying,
    Target,
    Topic,
    after_attempt,
    phase_of,
    try_again,
)
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.protocol.vocabulary import EventType

RETRYING = Retrying(first=timedelta(seconds=4), longest=timedelta(seconds=60), attempts=3)
REFUSED = Delivery(is_delivered=False, answer="The receiver answered 503.")


@pytest.fixture
def message(event: ScheduledEvent, now: datetime) -> Notification:
    return Notification(
        notification_id="n1",
        subject=event.event_id,
        phase=Phase.SCHEDULED,
        target="ops",
        data={},
        created_at=now,
        maintenance_time=now,
        next_attempt_at=now,
    )


def vote(event: ScheduledEvent, vm: str, now: datetime) -> ScheduledEvent:
    word = Approval(approver=Approver.VIRTUAL_MACHINE, name=VmName(vm), approved_at=now)
    return approve(event, word)


def test_every_phase_has_a_cause() -> None:
    assert set(PHASES.values()) == {phase for phase in Phase if phase.topic is Topic.EVENT}


def test_life_of_an_event_is_told_phase_by_phase(event: ScheduledEvent, now: datetime) -> None:
    later = move_not_before(event, event.not_before + timedelta(minutes=5))
    started = start(event, now=now)
    policy = Policy()

    told = [
        phase_of(Happening.SCHEDULED, None, event, policy),
        phase_of(Happening.POSTPONED, event, later, policy),
        phase_of(Happening.APPROVED, event, vote(event, "web-0", now), policy),
        phase_of(Happening.STARTED, event, started, policy),
        phase_of(Happening.OVERDUE, started, replace(started, overdue_at=now), policy),
        phase_of(
            Happening.COMPLETED,
            started,
            complete(started, outcome=Outcome.SUCCEEDED, now=now),
            policy,
        ),
        phase_of(
            Happening.COMPLETED, started, complete(started, outcome=Outcome.FAILED, now=now), policy
        ),
        phase_of(Happening.CANCELED, event, cancel(event, now=now), policy),
        phase_of(Happening.STEP_SKIPPED, event, event, policy),
    ]

    assert told == [
        "scheduled", "postponed", "approved", "started", "overdue", "finished", "failed",
        "canceled", None,
    ]  # fmt: skip


def test_approval_is_news_when_it_is_the_last_that_was_missing(
    event: ScheduledEvent, now: datetime
) -> None:
    policy = Policy(approval=ApprovalPolicy.ALL)
    one = vote(event, "web-0", now)
    both = vote(one, "web-2", now)

    assert phase_of(Happening.APPROVED, event, one, policy) is None
    assert phase_of(Happening.APPROVED, one, both, policy) is Phase.APPROVED
    assert phase_of(Happening.APPROVED, both, both, policy) is None
    assert phase_of(Happening.APPROVED, None, both, policy) is Phase.APPROVED


@pytest.mark.parametrize(
    ("target", "wants"),
    [
        (Target(name="all"), True),
        (Target(name="t", scopes=("db", "WEB")), True),
        (Target(name="t", scopes=("availability-set/web",)), True),
        (Target(name="t", scopes=("db",)), False),
        (Target(name="t", event_types=(EventType.REBOOT,)), True),
        (Target(name="t", event_types=(EventType.FREEZE,)), False),
        (Target(name="t", phases=(Phase.STARTED, Phase.FAILED)), True),
        (Target(name="t", phases=(Phase.CANCELED,)), False),
        (Target(name="t", scopes=("web",), event_types=(EventType.FREEZE,)), False),
    ],
)
def test_target_is_told_what_it_wants(
    event: ScheduledEvent, target: Target, *, wants: bool
) -> None:
    assert target.wants(Phase.STARTED, event.event_type, (event.scope_id,)) is wants


def test_delivered_message_has_ended(message: Notification, now: datetime) -> None:
    delivery = Delivery(is_delivered=True, answer="204")

    done = after_attempt(message, delivery, now=now, retrying=RETRYING, chance=0.5)

    assert (done.status, done.attempts, done.ended_at) == (NotificationStatus.DELIVERED, 1, now)


def test_refused_message_waits_twice_as_long_each_time_and_is_given_up(
    message: Notification, now: datetime
) -> None:
    once = after_attempt(message, REFUSED, now=now, retrying=RETRYING, chance=0.5)
    twice = after_attempt(once, REFUSED, now=now, retrying=RETRYING, chance=0.5)
    last = after_attempt(twice, REFUSED, now=now, retrying=RETRYING, chance=0.5)

    assert [once.next_attempt_at - now, twice.next_attempt_at - now] == [
        timedelta(seconds=4),
        timedelta(seconds=8),
    ]
    assert once.problem == REFUSED.answer
    assert (last.status, last.attempts, last.ended_at) == (NotificationStatus.FAILED, 3, now)


def test_wait_has_a_limit_and_a_quarter_of_chance() -> None:
    assert RETRYING.wait(1000, 0.5) == timedelta(seconds=60)
    assert RETRYING.wait(1, 0) == timedelta(seconds=3)
    assert RETRYING.wait(1, 1) == timedelta(seconds=5)


def test_default_is_tried_for_about_a_day() -> None:
    usual = Retrying()

    total = sum((usual.wait(n, 0.5) for n in range(1, usual.attempts)), timedelta())

    assert timedelta(hours=23) < total < timedelta(hours=25)


def test_receiver_may_ask_for_more_time(message: Notification, now: datetime) -> None:
    busy = replace(REFUSED, retry_after=timedelta(seconds=30))

    waiting = after_attempt(message, busy, now=now, retrying=RETRYING, chance=0.5)

    assert waiting.next_attempt_at == now + timedelta(seconds=30)


def test_receiver_that_is_gone_is_not_asked_again(message: Notification, now: datetime) -> None:
    gone = replace(REFUSED, is_final=True)

    failed = after_attempt(message, gone, now=now, retrying=RETRYING, chance=0.5)

    assert (failed.status, failed.attempts) == (NotificationStatus.FAILED, 1)
    again = try_again(failed, now=now)
    assert (again.status, again.attempts, again.ended_at) == (NotificationStatus.WAITING, 0, None)
