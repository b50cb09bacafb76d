"""What a handler is graded on. Each check is a function of what was observed, and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from forewarn.conformance.observations import HandlerHook, MarkKind, Observation, ObservedEvent
from forewarn.ports.journal import JournalEntry

SHORTEST_INTERVAL: Final = 0.7
"""Seconds between two polls. Azure asks for one; clocks and scheduling are not exact."""
_ENOUGH: Final = 5
"""How many intervals it takes to know how often a handler polls."""
_START: Final = timedelta(seconds=1)
"""How long a handler is starting, once it has read its document."""
_REQUESTS_PER_SECOND: Final = 1.5
_BURST: Final = 5
"""How many requests more are no harm: a start, a change, an approval."""
_FEW: Final = 3
"""How many retries may come at once while there is trouble."""
_REFUSALS: Final = frozenset({400, 403, 404, 405})
"""What a poll without the header Metadata, or with an unknown api-version, is answered with."""


class Grade(StrEnum):
    """What a handler can be right or wrong about."""

    SAW = "saw"
    PREPARED = "prepared"
    DECLINED = "declined"
    OWN = "own"
    RECOVERED = "recovered"
    ONCE = "once"
    POLITE = "polite"
    RUNNING = "running"


MEANINGS: Final[Mapping[Grade, str]] = {
    Grade.SAW: "It reads every event of its document.",
    Grade.PREPARED: "It approves an event after its preparation has ended, not before.",
    Grade.DECLINED: "It does not approve an event if its preparation has failed.",
    Grade.OWN: "It neither prepares for nor approves events of other virtual machines.",
    Grade.RECOVERED: "It recovers after the event has ended or was canceled, not before.",
    Grade.ONCE: "It prepares and approves once for each event.",
    Grade.POLITE: "It polls about once a second, even after errors, with valid requests.",
    Grade.RUNNING: "It keeps running.",
}


class GradeOutcome(StrEnum):
    """Whether a check passed; it is skipped if nothing is known about it."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class GradeResult:
    """The outcome of a check, with the reason unless it passed."""

    outcome: GradeOutcome
    reason: str = ""


_NEVER_READ: Final = "never read its document"
_WITHOUT_READING: Final = frozenset({Grade.SAW, Grade.POLITE, Grade.RUNNING})
_PASSED: Final = GradeResult(GradeOutcome.PASSED)


def _failed(reason: str) -> GradeResult:
    return GradeResult(GradeOutcome.FAILED, reason)


def _skipped(reason: str) -> GradeResult:
    return GradeResult(GradeOutcome.SKIPPED, reason)


def _first_failure(reasons: Iterator[str]) -> GradeResult:
    reason = next(reasons, None)
    return _PASSED if reason is None else _failed(reason)


def without_hook(hook: HandlerHook) -> GradeResult:
    """Return that nothing is known, because the handler has no such *hook*."""
    return _skipped(f"the handler has no {hook} hook")


def assess(observation: Observation, grades: Sequence[Grade]) -> Mapping[Grade, GradeResult]:
    """Return what came of each of *grades*.

    Of a handler that never read its document, most is unknown, and nothing is taken for granted.
    """
    can_tell = _WITHOUT_READING if not _has_read(observation) else frozenset(Grade)
    return {
        grade: _CHECKS[grade](observation) if grade in can_tell else _skipped(_NEVER_READ)
        for grade in grades
    }


def _has_read(seen: Observation) -> bool:
    return any(poll.has_read for poll in seen.polls)


def _check_saw(seen: Observation) -> GradeResult:
    if not _has_read(seen):
        return _failed(_NEVER_READ)
    return _first_failure(
        f"never read the {event.title}"
        for event in seen.events
        if event.is_to_be_seen and not any(poll.shows(event.event_id) for poll in seen.polls)
    )


def _check_running(seen: Observation) -> GradeResult:
    return _failed(seen.end) if seen.end else _PASSED


def _check_prepared(seen: Observation) -> GradeResult:
    if HandlerHook.PREPARE not in seen.hooks:
        return without_hook(HandlerHook.PREPARE)
    reasons = (_say_unprepared(seen, event) for event in seen.events if event.is_own)
    return _first_failure(reason for reason in reasons if reason)


def _say_unprepared(seen: Observation, event: ObservedEvent) -> str:
    approvals = seen.approvals_of(event)
    begun = seen.marks_of(MarkKind.BEGUN, event.announced_at)
    if not approvals:
        unprepared = event.is_to_be_prepared and not begun
        return f"did not prepare for the {event.title}" if unprepared else ""
    approved_at = approvals[0].at
    if any(at <= approved_at for at in seen.marks_of(MarkKind.PREPARED, event.announced_at)):
        return ""
    how = "while it was still preparing" if begun and begun[0] <= approved_at else "unprepared"
    return f"approved the {event.title} {how}"


def _check_declined(seen: Observation) -> GradeResult:
    if HandlerHook.PREPARE not in seen.hooks:
        return without_hook(HandlerHook.PREPARE)
    if not seen.marks_of(MarkKind.BEGUN):
        return _failed("did not run the preparation that was to fail")
    return _first_failure(
        f"approved the {event.title}, although its preparation had failed"
        for event in seen.events
        if seen.approvals_of(event)
    )


def _check_own(seen: Observation) -> GradeResult:
    reasons = [
        f"approved the {event.title}"
        for event in seen.events
        if not event.is_own and seen.approvals_of(event)
    ]
    if seen.marks_of(MarkKind.BEGUN):
        reasons.append("prepared for the event of another machine")
    return _first_failure(iter(reasons))


def _check_recovered(seen: Observation) -> GradeResult:
    for hook in HandlerHook:
        if hook not in seen.hooks:
            return without_hook(hook)
    begun = seen.marks_of(MarkKind.BEGUN)
    recovered = seen.marks_of(MarkKind.RECOVERED)
    if not begun:
        return _skipped("nothing was prepared")
    over = [event.over_at for event in seen.events if event.is_own and event.over_at]
    if not over:
        return _skipped("the event had not ended")
    if not recovered or recovered[-1] < begun[-1]:
        return _failed("did not recover after the event had ended")
    if not seen.has_faults and recovered[0] < min(over):
        return _failed("recovered before the event had ended")
    return _PASSED


def _check_once(seen: Observation) -> GradeResult:
    most = sum(event.times_scheduled for event in seen.events if event.is_own) + seen.interruptions
    begun = len(seen.marks_of(MarkKind.BEGUN))
    repeated = [f"prepared {begun} times instead of {most}"] if begun > most else []
    repeated += [
        f"approved the {event.title} {len(approvals)} times"
        for event in seen.events
        if len(approvals := seen.approvals_of(event)) > event.times_scheduled
    ]
    return _first_failure(iter(repeated))


def _check_polite(seen: Observation) -> GradeResult:
    return _first_failure(_find_rudeness(seen)) if seen.polls else _skipped("never polled")


def _find_rudeness(seen: Observation) -> Iterator[str]:
    posts = [entry for entry in seen.requests if entry.is_start_request]
    for refused in (poll for poll in seen.polls if poll.status in _REFUSALS):
        yield f"sent {refused.request}, which was refused: {refused.outcome}"
    for has_failed, streak in groupby(seen.polls, lambda poll: not poll.has_read):
        polls = list(streak)
        if has_failed and _is_too_much(polls, _FEW):
            seconds = _length_of(polls)
            yield f"sent {len(polls)} GETs in {seconds:.1f} s that all failed, without backing off"
    intervals = list(_idle_intervals(seen))
    if len(intervals) >= _ENOUGH and median(intervals) < SHORTEST_INTERVAL:
        yield f"polled every {median(intervals):.2f} s (median)"
    changes = len({poll.document_incarnation for poll in seen.polls})
    for name, requests in (("GETs", seen.polls), ("POSTs", posts)):
        if _is_too_much(requests, _BURST + changes):
            yield f"sent {len(requests)} {name} in {_length_of(requests):.1f} s"


def _idle_intervals(seen: Observation) -> Iterator[float]:
    """Give the seconds to the next poll after each that brought nothing new.

    A handler that waits for changes asks again after each. One that starts may ask for several
    reasons, and one in trouble may try again.
    """
    known = b""
    for poll, following in pairwise(seen.polls):
        if poll.status == HTTPStatus.OK and poll.answer != known:
            known = poll.answer
        elif poll.has_read and following.has_read and not _is_starting(seen, poll):
            yield (following.at - poll.at).total_seconds()


def _is_starting(seen: Observation, poll: JournalEntry) -> bool:
    return any(abs(poll.at - started_at) < _START for started_at in seen.started_at)


def _is_too_much(requests: Sequence[JournalEntry], burst: int) -> bool:
    return len(requests) > burst + _REQUESTS_PER_SECOND * _length_of(requests)


def _length_of(requests: Sequence[JournalEntry]) -> float:
    if not requests:
        return 0.0
    length: timedelta = _end_of(requests[-1]) - requests[0].at
    return length.total_seconds()


def _end_of(entry: JournalEntry) -> datetime:
    return entry.at + timedelta(seconds=entry.seconds or 0)


_CHECKS: Final[Mapping[Grade, Callable[[Observation], GradeResult]]] = {
    Grade.SAW: _check_saw,
    Grade.PREPARED: _check_prepared,
    Grade.DECLINED: _check_declined,
    Grade.OWN: _check_own,
    Grade.RECOVERED: _check_recovered,
    Grade.ONCE: _check_once,
    Grade.POLITE: _check_polite,
    Grade.RUNNING: _check_running,
}
