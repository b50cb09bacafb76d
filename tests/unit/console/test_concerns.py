"""What a Maintenance waits for, in one sentence about all that wait for the same."""

import pytest

from forewarn.console.concerns import say_wait
from forewarn.domain.blockers import Blocker, Release, Verdict, VerdictKind
from forewarn.domain.reasons import ReasonKind
from forewarn.domain.standstill import Standstill
from forewarn.protocol.vocabulary import EventId


def running(event: str, vm: str) -> Blocker:
    return Blocker(
        kind=ReasonKind.RUNNING,
        release=Release.BY_PROGRESS,
        vms=(vm,),
        event_ids=(EventId(event),),
        about=f"The impact on {vm} has been running.",
    )


@pytest.mark.parametrize(
    ("blockers", "sentence"),
    [
        ((running("A", "a"), running("B", "b")), "The impact of 2 events is running."),
        (
            (running("A", "a"), running("A", "b"), running("B", "c")),
            "The impact of 2 events is running.",
        ),
        ((running("A", "a"), running("A", "b")), "The impact of 1 event is running."),
    ],
)
def test_events_are_counted_and_not_their_machines(
    blockers: tuple[Blocker, ...], sentence: str
) -> None:
    standstill = Standstill(blockers=blockers, verdict=Verdict(kind=VerdictKind.NOW))

    assert say_wait(standstill) == sentence


def test_missing_approval_is_said_before_the_events_that_wait_for_it() -> None:
    approved = Blocker(kind=ReasonKind.HOST_OPERATION, release=Release.BY_TIME, about="B waits.")
    missing = Blocker(kind=ReasonKind.APPROVAL_OF_ANY, release=Release.BY_TIME, about="Not yet.")
    verdict = Verdict(kind=VerdictKind.BY_TIME)

    said = say_wait(Standstill(blockers=(approved, missing), verdict=verdict))

    assert said.endswith(": Not yet.")
