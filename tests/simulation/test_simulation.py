"""A few seeds at every run; `make simulate` tries any number of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.life import simulate
from tests.simulation.scenario import Size, draw

ROOT = Path(__file__).parents[2]
SMALL = Size(hours=3, machines=30)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_nothing_happens_that_must_never_happen(seed: int) -> None:
    outcome = simulate(draw(seed, SMALL))

    assert not outcome.violation, "\n".join(outcome.story)
    assert outcome.orders >= 3
    assert outcome.polls > 100


def test_same_seed_is_the_same_story_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = []
    for number in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", number)
        path = tmp_path / number
        words = ["--seed", "6", "--hours", "2", "--machines", "20", "--trace", str(path)]
        subprocess.run([sys.executable, "-m", "tests.simulation", *words], check=True, cwd=ROOT)
        traces.append(path.read_bytes())

    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > 1000
