"""Gates that run a program."""

import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.gates.conftest import SOON, put, wait_for

from forewarn.domain.gate import Question
from forewarn.gates.command import CommandGate
from forewarn.gates.verdict import MOST_OUTPUT, GateVerdict

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "COLOUR": "blue"}


def shell(script: str, *, seconds: float = SOON) -> CommandGate:
    command = ("/bin/sh", "-c", script)
    return CommandGate(command, timeout=timedelta(seconds=seconds), environment=ENVIRONMENT)


def ask(question: Question, script: str, *, seconds: float = SOON) -> GateVerdict:
    return put(shell(script, seconds=seconds), question)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("script", "is_open", "output"),
    [
        ("echo fine", True, "fine"),
        ("true", True, ""),
        ("echo one; echo two >&2; exit 3", False, "one\ntwo\nThe command ended with exit code 3."),
        ("kill -9 $$", False, "The command ended with signal 9."),
        ("exec >&- 2>&-; sleep 0.2; exit 4", False, "The command ended with exit code 4."),
        ("printf '\\033[1mloud\\033(B\\033[m\\a\\n'", True, "loud"),
        ("printf '\\033]0;a title\\alow\\033\\n'", True, "low"),
    ],
)
def test_exit_code_decides(
    question: Question,
    script: str,
    is_open: bool,  # noqa: FBT001
    output: str,
) -> None:
    assert ask(question, script) == GateVerdict(is_open=is_open, output=output)


def test_program_knows_the_question(question: Question) -> None:
    known = 'echo "$GATE/$MAINTENANCE_ID/$SCOPE_IDS/$STEPS_DONE/$COLOUR/$HOME"; cat'

    first, second = ask(question, known).output.splitlines()

    assert first == "probe/m1/availability-set/web virtual-machine/solo/2/blue/"
    assert json.loads(second) == {
        "gate": "probe",
        "maintenance_id": "m1",
        "scope_ids": ["availability-set/web", "virtual-machine/solo"],
        "steps_done": 2,
    }


def test_program_that_hangs_is_ended_with_what_it_has_started(
    question: Question, tmp_path: Path
) -> None:
    begun = time.monotonic()

    verdict = ask(question, f"sleep 60 & echo $! > {tmp_path}/pid; echo busy; wait", seconds=0.5)

    assert not verdict.is_open
    assert verdict.output == "busy\nThe command timed out after 0.5 seconds."
    assert time.monotonic() - begun < SOON
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_for(lambda: not is_running(pid), "the child still runs")


def test_what_it_leaves_running_does_not_hold_it_up(question: Question, tmp_path: Path) -> None:
    begun = time.monotonic()

    verdict = ask(question, f"sleep 60 & echo $! > {tmp_path}/pid; echo done", seconds=30)

    assert verdict == GateVerdict(is_open=True, output="done")
    assert time.monotonic() - begun < SOON
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_for(lambda: not is_running(pid), "the child still runs")


def test_endless_output_is_cut_to_the_last_of_it(question: Question) -> None:
    verdict = ask(question, "yes forewarn", seconds=0.5)

    assert not verdict.is_open
    assert len(verdict.output) == MOST_OUTPUT
    assert verdict.output.endswith("forewarn\nThe command timed out after 0.5 seconds.")


def test_program_that_is_not_there_is_shut(question: Question, tmp_path: Path) -> None:
    gate = CommandGate(
        (str(tmp_path / "gone"),), timeout=timedelta(seconds=1), environment=ENVIRONMENT
    )

    verdict = put(gate, question)

    assert not verdict.is_open
    assert verdict.output.startswith("The command could not be started: ")


def test_nothing_runs_any_more_when_it_is_closed(question: Question, tmp_path: Path) -> None:
    gate = shell(f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 60")
    verdicts: list[GateVerdict] = []
    asking = threading.Thread(target=lambda: verdicts.append(put(gate, question)))
    asking.start()
    wait_for((tmp_path / "pid").exists, "the program has not begun")

    gate.close()
    asking.join(SOON)

    assert not is_running(int((tmp_path / "pid").read_text(encoding="utf-8")))
    assert [verdict.is_open for verdict in verdicts] == [False]
    assert "server is stopping" in put(gate, question).output


def test_no_descriptor_is_left_open(question: Question) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("looks into /proc")
    ask(question, "true")
    before = open_descriptors()

    for _ in range(5):
        ask(question, "true")

    assert open_descriptors() == before


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
