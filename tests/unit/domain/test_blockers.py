"""What each blocker is called in short, and what can be done about it."""

from forewarn.domain.blockers import (
    BRAKE_OF,
    SENTENCES,
    VERDICTS,
    Blocker,
    BlockerKind,
    BrakeKind,
    Release,
    VerdictKind,
    remedies_for,
)
from forewarn.domain.names import MaintenanceId
from forewarn.domain.why import Remedy, Verb
from forewarn.protocol.vocabulary import EventId

M1 = MaintenanceId("m1")


def test_every_kind_has_a_sentence() -> None:
    assert SENTENCES.keys() == set(BlockerKind)
    assert VERDICTS.keys() == set(VerdictKind)


def test_every_kind_that_holds_a_step_is_a_brake_in_short() -> None:
    of_steps = set(BlockerKind) - {BlockerKind.ABORTED, BlockerKind.ELSEWHERE}

    brakes = {Blocker(kind=kind, release=Release.BY_HAND).brake for kind in of_steps}

    assert brakes == set(BrakeKind)
    assert of_steps == BRAKE_OF.keys()


def test_each_event_that_somebody_has_to_complete_is_completed_by_itself() -> None:
    awaited = (EventId("E1"), EventId("E2"))
    full = Blocker(kind=BlockerKind.CAPACITY, release=Release.BY_HAND, awaited=awaited)
    waiting = Blocker(kind=BlockerKind.BUSY, release=Release.BY_PROGRESS, event_ids=awaited)

    assert remedies_for([full, waiting, full], M1) == (
        (Remedy(verb=Verb.COMPLETE, ids=("E1",)),),
        (Remedy(verb=Verb.COMPLETE, ids=("E2",)),),
    )


def test_failure_leaves_a_choice_and_what_has_no_remedy_none() -> None:
    failure = Blocker(kind=BlockerKind.FAILURE, release=Release.BY_HAND, place="kvm-1")
    held = Blocker(kind=BlockerKind.CANARY_HELD, release=Release.BY_HAND)

    assert remedies_for([failure, held], M1) == (
        (Remedy(verb=Verb.RETRY, ids=(M1, "kvm-1")), Remedy(verb=Verb.SKIP, ids=(M1, "kvm-1"))),
    )
