"""What the fuzzer begins with, and what it once found, is no problem without it either."""

from pathlib import Path

import pytest
from tests.fuzz.run import CORPUS, NAMES, replay
from tests.fuzz.targets import TARGETS


def test_every_target_has_a_corpus() -> None:
    assert set(NAMES) == set(TARGETS)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.rglob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_file_of_a_corpus_is_no_problem(path: Path) -> None:
    replay(path.parent.name, path.read_bytes())
