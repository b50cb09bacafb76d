"""What a Maintenance waits for, in one sentence about all that wait for the same."""

import pytest

from forewarn.console.concerns import say_wait
from forewarn.domain.blockers import Blocker, Release, Verdict, VerdictKind
from forewarn.domain.names import HostName
from forewarn.domain.standstill import Standstill
from forewarn.domain.why import ReasonKind
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


def test_events_that_are_said_together_count_one_by_one() -> None:
    closed = [
        Blocker(
            kind=ReasonKind.WINDOW,
            release=Release.BY_TIME,
            hosts=(HostName(host),),
            event_ids=(EventId(f"{host}-A"), EventId(f"{host}-B")),
            about="The events start later.",
        )
        for host in ("kvm-1", "kvm-2")
    ]
    verdict = Verdict(kind=VerdictKind.BY_TIME)

    assert say_wait(Standstill(blockers=tuple(closed), verdict=verdict)) == (
        "2 events on kvm-1: The events start later. 2 more wait for the same reason."
    )
    assert say_wait(Standstill(blockers=tuple(closed[:1]), verdict=verdict)) == (
        "2 events on kvm-1: The events start later."
    )
