"""Real handlers are graded: good ones by the command, and one for each mistake.

All but one mistake are graded without a process of the command, which takes longer to load than
most handlers to be graded.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from forewarn.conformance.battery import run_battery
from forewarn.conformance.grades import Grade
from forewarn.conformance.reports import write_object
from forewarn.conformance.situations import SITUATIONS
from forewarn.conformance.trial import TrialRules
from forewarn.domain.fault import FaultKind

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BIN = Path(sys.executable).parent
HANDLER = (sys.executable, str(HERE / "handler.py"))
SECONDS = 240.0
TIMEOUT = 8
"""How many seconds a handler with a mistake has each time."""

AGENT = (
    "sh",
    "-c",
    'STATE_DIRECTORY=$FOREWARN_CONFORMANCE_FOLDER exec "$0" run --config "$1"',
    str(BIN / "forewarn-agent"),
    str(HERE / "agent.toml"),
)
EXAMPLE = (
    "sh",
    "-c",
    'exec "$0" "$1" "$FOREWARN_CONFORMANCE_PREPARE"',
    sys.executable,
    str(ROOT / "examples" / "python_urllib.py"),
)
MISTAKES: Mapping[str, tuple[str, Grade, str]] = {
    "stops-polling": ("own-event", Grade.SAW, "never read the"),
    "never-prepares": ("own-event", Grade.PREPARED, "unprepared"),
    "approves-first": ("own-event", Grade.PREPARED, "unprepared"),
    "approves-anyway": ("failed-preparation", Grade.DECLINED, "although its preparation"),
    "takes-all": ("neighbor-event", Grade.OWN, "approved the Reboot of web-1"),
    "never-recovers": ("own-event", Grade.RECOVERED, "did not recover"),
    "recovers-early": ("own-event", Grade.RECOVERED, "recovered before"),
    "forgets": ("restart", Grade.RECOVERED, "did not recover"),
    "approves-again": ("own-event", Grade.ONCE, "approved the Reboot of web-0"),
    "prepares-again": ("own-event", Grade.ONCE, "prepared"),
    "ignores-started": ("straight-to-started", Grade.RECOVERED, "did not recover"),
    "recovers-again": ("own-event", Grade.ONCE, "recovered"),
    "reads-one": ("two-machines", Grade.PREPARED, "did not prepare"),
    "gives-up": ("fault-failed-post", Grade.ONCE, "did not repeat its approval"),
    "polls-too-often": ("own-event", Grade.POLITE, "polled every 0."),
    "storms": ("own-event", Grade.POLITE, "POSTs in"),
    "omits-header": ("own-event", Grade.POLITE, "was refused: 400"),
    "invents-version": ("own-event", Grade.POLITE, "was refused: 404"),
    "does-not-back-off": ("fault-status-500", Grade.POLITE, "without backing off"),
    "ends-in-trouble": ("fault-empty-body", Grade.RUNNING, "exited with 1"),
}

Done = subprocess.CompletedProcess[str]
Report = Mapping[str, Any]


def grade(*words: str) -> Done:
    command = (str(BIN / "forewarn"), "conformance", "run", "--output", "json", *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def grade_here(mistake: str) -> Report:
    (situation,) = (each for each in SITUATIONS if each.name == MISTAKES[mistake][0])
    rules = TrialRules(command=(*HANDLER, mistake), timeout=TIMEOUT)
    return write_object(run_battery([situation], rules, jobs=1))


def read(done: Done) -> Report:
    assert done.stdout, done.stderr
    report: Report = json.loads(done.stdout)
    return report


def failures(report: Report) -> Sequence[tuple[str, str, str]]:
    return [
        (situation["situation"], result["grade"], result["reason"])
        for situation in report["situations"]
        for result in situation["results"]
        if result["outcome"] == "failed"
    ]


@pytest.fixture(scope="module")
def junit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("junit") / "report.xml"


@pytest.fixture(scope="module", autouse=True)
def runs(junit: Path) -> Iterator[Mapping[str, Future[Done]]]:
    """Handlers that the command grades, several at a time: they spend most of it waiting."""
    only = [f"--only={name}" for name in {situation for situation, _, _ in MISTAKES.values()}]
    with ThreadPoolExecutor(2) as pool:
        yield {
            "agent": pool.submit(grade, "--jobs", "16", "--", *AGENT),
            "example": pool.submit(
                grade, "--jobs", "16", "--without", "recover", f"--junit={junit}", "--", *EXAMPLE
            ),
            "handler": pool.submit(grade, *only, "--", *HANDLER),
            "never-prepares": pool.submit(
                grade, f"--timeout={TIMEOUT}s", "--only=own-event", "--", *HANDLER, "never-prepares"
            ),
        }


@pytest.fixture(scope="module", autouse=True)
def mistakes() -> Iterator[Mapping[str, Future[Report]]]:
    with ThreadPoolExecutor(4) as pool:
        yield {mistake: pool.submit(grade_here, mistake) for mistake in MISTAKES}


Runs = Mapping[str, Future[Done]]


def test_every_fault_is_in_the_battery() -> None:
    names = [situation.name for situation in SITUATIONS]

    for kind in FaultKind:
        assert any(name.startswith(f"fault-{kind}") for name in names)
    assert len(names) == len(set(names))


def test_every_grade_has_a_mistake() -> None:
    assert {grade for _, grade, _ in MISTAKES.values()} == set(Grade)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_found(mistake: str, mistakes: Mapping[str, Future[Report]]) -> None:
    situation, grade, reason = MISTAKES[mistake]

    report = mistakes[mistake].result()

    found = [why for where, what, why in failures(report) if (where, what) == (situation, grade)]
    assert any(reason in why for why in found), report
    assert report["score"] < (50.1 if grade is Grade.OWN else 100)


def test_command_fails_if_there_is_a_mistake(runs: Runs) -> None:
    done = runs["never-prepares"].result()

    assert ("own-event", Grade.PREPARED) in {each[:2] for each in failures(read(done))}
    assert read(done)["score"] < 100
    assert done.returncode == 1


def test_handler_without_a_mistake_has_full_marks(runs: Runs) -> None:
    done = runs["handler"].result()

    assert failures(read(done)) == []
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["agent", "example"])
def test_agent_and_example_have_full_marks(name: str, runs: Runs) -> None:
    done = runs[name].result()

    report = read(done)
    assert failures(report) == []
    assert (report["score"], done.returncode) == (100, 0)
    assert len(report["situations"]) == len(SITUATIONS)


def test_what_has_no_hook_is_skipped_and_not_passed(runs: Runs) -> None:
    report = read(runs["example"].result())

    (recovered,) = (each for each in report["grades"] if each["grade"] == Grade.RECOVERED)
    assert (recovered["passed"], recovered["failed"]) == (0, 0)
    assert recovered["skipped"] > 30


def test_junit_has_a_case_for_each_check(junit: Path, runs: Runs) -> None:
    report = read(runs["example"].result())

    root = ET.fromstring(junit.read_bytes())  # noqa: S314 - it is ours
    checks = report["passed"] + report["failed"] + report["skipped"]
    assert len(root.findall("testsuite/testcase")) == checks == int(root.attrib["tests"])
    assert len(root.findall("testsuite/testcase/skipped")) == report["skipped"]
