"""Help fits a screen, names no type of Python, and every command has an example."""

import re
from collections.abc import Iterator

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from forewarn.cli.app import app

NOUNS = {
    "fleet",
    "vm",
    "event",
    "maintenance",
    "schedule",
    "scenario",
    "clock",
    "db",
    "fault",
    "emulator",
    "conformance",
    "token",
    "notification",
    "gate",
    "config",
}
VERBS = {
    "fleet": {"apply", "export", "import", "show", "sources"},
    "vm": {"add", "list", "show", "move", "set", "remove", "restart", "redeploy"},
    "scope": {"show", "set"},
    "host": {"list", "show", "set", "setup", "work", "close", "open", "remove"},
    "event": {
        "create", "list", "show", "approve", "postpone", "start", "complete", "cancel", "history",
        "explain", "watch", "seen",
    },
    "maintenance": {
        "plan", "start", "status", "explain", "list", "pause", "resume", "retry", "complete",
        "fail", "skip", "set", "wait", "watch", "abort",
    },
    "task": {"list", "settle"},
    "replica": {"list", "hand-over", "forget"},
    "schedule": {"create", "list", "show", "next", "set", "pause", "resume", "remove"},
    "scenario": {"list", "run", "status", "stop", "record", "replay"},
    "fault": {"set", "kinds", "list", "clear"},
    "clock": {"show", "advance"},
    "token": {"create", "list", "renew-admin", "revoke"},
    "notification": {"list", "targets", "test", "retry"},
    "gate": {"list", "test"},
    "db": {"backup", "check", "copy", "mark-restored", "restore", "size", "upgrade"},
    "emulator": {"requests", "run"},
    "conformance": {"list", "run"},
    "config": {"show"},
}  # fmt: skip


def commands() -> Iterator[tuple[str, ...]]:
    yield ("demo",)
    yield ("serve",)
    yield ("relay",)
    yield ("open",)
    yield ("audit",)
    yield ("calendar",)
    yield ("completion",)
    yield ("version",)
    yield ("doctor",)
    yield ("status",)
    yield ("pause",)
    yield ("resume",)
    for noun, verbs in VERBS.items():
        yield from ((noun, verb) for verb in sorted(verbs))


def helped(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.stdout


def test_help_fits_one_screen() -> None:
    lines = helped().splitlines()

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_what_tests_need_stands_together() -> None:
    _, _, listed = helped().partition("To test a workload:\n")

    rows = listed.partition("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == [
        "emulator",
        "conformance",
        "scenario",
        "clock",
        "fault",
    ]


@pytest.mark.parametrize("noun", VERBS)
def test_noun_has_its_verbs(noun: str) -> None:
    group = vars(get_command(app))["commands"][noun]

    assert set(vars(group)["commands"]) == VERBS[noun]


@pytest.mark.parametrize("command", tuple(commands()), ids=" ".join)
def test_every_command_has_an_example(command: tuple[str, ...]) -> None:
    assert f"Example: forewarn {' '.join(command)}" in helped(*command)


@pytest.mark.parametrize("noun", VERBS)
def test_no_summary_is_cut_off(noun: str) -> None:
    summaries = helped(noun).partition("Commands:")[2]

    assert "..." not in summaries


@pytest.mark.parametrize("command", tuple(commands()), ids=" ".join)
def test_values_have_names_instead_of_types(command: tuple[str, ...]) -> None:
    assert not re.search(r"<(str|int|float|path|list)\b", helped(*command))


def test_required_arguments_stand_in_the_usage_as_they_are() -> None:
    assert "[OPTIONS] NAME\n" in helped("vm", "restart")
    assert "[OPTIONS] ID [HOST|SCOPE]...\n" in helped("maintenance", "retry")
    assert "[OPTIONS] VM KIND\n" in helped("fault", "set")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option '--type'. Choose from: Freeze, Reboot, Redeploy, Preempt, Terminate"),
        (["--type", "Nap"], "'Nap' is not one of 'Freeze', 'Reboot', 'Redeploy', 'Preempt', "),
    ],
)
def test_choices_are_said_as_they_are_written(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["event", "create", "--resource", "web-0", *arguments])

    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
