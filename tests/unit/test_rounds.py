"""Round after round, also while the store is away."""

import math
from collections.abc import Callable, Iterable

import pytest
from structlog.testing import capture_logs

from forewarn.ports.store import LeaseLostError, StoreUnavailableError
from forewarn.rounds import Rounds

FULL = "forewarn.db cannot be written now: the disk is full."
LOCKED = "forewarn.db cannot be written now: another program has it locked."


def played(rounds: Rounds, troubles: Iterable[str | None]) -> Callable[[], float]:
    """Return work that meets each of *troubles*, one a round, without a pause; then it stops."""
    left = list(troubles)

    def work() -> float:
        trouble = left.pop(0)
        (rounds.wake if left else rounds.stop)()
        if trouble is not None:
            raise StoreUnavailableError(trouble)
        return math.inf

    return work


def test_rounds_go_on_until_stopped() -> None:
    rounds, seen = Rounds("courier"), list[bool]()
    work = played(rounds, [None, None, None])

    def count() -> float:
        seen.append(rounds.is_stopping)
        return work()

    rounds.run(count)

    assert seen == [False, False, False]
    assert rounds.is_stopping


def test_trouble_is_logged_when_it_begins_changes_and_ends() -> None:
    rounds = Rounds("courier", target="chat")

    with capture_logs() as lines:
        rounds.run(played(rounds, [FULL, FULL, FULL, LOCKED, None, None, FULL]))

    assert [(line["event"], line.get("error"), line["target"]) for line in lines] == [
        ("courier_waits_for_store", FULL, "chat"),
        ("courier_waits_for_store", LOCKED, "chat"),
        ("courier_recovered", None, "chat"),
        ("courier_waits_for_store", FULL, "chat"),
    ]


def test_next_round_begins_when_the_last_one_said() -> None:
    rounds, waits = Rounds("courier"), iter([0.0, 0.001, -1.0])

    def work() -> float:
        wait = next(waits, None)
        if wait is None:
            rounds.stop()
            return math.inf
        return wait

    rounds.run(work)

    assert list(waits) == []


@pytest.mark.parametrize("error", [LeaseLostError(1, 2), LookupError("a mistake of ours")])
def test_whatever_else_goes_wrong_ends_the_rounds(error: Exception) -> None:
    def fail() -> float:
        raise error

    with capture_logs() as lines, pytest.raises(type(error)):
        Rounds("courier").run(fail)

    assert lines == []


def test_work_that_is_insisted_on_is_given_up_only_when_stopped() -> None:
    rounds = Rounds("courier")

    assert rounds.insist(lambda: "recorded") == "recorded"
    assert rounds.insist(played(rounds, [FULL])) is None
