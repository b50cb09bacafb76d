"""The leader is lost at many moments of many roll-outs. Only `make soak` runs this."""

import random

import pytest
from tests.e2e.leader_losses import LOSSES, SCRIPTS, MakeRollout, Point, make_rollout

__all__ = ["make_rollout"]

NUMBER = 20
LONGEST = 5.0
"""In these seconds a roll-out in which nothing is held is over."""
STOPS = ("record", "begin", "claim", "report", "write")


def points(chance: random.Random) -> list[Point]:
    """Return moments by the clock, and points of the work after the start of a script."""
    found = []
    for number in range(NUMBER):
        held = chance.choice(["", *SCRIPTS])
        if number % 2 == 0:
            found.append(Point(held=held, after=chance.uniform(0, 1 if held else LONGEST)))
        else:
            # Nothing begins after the last script.
            stops = STOPS if held != SCRIPTS[-1] else ("record", "report", "write")
            found.append(Point(held=held, stops_at=chance.choice(stops)))
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_done_twice_or_stranded_wherever_the_leader_is_lost(
    make_rollout: MakeRollout, loss: str
) -> None:
    first = make_rollout()

    for point in points(random.Random(loss)):  # noqa: S311 - the same moments each time
        rollout = first.follow()
        try:
            rollout.lose_leader(point, LOSSES[loss])
            rollout.check_end()
        except BaseException as error:
            error.add_note(f"the leader was {loss} at {point}")
            raise

    assert len(first.trio.takeovers()) >= NUMBER
