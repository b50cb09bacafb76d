"""More seeds, also ones that nobody has tried before."""

import secrets
import time

import pytest
from tests.simulation.__main__ import command
from tests.simulation.life import simulate
from tests.simulation.scenario import Size, draw

SECONDS = 10.0
FOUND = {
    11: "a process started although its task was given up while the disk stood still",
    20027: "a task counted as running for ever, because the database went away before its start",
}
"""Seeds that have found something, and what."""


@pytest.mark.parametrize("seed", [*range(100, 120), *FOUND])
def test_nothing_happens_that_must_never_happen(seed: int) -> None:
    outcome = simulate(draw(seed, Size()))

    assert not outcome.violation, "\n".join(outcome.story)


def test_nor_under_seeds_that_nobody_has_tried() -> None:
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        seed = secrets.randbelow(10**9)
        outcome = simulate(draw(seed, Size()))
        assert not outcome.violation, f"{command(seed, Size())}\n" + "\n".join(outcome.story)
