"""Each check, on observations that were made up."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.conformance.grades import (
    MEANINGS,
    Grade,
    GradeOutcome,
    GradeRemedy,
    GradeResult,
    assess,
)
from forewarn.conformance.observations import (
    HandlerHook,
    HookMark,
    MarkKind,
    Observation,
    ObservedEvent,
)
from forewarn.domain.names import VmName
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.vocabulary import EventId

NOON = datetime(2030, 1, 5, 12, tzinfo=UTC)
ID = EventId("5BDA43E2-50A2-4AEE-B1D0-6B5A0B8EBF1B")
OTHER_ID = EventId(ID.replace("5", "6"))
PATH = "/metadata/scheduledevents?api-version=2020-07-01"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def poll(seconds: float, *, status: int | None = 200, shows: EventId | None = ID) -> JournalEntry:
    document = {"DocumentIncarnation": 1, "Events": [{"EventId": shows}] if shows else []}
    return JournalEntry(
        sequence=1,
        vm=VmName("web-0"),
        at=at(seconds),
        maintenance_time=NOON,
        method="GET",
        path=PATH,
        status=status,
        answer=json.dumps(document).encode() if status == 200 else b'{"error":"Bad request"}',
        seconds=0.0,
    )


def post(seconds: float, event_id: str = ID, status: int = 200) -> JournalEntry:
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
    return replace(poll(seconds), method="POST", body=body, status=status, answer=b"")


def marks(**seconds: float) -> tuple[HookMark, ...]:
    return tuple(HookMark(kind=MarkKind[kind], at=at(when)) for kind, when in seconds.items())


EVENT = ObservedEvent(
    event_id=ID, title="Reboot of web-0", is_own=True, announced_at=at(1), over_at=at(6)
)
GOOD = Observation(
    requests=(*(poll(each) for each in range(10)), post(4)),
    marks=marks(BEGUN=2, PREPARED=3, RECOVERED=7),
    events=(EVENT,),
)
UNANNOUNCED = replace(
    GOOD,
    requests=(poll(0),),
    marks=(),
    events=(replace(EVENT, is_unannounced=True, is_to_be_prepared=False),),
)
SECOND = replace(EVENT, announced_at=at(3.5), over_at=at(8))
NEIGHBOURS = replace(EVENT, is_own=False, title="Reboot of web-1", is_to_be_prepared=False)


def check(seen: Observation, grade: Grade) -> GradeResult:
    return assess(seen, [grade])[grade]


def with_requests(*requests: JournalEntry) -> Observation:
    return replace(GOOD, requests=requests)


def test_every_grade_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Grade)


@pytest.mark.parametrize("grade", sorted(set(Grade) - {Grade.DECLINED, Grade.OWN}))
def test_good_handler_passes(grade: Grade) -> None:
    assert check(GOOD, grade) == GradeResult(GradeOutcome.PASSED)


def test_good_handler_declines_and_leaves_neighbours_alone() -> None:
    declined = replace(GOOD, requests=(poll(0),), marks=marks(BEGUN=2))
    quiet = replace(GOOD, requests=(poll(0),), marks=(), events=(NEIGHBOURS,))

    assert check(declined, Grade.DECLINED) == GradeResult(GradeOutcome.PASSED)
    assert check(quiet, Grade.OWN) == GradeResult(GradeOutcome.PASSED)


def test_approval_is_not_needed_if_it_prepared() -> None:
    seen = replace(GOOD, requests=(poll(0),), marks=marks(BEGUN=2))

    assert check(seen, Grade.PREPARED) == GradeResult(GradeOutcome.PASSED)


FAILURES: Sequence[tuple[Grade, Observation, str]] = [
    (Grade.SAW, with_requests(), "never read its document"),
    (Grade.SAW, with_requests(poll(0, status=500)), "never read its document"),
    (Grade.SAW, with_requests(poll(0, shows=None)), "never read the Reboot of web-0"),
    (Grade.PREPARED, replace(GOOD, marks=()), "approved the Reboot of web-0 unprepared"),
    (
        Grade.PREPARED,
        replace(GOOD, marks=marks(BEGUN=2, PREPARED=5)),
        "approved the Reboot of web-0 while it was still preparing",
    ),
    (
        Grade.PREPARED,
        replace(GOOD, requests=(poll(0),), marks=()),
        "did not prepare for the Reboot of web-0",
    ),
    (
        Grade.PREPARED,
        replace(GOOD, marks=marks(BEGUN=0, PREPARED=0.5)),
        "approved the Reboot of web-0 unprepared",
    ),
    (
        Grade.PREPARED,
        replace(GOOD, requests=(poll(0),), events=(replace(EVENT, started_at=at(1.5)),)),
        "did not prepare for the Reboot of web-0 before it started",
    ),
    (
        Grade.DECLINED,
        replace(GOOD, marks=marks(BEGUN=2)),
        "approved the Reboot of web-0, although its preparation had failed",
    ),
    (
        Grade.DECLINED,
        replace(GOOD, requests=(poll(0),), marks=()),
        "did not run the preparation that was to fail",
    ),
    (Grade.OWN, replace(GOOD, events=(NEIGHBOURS,)), "approved the Reboot of web-1"),
    (
        Grade.OWN,
        replace(GOOD, requests=(poll(0),), events=(NEIGHBOURS,)),
        "prepared for the event of another machine",
    ),
    (
        Grade.OWN,
        replace(
            GOOD,
            events=(replace(NEIGHBOURS, event_id=OTHER_ID), replace(EVENT, announced_at=at(3))),
        ),
        "prepared for the event of another machine",
    ),
    (Grade.RECOVERED, UNANNOUNCED, "did not recover after the event had ended"),
    (
        Grade.RECOVERED,
        replace(UNANNOUNCED, marks=marks(BEGUN=2, RECOVERED=3)),
        "did not recover after the event had ended",
    ),
    (
        Grade.RECOVERED,
        replace(GOOD, events=(EVENT, SECOND)),
        "recovered before the event had ended",
    ),
    (
        Grade.RECOVERED,
        replace(GOOD, marks=marks(BEGUN=2, PREPARED=3)),
        "did not recover after the event had ended",
    ),
    (
        Grade.RECOVERED,
        replace(GOOD, marks=marks(BEGUN=2, PREPARED=3, RECOVERED=5)),
        "recovered before the event had ended",
    ),
    (
        Grade.ONCE,
        replace(GOOD, marks=(*GOOD.marks, *marks(BEGUN=4))),
        "prepared 2 times instead of 1",
    ),
    (
        Grade.ONCE,
        replace(GOOD, marks=(*GOOD.marks, *marks(RECOVERED=8))),
        "recovered 2 times instead of 1",
    ),
    (
        Grade.ONCE,
        with_requests(poll(0), post(4, status=503)),
        "did not repeat its approval, which had failed",
    ),
    (
        Grade.ONCE,
        with_requests(poll(0), post(3), replace(post(4), status=None, is_reset=True)),
        "did not repeat its approval, which had failed",
    ),
    (
        Grade.ONCE,
        with_requests(poll(0), post(4), post(5)),
        "approved the Reboot of web-0 2 times",
    ),
    (
        Grade.POLITE,
        with_requests(poll(0), poll(1, status=400)),
        f"sent GET {PATH}, which was refused: 400 Bad request",
    ),
    (
        Grade.POLITE,
        with_requests(*(poll(each / 10) for each in range(30))),
        "polled every 0.10 s (median)",
    ),
    (
        Grade.POLITE,
        with_requests(*(poll(each * 0.65) for each in range(8))),
        "polled every 0.65 s (median)",
    ),
    (
        Grade.POLITE,
        with_requests(*(poll(each / 4, status=304) for each in range(12))),
        "polled every 0.25 s (median)",
    ),
    (
        Grade.POLITE,
        with_requests(*(poll(each / 10, status=(200, 500)[each % 2]) for each in range(30))),
        "sent 30 GETs in 2.9 s",
    ),
    (
        Grade.POLITE,
        with_requests(poll(0), *(post(1, status=400) for _ in range(30))),
        "sent 30 POSTs in 0.0 s",
    ),
    (
        Grade.POLITE,
        with_requests(poll(-9), *(poll(each / 10, status=500) for each in range(9)), poll(9)),
        "sent 9 GETs in 0.8 s that all failed, without backing off",
    ),
    (Grade.RUNNING, replace(GOOD, end="exited with 1"), "exited with 1"),
]


@pytest.mark.parametrize(("grade", "seen", "reason"), FAILURES)
def test_bad_handler_fails(grade: Grade, seen: Observation, reason: str) -> None:
    result = check(seen, grade)

    assert (result.outcome, result.reason) == (GradeOutcome.FAILED, reason)


def test_every_grade_can_be_failed_and_every_remedy_is_given() -> None:
    assert {grade for grade, _, _ in FAILURES} == set(Grade)
    assert {check(seen, grade).remedy for grade, seen, _ in FAILURES} == set(GradeRemedy)


SKIPS: Sequence[tuple[Grade, Observation, str]] = [
    (Grade.PREPARED, replace(GOOD, hooks=frozenset()), "the handler has no prepare hook"),
    (Grade.DECLINED, replace(GOOD, hooks=frozenset()), "the handler has no prepare hook"),
    (
        Grade.RECOVERED,
        replace(GOOD, hooks=frozenset({HandlerHook.PREPARE})),
        "the handler has no recover hook",
    ),
    (Grade.RECOVERED, replace(GOOD, marks=()), "nothing was prepared"),
    (Grade.RECOVERED, replace(GOOD, events=()), "the event had not ended"),
    (Grade.POLITE, with_requests(), "never polled"),
    (Grade.ONCE, with_requests(), "never read its document"),
    (Grade.PREPARED, with_requests(poll(0, status=500)), "never read its document"),
]


@pytest.mark.parametrize(("grade", "seen", "reason"), SKIPS)
def test_unknown_is_skipped_and_not_passed(grade: Grade, seen: Observation, reason: str) -> None:
    assert check(seen, grade) == GradeResult(GradeOutcome.SKIPPED, reason)


def test_polls_may_be_a_little_more_often_than_once_a_second() -> None:
    requests = [poll(each * 0.75) for each in range(20)]

    assert check(with_requests(*requests), Grade.POLITE) == GradeResult(GradeOutcome.PASSED)


def test_poll_right_after_news_is_polite() -> None:
    """A handler that waits for a change asks again after each."""
    shown = [None, ID, None, OTHER_ID, None]
    requests = [poll(each / 5, shows=event_id) for each, event_id in enumerate(shown)]

    assert check(with_requests(*requests), Grade.POLITE) == GradeResult(GradeOutcome.PASSED)


def test_handler_may_poll_several_times_when_it_starts() -> None:
    times = (0, 0.01, 0.02, 1, 2, 2.01, 2.02, 3)
    seen = with_requests(*(poll(each) for each in times))

    assert check(seen, Grade.POLITE).outcome is GradeOutcome.FAILED
    assert check(replace(seen, started_at=(at(0), at(2))), Grade.POLITE).reason == ""


def test_retry_right_after_an_error_is_polite() -> None:
    times = (0, 0.1, 1, 1.1, 2, 2.1, 3, 3.1)
    requests = [poll(at, status=500 if at == int(at) else 200) for at in times]

    assert check(with_requests(*requests), Grade.POLITE) == GradeResult(GradeOutcome.PASSED)


def test_what_may_happen_again_is_not_repeated() -> None:
    marked = (*GOOD.marks, *marks(BEGUN=4))
    twice = replace(EVENT, times_scheduled=2)

    assert check(replace(GOOD, marks=marked, interruptions=1), Grade.ONCE).reason == ""
    assert check(replace(GOOD, marks=marked, events=(twice,)), Grade.ONCE).reason == ""


def test_recovery_behind_a_fault_may_come_early() -> None:
    seen = replace(GOOD, marks=marks(BEGUN=2, PREPARED=3, RECOVERED=5), has_faults=True)

    assert check(seen, Grade.RECOVERED) == GradeResult(GradeOutcome.PASSED)


def test_recovery_after_an_unannounced_event_is_enough() -> None:
    seen = replace(UNANNOUNCED, marks=marks(RECOVERED=7))

    assert check(seen, Grade.RECOVERED) == GradeResult(GradeOutcome.PASSED)


def test_one_recovery_after_events_that_overlap_is_enough() -> None:
    overlap = replace(GOOD, events=(EVENT, SECOND), marks=marks(BEGUN=2, PREPARED=3, RECOVERED=9))
    apart = replace(GOOD, events=(EVENT, replace(SECOND, announced_at=at(7), over_at=at(8))))

    assert check(overlap, Grade.RECOVERED) == GradeResult(GradeOutcome.PASSED)
    assert check(apart, Grade.RECOVERED) == GradeResult(GradeOutcome.PASSED)


def test_recovery_that_the_next_event_interrupts_may_be_repeated() -> None:
    second = replace(EVENT, announced_at=at(7), over_at=at(8))
    marked = tuple(HookMark(kind=MarkKind.RECOVERED, at=at(when)) for when in (7, 9, 9.1))
    seen = replace(GOOD, events=(EVENT, second), marks=marked)

    assert check(seen, Grade.ONCE) == GradeResult(GradeOutcome.PASSED)


def test_approval_that_was_repeated_or_whose_answer_was_lost_is_no_failure() -> None:
    repeated = with_requests(poll(0), post(4, status=500), post(5))
    lost = with_requests(poll(0), replace(post(4), status=None))

    assert check(repeated, Grade.ONCE) == GradeResult(GradeOutcome.PASSED)
    assert check(lost, Grade.ONCE) == GradeResult(GradeOutcome.PASSED)


def test_refused_approval_does_not_count() -> None:
    requests = (poll(0), post(4, status=400), post(5, "no GUID"))

    assert check(with_requests(*requests), Grade.ONCE) == GradeResult(GradeOutcome.PASSED)
