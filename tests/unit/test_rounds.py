"""Round after round, also while the store is unavailable."""

import pytest
from structlog.testing import capture_logs

from forewarn.ports.store import LeaseLostError, StoreError, StoreUnavailableError
from forewarn.rounds import Rounds

FULL = "forewarn.db cannot be written now: the disk is full."
LOCKED = "forewarn.db cannot be written now: another program has it locked."


class Part:
    """Meets each of *troubles*, one a round, without a pause; then it stops itself."""

    def __init__(self, *troubles: str | None, is_thorough: bool = False) -> None:
        self.troubles = list(troubles)
        self.rounds = Rounds("courier", self.work, is_thorough=is_thorough, target="chat")

    def work(self) -> float | None:
        trouble = self.troubles.pop(0)
        (self.rounds.wake if self.troubles else self.rounds.stop)()
        if trouble is not None:
            raise StoreUnavailableError(trouble)
        return None


def test_trouble_is_logged_when_it_begins_changes_and_ends() -> None:
    part = Part(FULL, FULL, FULL, LOCKED, None, None, FULL)

    with capture_logs() as lines:
        part.rounds.run()

    assert [(line["event"], line.get("error"), line["target"]) for line in lines] == [
        ("courier_waits_for_store", FULL, "chat"),
        ("courier_waits_for_store", LOCKED, "chat"),
        ("courier_recovered", None, "chat"),
        ("courier_waits_for_store", FULL, "chat"),
    ]


def test_next_round_begins_when_the_last_one_said() -> None:
    waits = iter([0.0, 0.001, -1.0])

    def work() -> float | None:
        wait = next(waits, None)
        if wait is None:
            rounds.stop()
        return wait

    rounds = Rounds("courier", work)
    rounds.run()

    assert list(waits) == []


@pytest.mark.parametrize(("is_thorough", "left"), [(False, 1), (True, 0)])
def test_rounds_that_are_stopped_are_done_with_or_gone_once_more(
    *, is_thorough: bool, left: int
) -> None:
    part = Part(None, is_thorough=is_thorough)
    part.rounds.stop()

    part.rounds.run()

    assert len(part.troubles) == left


def test_rounds_of_the_leader_end_with_its_lease() -> None:
    def work() -> float | None:
        raise LeaseLostError(1, 2)

    with capture_logs() as lines:
        Rounds("courier", work).run()

    assert lines == []


@pytest.mark.parametrize("is_thorough", [False, True])
def test_part_that_is_left_behind_ends_quietly_when_the_store_is_closed(
    *, is_thorough: bool
) -> None:
    def work() -> float | None:
        rounds.stop()
        raise StoreError("It was closed.")

    rounds = Rounds("courier", work, is_thorough=is_thorough)
    with capture_logs() as lines:
        rounds.run()

    assert lines == []


def test_store_that_fails_while_the_part_is_needed_is_left_to_those_above() -> None:
    def work() -> float | None:
        raise StoreError("It was closed.")

    with pytest.raises(StoreError):
        Rounds("courier", work).run()


def test_mistake_of_ours_is_left_to_those_above() -> None:
    def work() -> float | None:
        raise LookupError("nobody expected this")

    with pytest.raises(LookupError):
        Rounds("courier", work).run()


def test_work_that_is_insisted_on_is_given_up_only_when_stopped() -> None:
    part = Part(FULL)

    assert part.rounds.insist(lambda: "recorded") == "recorded"
    assert part.rounds.insist(part.work) is None
