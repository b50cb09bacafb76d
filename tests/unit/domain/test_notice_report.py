from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    approve,
    cancel,
    complete,
    move_not_before,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.names import ScopeId
from forewarn.domain.notice_report import (
    LengthSpread,
    NoticeVerdict,
    record_notice,
    report_notice,
)
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.protocol.vocabulary import EventId

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
WEB = ScopeId("availability-set/web")
DB = ScopeId("availability-set/db")


def approved(event: ScheduledEvent, after: timedelta, vm: str = "web-0") -> ScheduledEvent:
    given = Approval(
        approver=Approver.VIRTUAL_MACHINE, name=vm, approved_at=event.created_at + after
    )
    return approve(event, given)


def started(event: ScheduledEvent, after: timedelta) -> ScheduledEvent:
    return start(event, now=event.created_at + after)


def test_event_that_starts_at_not_before_keeps_its_promise(event: ScheduledEvent) -> None:
    record = record_notice(started(event, 15 * MINUTE), Policy())

    assert record.verdict is NoticeVerdict.FULL
    assert (record.promised, record.given, record.share) == (15 * MINUTE, 15 * MINUTE, 100)
    assert record.to_approve is None


def test_event_that_starts_late_gives_more_than_it_promised(event: ScheduledEvent) -> None:
    record = record_notice(started(event, 20 * MINUTE), Policy())

    assert (record.verdict, record.given, record.share) == (
        NoticeVerdict.FULL,
        20 * MINUTE,
        100,
    )


def test_early_start_is_fine_if_it_was_approved(event: ScheduledEvent) -> None:
    record = record_notice(started(approved(event, 3 * MINUTE), 3 * MINUTE), Policy())

    assert record.verdict is NoticeVerdict.APPROVED
    assert (record.share, record.to_approve) == (20, 3 * MINUTE)


def test_early_start_breaks_the_promise_without_every_approval_that_counts(
    event: ScheduledEvent,
) -> None:
    forced = started(approved(event, MINUTE), 3 * MINUTE)

    record = record_notice(forced, Policy(approval=ApprovalPolicy.ALL))

    assert record.verdict is NoticeVerdict.CUT_SHORT
    assert record.to_approve is None


def test_event_without_announcement_promises_nothing(draft: Draft, now: datetime) -> None:
    record = record_notice(start_unannounced(draft, event_id=EventId("E"), now=now), Policy())

    assert record.verdict is NoticeVerdict.UNANNOUNCED
    assert (record.promised, record.share) == (timedelta(0), 0)


def test_event_that_has_not_started_has_given_no_notice(event: ScheduledEvent) -> None:
    waiting = record_notice(event, Policy())
    canceled = record_notice(cancel(event, now=event.created_at + MINUTE), Policy())

    assert (waiting.verdict, waiting.given, waiting.share) == (NoticeVerdict.WAITING, None, 0)
    assert canceled.verdict is NoticeVerdict.CANCELED


def test_postponed_event_promises_until_the_later_date(event: ScheduledEvent) -> None:
    later = move_not_before(event, event.not_before + 15 * MINUTE)

    record = record_notice(started(later, 30 * MINUTE), Policy())

    assert record.is_postponed
    assert (record.promised, record.verdict) == (30 * MINUTE, NoticeVerdict.FULL)


def test_lengths_are_whole_seconds(draft: Draft, now: datetime) -> None:
    created = now + timedelta(microseconds=300)
    event = schedule(draft, event_id=EventId("E"), now=created, notice=15 * MINUTE)

    record = record_notice(start(event, now=event.not_before), Policy())

    assert (record.promised, record.given) == (15 * MINUTE, 15 * MINUTE)


@pytest.fixture
def history(event: ScheduledEvent, draft: Draft, now: datetime) -> list[ScheduledEvent]:
    """Twenty reboots of web, approved after 1 to 20 s; other things in db, and one gone wrong."""
    fast = [
        started(approved(event, seconds * SECOND), seconds * SECOND) for seconds in range(1, 21)
    ]
    elsewhere = replace(event, scope_id=DB)
    failed = complete(
        started(elsewhere, 15 * MINUTE), outcome=Outcome.FAILED, now=now + 20 * MINUTE
    )
    late = schedule(draft, event_id=EventId("E9"), now=now, notice=60 * MINUTE)
    return [
        *fast,
        failed,
        replace(started(elsewhere, 6 * MINUTE), overdue_at=now),
        cancel(elsewhere, now=now),
        start_unannounced(draft, event_id=EventId("E8"), now=now),
        started(approved(late, 16 * MINUTE), 16 * MINUTE),
    ]


def test_figures_count_each_kind(history: list[ScheduledEvent]) -> None:
    total = report_notice(history, {}).total

    assert (total.events, total.kept, total.broken, total.announced) == (25, 22, 1, 23)
    assert total.kept_percent == 95
    assert (total.failed, total.overdue, total.postponed) == (1, 1, 0)
    assert total.verdicts == {
        NoticeVerdict.FULL: 1,
        NoticeVerdict.APPROVED: 21,
        NoticeVerdict.CUT_SHORT: 1,
        NoticeVerdict.UNANNOUNCED: 1,
        NoticeVerdict.CANCELED: 1,
        NoticeVerdict.WAITING: 0,
    }


def test_spreads_are_what_was_measured(history: list[ScheduledEvent]) -> None:
    total = report_notice(history, {}).total

    assert total.to_approve == LengthSpread(median=11 * SECOND, high=20 * SECOND)
    assert total.promised == LengthSpread(median=15 * MINUTE, high=15 * MINUTE)
    assert total.given == LengthSpread(median=12 * SECOND, high=15 * MINUTE)


def test_scopes_with_broken_promises_come_first(history: list[ScheduledEvent]) -> None:
    scopes = report_notice(history, {}).scopes

    assert [(scope_id, each.events) for scope_id, each in scopes.items()] == [(DB, 3), (WEB, 22)]


def test_policy_of_the_scope_decides_what_is_an_approval(history: list[ScheduledEvent]) -> None:
    strict = {WEB: Policy(approval=ApprovalPolicy.ALL)}

    assert report_notice(history, strict).total.broken == 22


def test_distributions_have_every_class(history: list[ScheduledEvent]) -> None:
    report = report_notice(history, {})

    assert [each.events for each in report.approvals] == [10, 10, 0, 0, 0, 0, 0, 1]
    assert report.approvals[-1].limit is None
    assert [(each.limit, each.approved, each.cut_short, each.full) for each in report.shares] == [
        (10, 20, 0, 0),
        (25, 0, 0, 0),
        (50, 1, 1, 0),
        (75, 0, 0, 0),
        (100, 0, 0, 0),
        (None, 0, 0, 1),
    ]


def test_nothing_has_no_figures() -> None:
    total = report_notice([], {}).total

    assert (total.events, total.kept_percent, total.given) == (0, None, None)
