"""--wait: until it has ended, until --timeout, or until Ctrl-C; the work continues."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from forewarn.cli.errors import CommandError
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.maintenance_progress import require_walked, say_progress
from forewarn.cli.patience import is_final

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
TIMEOUT = 45
FIRST = "00000000-0000-4000-8000-000000000003"
SECOND = "00000000-0000-4000-8000-000000000004"
STANDS = (
    "The clock is virtual and stands still; advance it in another terminal "
    "with: forewarn clock advance 15m"
)
CREATE = ("event", "create", "--type", "Reboot", "--resource", "solo")


@pytest.mark.parametrize(("status", "is_over"), [(404, True), (429, False), (503, False)])
def test_command_that_follows_asks_again_unless_that_is_no_use(
    status: int, *, is_over: bool
) -> None:
    assert is_final(ServerRefusedError({"status": status, "title": "Refused"})) == is_over


def test_wait_returns_when_the_event_has_ended(run: Run, environment: dict[str, str]) -> None:
    run(*CREATE)
    completing = threading.Timer(
        1, subprocess.run, [[FOREWARN, "event", "complete", "--all"]], {"env": environment}
    )
    completing.start()

    result = run("event", "start", FIRST, "--yes", "--wait", "--timeout", "30s")

    completing.join(TIMEOUT)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"Reboot {FIRST}: Started",
        STANDS,
        f"Reboot {FIRST}: Completed",
    ]
    assert "Completed" in result.stdout


@pytest.mark.parametrize(
    ("before", "verb", "said"),
    [
        ("start", ("complete", "--failed", "--reason", "no boot"), "failed: no boot."),
        ("approve", ("cancel",), "was canceled."),
    ],
)
def test_wait_fails_when_the_event_has_not_succeeded(
    run: Run, environment: dict[str, str], before: str, verb: tuple[str, ...], said: str
) -> None:
    run(*CREATE)
    ending = [FOREWARN, "event", verb[0], FIRST, *verb[1:]]
    timer = threading.Timer(1, subprocess.run, [ending], {"env": environment})
    timer.start()
    yes = ("--yes",) if before == "start" else ()

    result = run("event", before, FIRST, *yes, "--wait", "--timeout", "30s", "-o", "json")

    timer.join(TIMEOUT)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["event_id"] == FIRST
    assert result.stderr.splitlines()[-2:] == [
        f"forewarn: Reboot of solo {said}",
        f"  try: forewarn event show {FIRST}",
    ]


def test_wait_gives_up_and_the_event_goes_on(run: Run) -> None:
    result = run("vm", "restart", "solo", "--wait", "--timeout", "1s")

    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr.splitlines()[1:] == [
        STANDS,
        "forewarn: Timed out after 1s; the work is still in progress.",
        f"  try: forewarn event explain {FIRST}",
    ]
    assert FIRST in run("event", "list").stdout


def test_wait_names_the_event_that_goes_first(run: Run) -> None:
    run(*CREATE, "--started", "--yes")
    run(*CREATE)

    result = run("event", "approve", SECOND, "--wait", "--timeout", "1s")

    assert result.stderr.splitlines()[0] == f"Reboot {SECOND}: Scheduled, waits for {FIRST} to end"


def test_wait_does_not_name_an_event_that_may_end_before_the_approval(run: Run) -> None:
    run(*CREATE, "--started", "--yes")

    result = run(*CREATE, "--wait", "--timeout", "1s")

    assert result.stderr.splitlines()[0] == f"Reboot {SECOND}: Scheduled"


def test_wait_gives_up_on_a_maintenance(run: Run) -> None:
    order = ("maintenance", "start", "--type", "Freeze", "--scope", "web")
    result = run(*order, "--wait", "--timeout", "1s")

    assert result.exit_code == 5
    assert result.stderr.splitlines()[0] == (
        f"Maintenance {FIRST}: running, 1 scope waiting, 2 steps to announce"
    )
    assert "running" in run("maintenance", "list").stdout


def test_progress_counts_the_hosts_that_are_not_done() -> None:
    places = {"succeeded": 4, "under way": 1}
    row = {"hosts": ["kvm-1"], "places": places, "steps_remaining": 0}

    assert say_progress(walked("running", **row)) == (
        "Maintenance m: running, 5 hosts (4 succeeded, 1 under way)"
    )


def test_progress_of_a_maintenance_without_places_has_no_count() -> None:
    row = {"hosts": [], "places": {}, "steps_remaining": 0}

    assert say_progress(walked("completed", **row)) == "Maintenance m: completed"


def walked(status: str, **changed: object) -> dict[str, object]:
    return {
        "maintenance_id": "m",
        "status": status,
        "status_text": status,
        "failures": [],
        "standings": {},
        **changed,
    }


def test_maintenance_that_is_held_says_what_holds_it() -> None:
    failure = {"place": "kvm-3", "ending": "failed", "reason": "no boot"}

    with pytest.raises(CommandError) as refusal:
        require_walked(walked("held", failures=[failure]))

    assert str(refusal.value) == "Maintenance m is held. kvm-3 failed: no boot."
    assert (refusal.value.code, refusal.value.hint) == (1, "try: forewarn maintenance explain m")


@pytest.mark.parametrize("status", ["incomplete", "aborted"])
def test_maintenance_that_was_not_done_everywhere_is_a_failure(status: str) -> None:
    with pytest.raises(CommandError) as refusal:
        require_walked(walked(status, standings={"kvm-1": "succeeded", "kvm-3": "skipped"}))

    assert str(refusal.value) == f"Maintenance m is {status}. Not done: kvm-3 (skipped)."
    assert refusal.value.code == 1


def test_maintenance_whose_retry_went_well_is_no_failure() -> None:
    failed = {"ended_at": "2026-01-05T08:00:00Z", "outcome": "failed"}

    require_walked(walked("completed", events=[failed], standings={"kvm-3": "succeeded"}))


def test_wait_for_a_maintenance_ends_with_its_patience(run: Run) -> None:
    run("maintenance", "start", "--type", "Freeze", "--scope", "web")

    result = run("maintenance", "wait", FIRST, "--timeout", "1s")

    assert result.exit_code == 5
    assert result.stderr.splitlines()[-1] == f"  try: forewarn maintenance status {FIRST}"


def test_bad_timeout_is_refused_before_anything_begins(run: Run) -> None:
    result = run(*CREATE, "--wait", "--timeout", "soon")

    assert result.exit_code == 2
    assert "Reboot" not in run("event", "list").stdout


def test_interrupt_detaches_and_cancels_nothing(run: Run, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [FOREWARN, *CREATE, "--wait"],
        env={"PATH": os.defpath, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as said:
        assert said.readline() == f"Reboot {FIRST}: Scheduled\n"
        assert said.readline() == f"{STANDS}\n"
        process.send_signal(signal.SIGINT)

        assert said.read() == (
            "forewarn: Stopped waiting; the work is still in progress.\n"
            f"  try: forewarn event explain {FIRST}\n"
        )
    assert process.wait(TIMEOUT) == 130
    assert "Scheduled" in run("event", "list").stdout
