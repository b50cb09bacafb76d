"""`forewarn scenario` where nothing happens by itself; tests/e2e has it on a real server."""

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]
# The fleet took 1 and 2 for its vm_ids.
RUN_ID = "00000000-0000-4000-8000-000000000003"


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def test_scenarios_are_listed_with_their_steps(run: Run) -> None:
    lines = shown(run("scenario", "list")).splitlines()

    assert len(lines) == 10
    assert lines[1].startswith("canceled-maintenance    0s announce Freeze (15m + 10m), 8m cancel")
    assert lines[2].startswith("hardware-failure        0s begin Reboot (10m)  ")


def test_run_that_has_not_ended_is_five_where_time_does_not_pass(run: Run) -> None:
    told = run("scenario", "run", "redeploy", "--vm", "solo")

    assert told.exit_code == 5
    assert told.stdout == f"Started run {RUN_ID} of redeploy.\n"
    assert f"Run {RUN_ID} has not ended: the clock is virtual and stands still." in told.stderr
    assert f"forewarn clock advance 15m, then forewarn scenario status {RUN_ID}" in told.stderr


def test_run_that_nobody_waits_for_need_not_end(run: Run) -> None:
    said = shown(run("scenario", "run", "redeploy", "--vm", "solo", "--no-wait"))

    assert said == f"Started run {RUN_ID} of redeploy.\n"


def test_run_is_shown_and_listed_and_stopped(run: Run) -> None:
    begun = run("scenario", "run", "redeploy", "--vm", "solo", "--speed", "60", "-o", "json")

    listed = shown(run("scenario", "status")).splitlines()[1].split()
    one = shown(run("scenario", "status", RUN_ID))
    stopped = shown(run("scenario", "stop", RUN_ID))

    assert (begun.exit_code, json.loads(begun.stdout)["run_id"]) == (5, RUN_ID)
    assert listed[:3] == [RUN_ID, "redeploy", "running"]
    assert "status:            running\n" in one
    assert "speed:             60.0\n" in one
    assert "status:            stopped\n" in stopped


def test_error_in_a_file_has_its_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(
        'name = "night"\n\n[[step]]\nat = "soon"\nbegin = "Reboot"\n'
    )

    result = run("scenario", "run", "night.toml", "--vm", "solo")

    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("night.toml:4: at of step 1: invalid duration 'soon'")


def test_file_that_is_not_text_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_bytes(b"\xff")

    result = run("scenario", "run", "night.toml", "--vm", "solo")

    assert result.exit_code == 2
    assert "night.toml is not UTF-8 text." in result.stderr


def test_refusal_that_is_not_about_the_file_has_no_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text('name = "n"\n[[step]]\nat = "0s"\nbegin = "Reboot"\n')

    result = run("scenario", "run", "night.toml", "--vm", "nobody")

    assert result.exit_code == 3
    assert result.stderr.startswith("forewarn: Unknown virtual machine 'nobody'.")
