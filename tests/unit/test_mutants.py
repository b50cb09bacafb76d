"""Rows of planted bugs that prove nothing are refused. `make mutants` plants them."""

from pathlib import Path
from typing import Any

import pytest

from mutants import CAUGHT, ERROR, ROOT, SURVIVED, MutantError, PytestRun, choose, judge, read_row

SOURCES = {
    ROOT / "src/a.py": "def is_due(now, then):\n    return now >= then\n",
    ROOT / "src/b.py": "def is_over(now, then):\n    return now > then\n",
}
ROW: dict[str, Any] = {
    "name": "an event starts late",
    "promise": "notice",
    "find": "now >= then",
    "replace": "now > then",
    "tests": ["tests/unit"],
}


def test_row_finds_the_file_of_its_text() -> None:
    mutant = read_row(ROW, SOURCES)

    assert (mutant.file, mutant.tests) == (Path("src/a.py"), ("tests/unit",))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"find": "now <= then"}, "occurs 0 times"),
        ({"find": "(now, then)"}, "occurs 2 times"),
        ({"replace": "now >= then"}, "changes nothing"),
        ({"replace": "now >"}, "not valid Python"),
        ({"tests": []}, "do not exist"),
        ({"tests": ["tests/nowhere"]}, "tests/nowhere"),
    ],
)
def test_row_that_does_not_fit_the_sources_is_refused(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(MutantError, match=problem) as refused:
        read_row({**ROW, **changes}, SOURCES)

    assert str(refused.value).startswith("an event starts late: ")


def test_mutants_are_chosen_by_name() -> None:
    one = read_row(ROW, SOURCES)

    assert choose((one,), None) == choose((one,), [one.name]) == (one,)
    with pytest.raises(MutantError, match="Unknown mutant 'x'"):
        choose((one,), ["x"])


@pytest.mark.parametrize(
    ("code", "output", "verdict"),
    [
        (1, "FAILED tests/a.py::test_b - assert", (CAUGHT, "FAILED tests/a.py::test_b")),
        (0, "1 passed", (SURVIVED, "no test failed")),
        (0, "\nSKIPPED [1] a.py", (SURVIVED, "no test failed, but some were skipped")),
        (None, "", (ERROR, "its tests did not end in time; raise --limit")),
        (2, "1 error", (ERROR, "pytest exited with code 2:\n1 error\n")),
        (5, "", (ERROR, "pytest exited with code 5:\n\n")),
    ],
)
def test_only_tests_that_ran_and_failed_catch_a_mutant(
    code: int | None, output: str, verdict: tuple[str, str]
) -> None:
    assert judge(PytestRun(code=code, output=output, seconds=1)) == verdict
