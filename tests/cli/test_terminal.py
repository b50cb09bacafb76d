"""On a terminal: tables are drawn for its width, and questions are asked."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]")
TIMEOUT = 30


def on_terminal(
    environment: dict[str, str], *arguments: str, typed: str = "", **more: str
) -> tuple[int, str]:
    """Run a command on a terminal where somebody types; return its exit code and what is seen."""
    here, there = pty.openpty()
    process = subprocess.Popen(
        [FOREWARN, *arguments],
        stdin=there,
        stdout=there,
        stderr=there,
        env={"PATH": os.defpath, "TERM": "xterm-256color", **environment, **more},
    )
    os.close(there)
    os.write(here, typed.encode())
    seen = b""
    try:
        while chunk := os.read(here, 4096):
            seen += chunk
    except OSError:
        pass  # how Linux says that the other side has closed
    os.close(here)
    return process.wait(TIMEOUT), seen.decode()


def test_table_folds_to_the_width_of_the_terminal(run: Run, environment: dict[str, str]) -> None:
    assert run("event", "create", "--type", "Reboot", "--resource", "web-0").exit_code == 0

    code, seen = on_terminal(environment, "event", "list", NO_COLOR="1")

    assert code == 0
    assert "Reboot" in seen
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in seen.splitlines()) <= 80
    assert not COLOUR.search(seen)


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("y\n", 0)])
def test_starting_without_notice_is_asked_for(
    run: Run, environment: dict[str, str], typed: str, code: int
) -> None:
    order = ("event", "create", "--type", "Reboot", "--resource", "web-0", "--started")

    ended, seen = on_terminal(environment, *order, typed=typed)

    assert ended == code
    assert "Start Reboot of web-0 without notice? [y/N]" in seen
    assert ("Started" in run("event", "list").stdout) == (code == 0)


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("y\n", 0)])
@pytest.mark.parametrize(
    ("order", "question"),
    [
        ("vm remove solo", "Take solo out of the fleet? [y/N]"),
        (
            "fleet apply less.toml --prune",
            "Remove every virtual machine that less.toml leaves out?",
        ),
    ],
    ids=["vm-remove", "fleet-apply"],
)
def test_removing_is_asked_for(
    run: Run, environment: dict[str, str], order: str, question: str, typed: str, code: int
) -> None:
    assert run("vm", "list").exit_code == 0
    Path("less.toml").write_text('[[virtual_machine]]\nname = "other"\n')

    ended, seen = on_terminal(environment, *order.split(), typed=typed)

    assert ended == code
    assert question in seen
    assert ("solo" in run("vm", "list").stdout) == (code != 0)


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_removing_is_not_asked_for_with(run: Run, environment: dict[str, str], flag: str) -> None:
    assert run("vm", "list").exit_code == 0

    ended, seen = on_terminal(environment, "vm", "remove", "solo", flag)

    assert (ended, "[y/N]" in seen) == (0, False)
    assert ("solo" in run("vm", "list").stdout) == (flag == "--dry-run")


def test_times_are_told_from_the_servers_clock(run: Run, environment: dict[str, str]) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")
    run("clock", "advance", "1m")
    first = "00000000-0000-4000-8000-000000000003"

    _, listed = on_terminal(environment, "event", "list", NO_COLOR="1")
    _, one = on_terminal(environment, "event", "show", first)
    _, absolute = on_terminal(environment, "event", "show", first, "--utc")

    assert "in 14 min" in " ".join(listed.split())
    assert "not before:     2026-01-05 08:15:00Z (in 14 min)" in one
    assert "created:        2026-01-05 08:00:00Z (60 s ago)" in one
    assert "min" not in absolute
