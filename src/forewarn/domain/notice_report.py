"""Whether virtual machines had the notice that they were promised, and how long approvals took.

An event promises notice from its announcement until NotBefore. The promise is kept if the event
starts at NotBefore or later, and also if it starts earlier because it was approved: approving is
asking for an earlier start. It is broken if an operator starts the event before either. An event
that was never announced promises nothing, and is counted by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Final

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.names import ScopeId
from forewarn.domain.policy import Policy, approved_at
from forewarn.protocol.vocabulary import EventStatus

HIGH_PERCENTILE: Final = 95
"""The percentile that is shown beside the median."""
APPROVAL_LIMITS: Final = tuple(
    timedelta(seconds=seconds) for seconds in (10, 30, 60, 120, 300, 600, 900)
)
"""Where the classes of the distribution of time to approve end; the last one has no end."""
SHARE_LIMITS: Final = (10, 25, 50, 75, 100)
"""Where the classes of notice given end, in percent of the notice promised; then all of it."""


_SECOND: Final = timedelta(seconds=1)


class NoticeVerdict(StrEnum):
    """What became of the notice that an event promised."""

    FULL = "started at NotBefore or later"
    APPROVED = "started early because it was approved"
    CUT_SHORT = "started early without approval"
    UNANNOUNCED = "started without notice"
    CANCELED = "canceled before it started"
    WAITING = "not started"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """The notice of one event: *promised*, and *given* if it started; and how it was approved."""

    scope_id: ScopeId
    verdict: NoticeVerdict
    promised: timedelta
    given: timedelta | None
    to_approve: timedelta | None
    is_postponed: bool
    is_failed: bool
    is_overdue: bool

    @property
    def share(self) -> int:
        """How much of the notice promised was given, in percent; 100 at most."""
        if self.given is None or not self.promised:
            return 0
        return min(100, int(100 * self.given / self.promised))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSpread:
    """The median and a high percentile of lengths of time, each of which was measured."""

    median: timedelta
    high: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFigures:
    """What many events have in common: how many there are of each kind, and how long they took."""

    verdicts: Mapping[NoticeVerdict, int]
    postponed: int
    failed: int
    overdue: int
    promised: LengthSpread | None
    given: LengthSpread | None
    to_approve: LengthSpread | None

    @property
    def events(self) -> int:
        return sum(self.verdicts.values())

    @property
    def kept(self) -> int:
        """How many started with the notice promised, or earlier because they were approved."""
        return self.verdicts[NoticeVerdict.FULL] + self.verdicts[NoticeVerdict.APPROVED]

    @property
    def broken(self) -> int:
        return self.verdicts[NoticeVerdict.CUT_SHORT]

    @property
    def announced(self) -> int:
        """How many promised notice, and started."""
        return self.kept + self.broken

    @property
    def kept_percent(self) -> int | None:
        """The percentage of promises that were kept; 100 only if all were."""
        return 100 * self.kept // self.announced if self.announced else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareClass:
    """How many events were given notice up to *limit* percent of what was promised, by verdict.

    The class without a limit had all of it.
    """

    limit: int | None
    approved: int = 0
    cut_short: int = 0
    full: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalClass:
    """How many events were approved within *limit*, or later than all limits if it is None."""

    limit: timedelta | None
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReport:
    """The notice of many events: all together, by scope, and how it is distributed."""

    total: NoticeFigures
    scopes: Mapping[ScopeId, NoticeFigures] = field(default_factory=dict)
    approvals: tuple[ApprovalClass, ...] = ()
    shares: tuple[ShareClass, ...] = ()


def report_notice(
    events: Iterable[ScheduledEvent], policies: Mapping[ScopeId, Policy]
) -> NoticeReport:
    """Return what became of the notice of *events*.

    *policies* say whose approval counts; in a scope that is gone, that of anybody does. Scopes in
    which promises were broken come first, then those with the most events.
    """
    records = [record_notice(event, policies.get(event.scope_id, Policy())) for event in events]
    by_scope: dict[ScopeId, list[NoticeRecord]] = {}
    for record in records:
        by_scope.setdefault(record.scope_id, []).append(record)
    figures = {scope_id: _count(own) for scope_id, own in by_scope.items()}
    order = sorted(figures, key=lambda each: (-figures[each].broken, -figures[each].events, each))
    return NoticeReport(
        total=_count(records),
        scopes={scope_id: figures[scope_id] for scope_id in order},
        approvals=_classify_approvals(records),
        shares=_classify_shares(records),
    )


def record_notice(event: ScheduledEvent, policy: Policy) -> NoticeRecord:
    """Return what became of the notice of one event."""
    approved = approved_at(event, policy)
    given = None if event.started_at is None else _length(event, event.started_at)
    promised = _length(event, event.not_before) if event.is_announced else timedelta(0)
    return NoticeRecord(
        scope_id=event.scope_id,
        verdict=_judge(event, approved),
        promised=promised,
        given=given,
        to_approve=None if approved is None else _length(event, approved),
        is_postponed=event.not_before != event.first_not_before,
        is_failed=event.outcome is Outcome.FAILED,
        is_overdue=event.overdue_at is not None,
    )


def _length(event: ScheduledEvent, moment: datetime) -> timedelta:
    # NotBefore is rounded up to a whole second, and so promises up to a second more than was meant.
    return (moment - event.created_at) // _SECOND * _SECOND


def _judge(event: ScheduledEvent, approved: datetime | None) -> NoticeVerdict:
    if event.event_status is EventStatus.CANCELED:
        return NoticeVerdict.CANCELED
    if event.started_at is None:
        return NoticeVerdict.WAITING
    if not event.is_announced:
        return NoticeVerdict.UNANNOUNCED
    if event.started_at >= event.not_before:
        return NoticeVerdict.FULL
    return NoticeVerdict.CUT_SHORT if approved is None else NoticeVerdict.APPROVED


def _count(records: Sequence[NoticeRecord]) -> NoticeFigures:
    verdicts = dict.fromkeys(NoticeVerdict, 0)
    for record in records:
        verdicts[record.verdict] += 1
    started = [record for record in records if _is_promise(record)]
    return NoticeFigures(
        verdicts=verdicts,
        postponed=sum(record.is_postponed for record in records),
        failed=sum(record.is_failed for record in records),
        overdue=sum(record.is_overdue for record in records),
        promised=_spread(started, lambda record: record.promised),
        given=_spread(started, lambda record: record.given),
        to_approve=_spread(records, lambda record: record.to_approve),
    )


def _is_promise(record: NoticeRecord) -> bool:
    return record.verdict in {
        NoticeVerdict.FULL,
        NoticeVerdict.APPROVED,
        NoticeVerdict.CUT_SHORT,
    }


def _spread(
    records: Iterable[NoticeRecord], measure: Callable[[NoticeRecord], timedelta | None]
) -> LengthSpread | None:
    lengths = sorted(length for record in records if (length := measure(record)) is not None)
    if not lengths:
        return None
    return LengthSpread(median=_percentile(lengths, 50), high=_percentile(lengths, HIGH_PERCENTILE))


def _percentile(lengths: Sequence[timedelta], percent: int) -> timedelta:
    # The nearest rank: what really happened to somebody, nothing in between.
    return lengths[ceil(len(lengths) * percent / 100) - 1]


def _classify_approvals(records: Iterable[NoticeRecord]) -> tuple[ApprovalClass, ...]:
    limits = (*APPROVAL_LIMITS, None)
    counts = dict.fromkeys(limits, 0)
    for record in records:
        taken = record.to_approve
        if taken is not None:
            counts[next((each for each in APPROVAL_LIMITS if taken <= each), None)] += 1
    return tuple(ApprovalClass(limit=limit, events=counts[limit]) for limit in limits)


def _classify_shares(records: Iterable[NoticeRecord]) -> tuple[ShareClass, ...]:
    limits = (*SHARE_LIMITS, None)
    counts = {limit: dict.fromkeys(NoticeVerdict, 0) for limit in limits}
    for record in filter(_is_promise, records):
        limit = next((each for each in SHARE_LIMITS if record.share < each), None)
        counts[limit][record.verdict] += 1
    return tuple(
        ShareClass(
            limit=limit,
            approved=found[NoticeVerdict.APPROVED],
            cut_short=found[NoticeVerdict.CUT_SHORT],
            full=found[NoticeVerdict.FULL],
        )
        for limit, found in counts.items()
    )
