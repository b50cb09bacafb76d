"""`forewarn maintenance watch`: a line for each change, until it is over or interrupted."""

import json
import signal
import subprocess
from collections.abc import Callable
from functools import partial

import pytest
from tests.cli.test_place_tables import maintenance, waiting
from tests.cli.test_watch import next_line
from typer.testing import Result

from forewarn.cli.place_tables import changed_lines

Run = Callable[..., Result]
Watch = Callable[..., "subprocess.Popen[str]"]
FIRST = "00000000-0000-4000-8000-000000000003"
TIMEOUT = 45


@pytest.fixture
def watch(run: Run, spawn: Watch) -> Watch:
    """Start a Maintenance, and watching it in a process of its own."""
    assert run("maintenance", "start", "--type", "Freeze", "--scope", "web").exit_code == 0
    return partial(spawn, "maintenance", "watch", FIRST)


def test_each_change_is_a_line_until_interrupted(run: Run, watch: Watch) -> None:
    watching = watch()
    assert next_line(watching) == "2026-01-05 08:00:00Z  availability-set/web  waiting\n"
    assert next_line(watching) == "2026-01-05 08:00:00Z  The maintenance is running.\n"

    run("maintenance", "pause", FIRST)

    assert next_line(watching) == "2026-01-05 08:00:00Z  The maintenance is paused.\n"
    watching.send_signal(signal.SIGINT)
    assert watching.wait(TIMEOUT) == 130


def test_programs_read_an_object_a_line(watch: Watch) -> None:
    watching = watch("-o", "json")

    assert json.loads(next_line(watching))["place"] == "availability-set/web"
    assert json.loads(next_line(watching)) == {
        "at": "2026-01-05T08:00:00Z",
        "status": "running",
        "status_text": "running",
    }


def test_only_what_has_changed_is_said_and_the_same_once() -> None:
    told: dict[str, str] = {}
    row = waiting(60)

    assert [line["place"] for line in changed_lines(row, told)] == ["kvm-01 … kvm-60 (60 hosts)"]
    assert changed_lines(row, told) == []
    done = maintenance({**row["standings"], "kvm-01": "succeeded"}, row["remaining"][1:])
    assert [(line["place"], line["said"]) for line in changed_lines(done, told)] == [
        ("kvm-01", "succeeded")
    ]
