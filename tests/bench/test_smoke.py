"""The programs of `make bench` work: each is run with `--smoke`, which takes seconds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(330)

ROOT = Path(__file__).parents[2]
RECIPE = re.search(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
PROGRAMS = re.findall(r"bench/\w+\.py", RECIPE[1] if RECIPE else "")
INCOMPLETE = 77
"""The exit code of a program that has skipped a part: see `bench/smoke.py`."""
SECONDS = 300
"""Most take two to six seconds of a core, the longest thirteen; the machine may be busy."""


def test_recipe_runs_one_program_per_line() -> None:
    assert RECIPE is not None
    assert len(PROGRAMS) == RECIPE[1].count("\n") > 10


@pytest.mark.parametrize("program", PROGRAMS)
def test_benchmark_prints_figures(program: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / program, "--smoke"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    if done.returncode == INCOMPLETE:
        reasons = re.findall(r"^skipped: (.+)", done.stdout, re.MULTILINE)
        pytest.skip("; ".join(dict.fromkeys(reasons)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), "the program printed no figure"
