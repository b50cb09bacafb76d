"""The findings about two public handlers that docs/reference/conformance.md shows."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conformance.clients.conftest import FOREWARN, INSTALLED, PROGRAMS, make_host, need

pytestmark = pytest.mark.timeout(300)

OCF_ROOT = INSTALLED / "resource-agents" / "usr" / "lib" / "ocf"
PACEMAKER = OCF_ROOT / "resource.d" / "heartbeat" / "azure-events-az"
JOBQ = INSTALLED / "ai4s-jobq" / "bin" / "python"


def grade(folder: Path, *words: str | Path) -> Mapping[tuple[str, str], str]:
    """Return what failed, by situation and grade."""
    with ExitStack() as stack:
        make_host(stack)
    report = folder / "report.json"
    command = (FOREWARN, "conformance", "run", "--netns", "--output", "json", *words)
    with report.open("w", encoding="utf-8") as output:
        subprocess.run(command, stdout=output, check=False, timeout=200)
    situations = json.loads(report.read_text(encoding="utf-8"))["situations"]
    return {
        (situation["situation"], result["grade"]): result["reason"]
        for situation in situations
        for result in situation["results"]
        if result["outcome"] == "failed"
    }


def test_pacemaker_agent_is_right_until_a_request_goes_wrong(tmp_path: Path) -> None:
    need(PACEMAKER)
    only = ("--only", "own-event", "--only", "neighbor-event", "--only", "fault-status-410")
    handler = ("env", f"OCF_ROOT={OCF_ROOT}", "sh", PROGRAMS / "graded_azure_events.sh", PACEMAKER)

    failed = grade(tmp_path, *only, "--", *handler)

    assert {situation for situation, _ in failed} == {"fault-status-410"}
    assert failed["fault-status-410", "running"] == "exited with 1 before it was stopped"


def test_jobq_stops_for_neighbours_and_hears_no_more_after_an_error(tmp_path: Path) -> None:
    need(JOBQ)
    names = ("own-event", "neighbor-event", "fault-status-500", "fault-extra-fields")
    only = [word for name in names for word in ("--only", name)]
    handler = ("env", "AZ_BATCH_TASK_ID=1", JOBQ, PROGRAMS / "graded_preemption.py")

    failed = grade(tmp_path, "--type", "Preempt", *only, "--", *handler)

    assert failed == {
        ("neighbor-event", "own"): "prepared for the event of another machine",
        ("fault-status-500", "saw"): "never read the Preempt of web-0",
        ("fault-status-500", "prepared"): "did not prepare for the Preempt of web-0",
        ("fault-extra-fields", "saw"): "never read the Preempt of web-0",
        ("fault-extra-fields", "prepared"): "did not prepare for the Preempt of web-0",
    }
