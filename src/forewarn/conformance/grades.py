"""What a handler is graded on. Each check is a function of what was observed, and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from forewarn.conformance.observations import HandlerHook, MarkKind, Observation
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
    Grade.RECOVERED: (
        "It recovers after the event has ended or was canceled, not before, "
        "also if the event was never Scheduled."
    ),
    Grade.ONCE: (
        "It prepares, approves and recovers once for each event, and repeats a failed approval."
    ),
    Grade.POLITE: "It polls about once a second, even after errors, with valid requests.",
    Grade.RUNNING: "It keeps running.",
}


class GradeRemedy(StrEnum):
    """What mends each thing that a handler can be wrong about, the most harmful first."""

    LEAVE_OTHERS = "Approve only events whose Resources contain the name of this virtual machine."
    IGNORE_OTHERS = (
        "Prepare only for events whose Resources contain the name of this virtual machine."
    )
    PREPARE_FIRST = "Send the StartRequest only after the preparation has ended."
    DECLINE = "Send the StartRequest only if the preparation has ended with exit code 0."
    SURVIVE = "Catch the error of a failed request or an unreadable response, and poll again."
    READ = "Poll /metadata/scheduledevents below the URL in FOREWARN_METADATA_URL."
    KEEP_READING = "Continue to poll after errors, and after each event."
    PREPARE = (
        "Run the preparation for every Scheduled event of this virtual machine: read all Events, "
        "not only the first."
    )
    RECOVER = (
        "Record the EventIds of this virtual machine in a file, also of events first seen as "
        "Started, and recover when they have left Events."
    )
    WAIT = "Recover only when Events contains no event of this virtual machine."
    REMEMBER = "Record for each EventId what has been done, and do it only once."
    REPEAT = "Send the StartRequest again until the response is 200 or the event has started."
    VALID = "Send the header Metadata: true and a supported api-version with each request."
    BACK_OFF = "Wait a second after each failed request."
    SLOW_DOWN = "Wait a second between two polls."


class GradeOutcome(StrEnum):
    """Whether a check passed; it is skipped if nothing is known about it."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class GradeResult:
    """The outcome of a check, with the reason unless it passed, and what mends it if it failed."""

    outcome: GradeOutcome
    reason: str = ""
    remedy: GradeRemedy | None = None


_NEVER_READ: Final = "never read its document"
_WITHOUT_READING: Final = frozenset({Grade.SAW, Grade.POLITE, Grade.RUNNING})
_PASSED: Final = GradeResult(GradeOutcome.PASSED)


def _failed(remedy: GradeRemedy, reason: str) -> GradeResult:
    return GradeResult(GradeOutcome.FAILED, reason, remedy)


def _skipped(reason: str) -> GradeResult:
    return GradeResult(GradeOutcome.SKIPPED, reason)


def _first_failure(failures: Iterator[GradeResult]) -> GradeResult:
    return next(failures, _PASSED)


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
        return _failed(GradeRemedy.READ, _NEVER_READ)
    return _first_failure(
        _failed(GradeRemedy.KEEP_READING, f"never read the {event.title}")
        for event in seen.events
        if event.is_to_be_seen and not any(poll.shows(event.event_id) for poll in seen.polls)
    )


def _check_running(seen: Observation) -> GradeResult:
    return _failed(GradeRemedy.SURVIVE, seen.end) if seen.end else _PASSED


def _check_prepared(seen: Observation) -> GradeResult:
    if HandlerHook.PREPARE not in seen.hooks:
        return without_hook(HandlerHook.PREPARE)
    return _first_failure(_find_unprepared(seen))


def _find_unprepared(seen: Observation) -> Iterator[GradeResult]:
    for event in (event for event in seen.events if event.is_own):
        approvals = seen.approvals_of(event)
        begun = seen.marks_of(MarkKind.BEGUN, event.announced_at)
        prepared = seen.marks_of(MarkKind.PREPARED, event.announced_at)
        if not approvals:
            is_late = event.started_at and begun and begun[0] > event.started_at
            if event.is_to_be_prepared and (is_late or not begun):
                how = " before it started" if is_late else ""
                yield _failed(GradeRemedy.PREPARE, f"did not prepare for the {event.title}{how}")
        elif not prepared or prepared[0] > approvals[0].at:
            is_early = begun and begun[0] <= approvals[0].at
            how = "while it was still preparing" if is_early else "unprepared"
            yield _failed(GradeRemedy.PREPARE_FIRST, f"approved the {event.title} {how}")


def _check_declined(seen: Observation) -> GradeResult:
    if HandlerHook.PREPARE not in seen.hooks:
        return without_hook(HandlerHook.PREPARE)
    if not seen.marks_of(MarkKind.BEGUN):
        return _failed(GradeRemedy.PREPARE, "did not run the preparation that was to fail")
    return _first_failure(
        _failed(
            GradeRemedy.DECLINE, f"approved the {event.title}, although its preparation had failed"
        )
        for event in seen.events
        if seen.approvals_of(event)
    )


def _check_own(seen: Observation) -> GradeResult:
    return _first_failure(_find_meddling(seen))


def _find_meddling(seen: Observation) -> Iterator[GradeResult]:
    for event in seen.events:
        if not event.is_own and seen.approvals_of(event):
            yield _failed(GradeRemedy.LEAVE_OTHERS, f"approved the {event.title}")
    own = [event.announced_at for event in seen.events if event.is_own]
    if any(not own or at < own[0] for at in seen.marks_of(MarkKind.BEGUN)):
        yield _failed(GradeRemedy.IGNORE_OTHERS, "prepared for the event of another machine")


def _check_recovered(seen: Observation) -> GradeResult:
    for hook in HandlerHook:
        if hook not in seen.hooks:
            return without_hook(hook)
    recovered = seen.marks_of(MarkKind.RECOVERED)
    recoverable_since = seen.recoverable_since
    if recoverable_since is None:
        return _skipped("nothing was prepared")
    end = seen.impacts_end
    if end is None:
        return _skipped("the event had not ended")
    if not recovered or recovered[-1] < recoverable_since:
        return _failed(GradeRemedy.RECOVER, "did not recover after the event had ended")
    if not seen.has_faults and recovered[0] < end:
        return _failed(GradeRemedy.WAIT, "recovered before the event had ended")
    return _PASSED


def _check_once(seen: Observation) -> GradeResult:
    return _first_failure(_find_repetitions(seen))


def _find_repetitions(seen: Observation) -> Iterator[GradeResult]:
    own = [event for event in seen.events if event.is_own]
    most = sum(event.times_scheduled for event in own) + seen.interruptions
    # A recovery may be interrupted by the next event, and repeated after it.
    last_end = max((event.over_at for event in own if event.over_at), default=None)
    prepared, recovered = seen.marks_of(MarkKind.BEGUN), seen.marks_of(MarkKind.RECOVERED, last_end)
    for done, times in (("prepared", len(prepared)), ("recovered", len(recovered))):
        if times > most:
            yield _failed(GradeRemedy.REMEMBER, f"{done} {times} times instead of {most}")
    for event in seen.events:
        times = len(seen.approvals_of(event))
        if times > event.times_scheduled:
            yield _failed(GradeRemedy.REMEMBER, f"approved the {event.title} {times} times")
    failed = seen.failed_start_requests
    if failed and not any(post.approved and post.at > failed[-1].at for post in seen.requests):
        yield _failed(GradeRemedy.REPEAT, "did not repeat its approval, which had failed")


def _check_polite(seen: Observation) -> GradeResult:
    return _first_failure(_find_rudeness(seen)) if seen.polls else _skipped("never polled")


def _find_rudeness(seen: Observation) -> Iterator[GradeResult]:
    for refused in (poll for poll in seen.polls if poll.status in _REFUSALS):
        reason = f"sent {refused.request}, which was refused: {refused.outcome}"
        yield _failed(GradeRemedy.VALID, reason)
    for has_failed, streak in groupby(seen.polls, lambda poll: not poll.has_read):
        polls = list(streak)
        if has_failed and _is_too_much(polls, _FEW):
            often = f"sent {len(polls)} GETs in {_length_of(polls):.1f} s"
            yield _failed(GradeRemedy.BACK_OFF, f"{often} that all failed, without backing off")
    intervals = list(_idle_intervals(seen))
    if len(intervals) >= _ENOUGH and median(intervals) < SHORTEST_INTERVAL:
        yield _failed(GradeRemedy.SLOW_DOWN, f"polled every {median(intervals):.2f} s (median)")
    changes = len({poll.document_incarnation for poll in seen.polls})
    for name, requests in (("GETs", seen.polls), ("POSTs", seen.start_requests)):
        if _is_too_much(requests, _BURST + changes):
            often = f"sent {len(requests)} {name} in {_length_of(requests):.1f} s"
            yield _failed(GradeRemedy.SLOW_DOWN, often)


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
