"""What a command costs before it does anything: it imports only what it needs."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.cli.test_help import commands
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.catalogue import COMMANDS
from forewarn.commit import version_with_commit
from forewarn.environment import environment_with

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
TIMEOUT = 45
SLACK = 10
"""How many times as much as its target a command may cost on a busy machine."""
HEAVY = (
    "alembic",
    "asyncio",
    "fastapi",
    "forewarn.domain.event",
    "forewarn.domain.topology",
    "forewarn.domain.windows",
    "forewarn.settings",
    "httpx2",
    "pydantic",
    "pydantic_settings",
    "rich",
    "sqlalchemy",
    "structlog",
    "tomllib",
    "uvicorn",
    "yaml",
    "zoneinfo",
)
LISTED = {f"forewarn.cli.{each.module or name}" for name, each in COMMANDS.items()}
ASKING = ("http.client", "ssl")
"""What only a command that asks a server needs."""
COMPLETING = {
    "_FOREWARN_COMPLETE": "complete_bash",
    "COMP_WORDS": "forewarn event po",
    "COMP_CWORD": "2",
}
WATCHED = """
import sys
from forewarn.cli import main
try:
    main()
finally:
    print("imported", *sys.modules)
"""

EVERY_HELP = """
import sys
from contextlib import suppress
from forewarn.cli.app import app
for arguments in sys.argv[1:]:
    with suppress(SystemExit):
        app(arguments.split(), prog_name="forewarn")
print("imported", *sys.modules)
"""


def imported(arguments: str, **variables: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments.split()],
        env=environment_with(variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return set(done.stdout.splitlines()[-1].split())


def cpu_seconds(arguments: str, environment: Mapping[str, str]) -> float:
    process = os.posix_spawn(
        FOREWARN,
        [str(FOREWARN), *arguments.split()],
        environment_with(environment),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("arguments", ["--version", "version", "--help", "event list --help"])
def test_help_and_version_import_nothing_heavy(arguments: str) -> None:
    modules = imported(arguments)

    assert modules.isdisjoint({*HEAVY, *ASKING})
    assert "forewarn.cli.app" in modules


def test_help_of_no_command_imports_anything_heavy() -> None:
    """All in one process, which has loaded every command in the end."""
    shown = [" ".join([*path, "-h"]) for path in commands()]
    done = subprocess.run(
        [sys.executable, "-c", EVERY_HELP, *shown],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    *_, seen = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert set(seen.split()) >= LISTED
    assert set(seen.split()).isdisjoint({*HEAVY, *ASKING})


def test_help_imports_no_command() -> None:
    assert imported("--help") & LISTED == {"forewarn.cli.version"}


def test_completion_of_verbs_imports_nothing_heavy() -> None:
    assert imported("", **COMPLETING).isdisjoint({*HEAVY, *ASKING})


@pytest.mark.parametrize(
    "arguments",
    ["event list", "vm show web-0", "maintenance list", "token list", "scenario list", "audit"],
)
def test_question_to_the_server_imports_only_what_asks_it(arguments: str) -> None:
    modules = imported(arguments, FOREWARN_SERVER="127.0.0.1:9")

    assert modules.isdisjoint(HEAVY)
    assert "http.client" in modules


@pytest.mark.parametrize(
    ("arguments", "variables", "target"),
    [
        ("--version", {}, 0.15),
        ("--help", {}, 0.15),
        ("", COMPLETING, 0.15),
        ("vm list", {}, 0.25),
    ],
)
def test_command_costs_little(
    run: Run,
    environment: dict[str, str],
    arguments: str,
    variables: dict[str, str],
    target: float,
) -> None:
    assert run("vm", "list").exit_code == 0

    assert cpu_seconds(arguments, {**environment, **variables}) < SLACK * target


@pytest.mark.parametrize("name", COMMANDS)
def test_catalogue_says_of_a_command_what_its_help_says(name: str) -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.commands[name]

    assert isinstance(command, TyperGroup) == COMMANDS[name].is_noun
    if name != "demo":  # its help says more
        assert command.get_short_help_str(100) == COMMANDS[name].summary


def test_every_command_is_helped_by_h_too() -> None:
    short, long = (CliRunner().invoke(app, ["event", "list", flag]) for flag in ("-h", "--help"))

    assert (short.exit_code, short.stdout) == (0, long.stdout)


@pytest.mark.parametrize(
    "command",
    [("forewarn", "version"), ("forewarn", "--version"), ("python", "-m", "forewarn", "version")],
)
def test_version_is_told_however_it_is_asked(command: tuple[str, ...]) -> None:
    program, *arguments = command
    path = Path(sys.executable).with_name(program)
    told = subprocess.check_output([path, *arguments], text=True, timeout=TIMEOUT)

    assert told == f"forewarn {version_with_commit()}\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("evnt list", "Did you mean 'event'?"),
        ("event lst", "Did you mean 'list'?"),
        ("restart web-0", "Did you mean 'vm restart'?"),
        ("approve X", "Did you mean 'event approve'?"),
    ],
)
def test_unknown_command_is_told_what_may_be_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(app, typed.split())

    assert result.exit_code == 2
    assert meant in result.stderr


@pytest.mark.parametrize("columns", [60, 110])
def test_help_is_as_wide_as_the_terminal(columns: int) -> None:
    told = subprocess.check_output(
        [FOREWARN, "event", "create", "-h"],
        env=environment_with({"COLUMNS": str(columns)}),
        text=True,
        timeout=TIMEOUT,
    )

    assert columns - 20 < max(map(len, told.splitlines())) <= columns
