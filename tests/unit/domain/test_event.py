from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest

from forewarn.domain.errors import IllegalTransitionError, NoticeTooShortError
from forewarn.domain.event import (
    TRANSITIONS,
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    Trigger,
    approve,
    cancel,
    complete,
    move_not_before,
    request_start,
    schedule,
    start,
    start_unannounced,
    usual_description,
)
from forewarn.domain.names import VmName
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

NOTICE = timedelta(minutes=15)
VERBS: Mapping[Trigger, Callable[[ScheduledEvent, datetime], ScheduledEvent]] = {
    Trigger.APPROVE: lambda event, now: approve(event, _word_of_an_operator(now)),
    Trigger.POSTPONE: move_not_before,
    Trigger.START: lambda event, now: start(event, now=now),
    Trigger.COMPLETE: lambda event, now: complete(event, outcome=Outcome.SUCCEEDED, now=now),
    Trigger.CANCEL: lambda event, now: cancel(event, now=now),
}


def _word_of_an_operator(now: datetime) -> Approval:
    return Approval(approver=Approver.OPERATOR, name="ada", approved_at=now)


@pytest.mark.parametrize(("event_status", "trigger"), list(product(EventStatus, Trigger)))
def test_trigger_leads_where_the_table_says_or_is_refused(
    event: ScheduledEvent, now: datetime, event_status: EventStatus, trigger: Trigger
) -> None:
    before = replace(event, event_status=event_status)
    expected = TRANSITIONS.get((event_status, trigger))

    with nullcontext() if expected else pytest.raises(IllegalTransitionError):
        assert VERBS[trigger](before, now).event_status is expected


def test_refused_trigger_is_named_with_event_and_status(
    event: ScheduledEvent, now: datetime
) -> None:
    started = start(event, now=now)

    with pytest.raises(IllegalTransitionError) as refusal:
        cancel(started, now=now)

    assert refusal.value.event_id == event.event_id
    assert refusal.value.event_status is EventStatus.STARTED
    assert refusal.value.trigger is Trigger.CANCEL


@pytest.mark.parametrize(
    ("trigger", "allowed"),
    [
        (Trigger.APPROVE, {EventStatus.SCHEDULED}),
        (Trigger.POSTPONE, {EventStatus.SCHEDULED}),
        (Trigger.START, {EventStatus.SCHEDULED}),
        (Trigger.COMPLETE, {EventStatus.STARTED}),
        (Trigger.CANCEL, {EventStatus.SCHEDULED}),
    ],
)
def test_trigger_is_only_taken_in_its_status(trigger: Trigger, allowed: set[EventStatus]) -> None:
    assert {status for status in EventStatus if (status, trigger) in TRANSITIONS} == allowed


def test_new_event_is_scheduled_as_drafted(draft: Draft, now: datetime) -> None:
    event = schedule(draft, event_id=EventId("E1"), now=now, notice=NOTICE)

    assert event.event_status is EventStatus.SCHEDULED
    assert event.resources == draft.share.resources
    assert event.description == draft.description
    assert event.duration_in_seconds == draft.duration_in_seconds
    assert event.is_announced
    assert event.is_published


def test_event_without_a_wish_gets_the_earliest_not_before(draft: Draft, now: datetime) -> None:
    half_past = now + timedelta(milliseconds=500)

    event = schedule(draft, event_id=EventId("E1"), now=half_past, notice=NOTICE)

    assert event.not_before == now + NOTICE + timedelta(seconds=1)
    assert event.created_at == half_past


@pytest.mark.parametrize("beyond", [timedelta(0), timedelta(minutes=5)])
def test_event_is_announced_for_the_wanted_not_before(
    draft: Draft, now: datetime, beyond: timedelta
) -> None:
    wanted = now + NOTICE + beyond

    event = schedule(draft, event_id=EventId("E1"), now=now, notice=NOTICE, not_before=wanted)

    assert event.not_before == event.first_not_before == wanted


def test_wanted_not_before_is_rounded_up_to_the_second(draft: Draft, now: datetime) -> None:
    wanted = now + NOTICE + timedelta(milliseconds=1)

    event = schedule(draft, event_id=EventId("E1"), now=now, notice=NOTICE, not_before=wanted)

    assert event.not_before == now + NOTICE + timedelta(seconds=1)


def test_not_before_below_the_notice_is_refused(draft: Draft, now: datetime) -> None:
    wanted = now + NOTICE - timedelta(seconds=1)

    with pytest.raises(NoticeTooShortError) as refusal:
        schedule(draft, event_id=EventId("E1"), now=now, notice=NOTICE, not_before=wanted)

    assert (refusal.value.not_before, refusal.value.earliest) == (wanted, now + NOTICE)


@pytest.mark.parametrize("is_published", [True, False])
def test_unannounced_event_is_started_from_the_first_moment(
    draft: Draft, now: datetime, *, is_published: bool
) -> None:
    event = start_unannounced(draft, event_id=EventId("E1"), now=now, is_published=is_published)

    assert event.event_status is EventStatus.STARTED
    assert event.started_at == now
    assert event.is_published is is_published
    assert not event.is_announced


def test_unannounced_event_is_published_unless_said(draft: Draft, now: datetime) -> None:
    assert start_unannounced(draft, event_id=EventId("E1"), now=now).is_published


def test_approvals_are_kept_in_order(event: ScheduledEvent, now: datetime) -> None:
    approved = request_start(event, vm=VmName("web-2"), now=now)

    approved = approve(approved, _word_of_an_operator(now))

    assert [approval.name for approval in approved.approvals] == ["web-2", "ada"]


def test_operator_and_virtual_machine_of_one_name_are_two_approvers(
    event: ScheduledEvent, now: datetime
) -> None:
    approved = request_start(event, vm=VmName("ada"), now=now)

    approved = approve(approved, _word_of_an_operator(now))

    assert len(approved.approvals) == 2


def test_start_request_is_the_approval_of_its_sender(event: ScheduledEvent, now: datetime) -> None:
    approved = request_start(event, vm=VmName("web-2"), now=now)

    expected = Approval(approver=Approver.VIRTUAL_MACHINE, name="web-2", approved_at=now)
    assert approved.approvals == (expected,)


def test_repeated_start_request_changes_nothing(event: ScheduledEvent, now: datetime) -> None:
    once = request_start(event, vm=VmName("web-0"), now=now)

    twice = request_start(once, vm=VmName("web-0"), now=now + timedelta(minutes=1))

    assert twice == once


@pytest.mark.parametrize("event_status", sorted(set(EventStatus) - {EventStatus.SCHEDULED}))
def test_late_start_request_changes_nothing(
    event: ScheduledEvent, now: datetime, event_status: EventStatus
) -> None:
    late = replace(event, event_status=event_status)

    assert request_start(late, vm=VmName("web-0"), now=now) == late


def test_moved_event_keeps_all_but_not_before_and_approvals(
    event: ScheduledEvent, now: datetime
) -> None:
    approved = request_start(event, vm=VmName("web-0"), now=now)
    later = event.not_before + timedelta(minutes=5)

    moved = move_not_before(approved, later)

    assert moved == replace(event, not_before=later)


def test_started_event_knows_since_when(event: ScheduledEvent, now: datetime) -> None:
    started = start(event, now=now)

    expected = replace(event, event_status=EventStatus.STARTED, started_at=now)
    assert started == expected


def test_completed_event_knows_its_outcome_and_reason(event: ScheduledEvent, now: datetime) -> None:
    started = start(event, now=now)

    failed = complete(started, outcome=Outcome.FAILED, reason="no boot", now=now + NOTICE)

    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "no boot")
    assert failed.ended_at == now + NOTICE
    assert failed.event_id == event.event_id


def test_canceled_event_knows_when_and_why(event: ScheduledEvent, now: datetime) -> None:
    canceled = cancel(event, now=now, reason="not needed")

    assert (canceled.ended_at, canceled.reason) == (now, "not needed")
    assert canceled.outcome is None


@pytest.mark.parametrize(
    ("event_status", "in_flight"),
    [
        (EventStatus.SCHEDULED, True),
        (EventStatus.STARTED, True),
        (EventStatus.COMPLETED, False),
        (EventStatus.CANCELED, False),
    ],
)
def test_event_is_in_flight_until_it_ends(
    event: ScheduledEvent, event_status: EventStatus, *, in_flight: bool
) -> None:
    assert replace(event, event_status=event_status).is_in_flight is in_flight


@pytest.mark.parametrize(("seconds", "reached"), [(-1, False), (0, True), (1, True)])
def test_not_before_is_reached_at_that_very_second(
    event: ScheduledEvent, seconds: int, *, reached: bool
) -> None:
    moment = event.not_before + timedelta(seconds=seconds)

    assert event.has_reached_not_before(moment) is reached


@pytest.mark.parametrize(
    ("event_type", "source", "begins"),
    [
        (EventType.FREEZE, EventSource.PLATFORM, "Host server is undergoing maintenance."),
        (EventType.REBOOT, EventSource.USER, "Virtual machine is going to be restarted"),
        (EventType.REDEPLOY, EventSource.PLATFORM, "Virtual machine has encountered a failure."),
        (EventType.TERMINATE, EventSource.PLATFORM, ""),
    ],
)
def test_description_is_in_azures_words(
    event_type: EventType, source: EventSource, begins: str
) -> None:
    said = usual_description(event_type, source)

    assert said.startswith(begins)
    assert bool(said) == bool(begins)
