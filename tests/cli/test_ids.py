"""Ids are shown short on a terminal, and any beginning that is of one id is taken."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cli.test_broken_connections import answering
from tests.cli.test_terminal import on_terminal
from tests.cli.test_times import parameters
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.output import shorten_ids

Run = Callable[..., Result]
ONE = "602D9444-D2CD-49C7-8624-8643E7171297"
TWO = "602D9444-D2CD-51C7-8624-8643E7171297"
OTHER = "5C2BD0A4-6A50-4E4B-9B4F-3F4F0F6A3C11"


def announce(run: Run, name: str) -> str:
    begun = run("event", "create", "--type", "Reboot", "--resource", name, "-o", "json")
    event_id: str = json.loads(begun.stdout)["events"][0]["event_id"]
    return event_id


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ([ONE, OTHER], ["602D9444", "5C2BD0A4"]),
        ([ONE, ONE], ["602D9444", "602D9444"]),
        ([ONE, TWO], ["602D9444-D2CD-4", "602D9444-D2CD-5"]),
        (["web-0", f"{ONE} of web-0"], ["web-0", f"{ONE} of web-0"]),
    ],
)
def test_ids_are_as_short_as_tells_them_apart(ids: list[str], shown: list[str]) -> None:
    assert shorten_ids([(each, "Reboot") for each in ids]) == [(each, "Reboot") for each in shown]


def test_table_on_a_terminal_of_80_columns_has_short_ids(
    run: Run, environment: dict[str, str]
) -> None:
    event_id = announce(run, "web-0")

    code, seen = on_terminal(environment, "event", "list")

    assert code == 0
    assert event_id[:8] in seen
    assert event_id[:9] not in seen
    assert event_id in run("event", "list").stdout  # what scripts read is complete


def test_beginning_of_one_id_is_taken_in_any_case(run: Run) -> None:
    event_id = announce(run, "web-0")
    begun = run("maintenance", "start", "--type", "Freeze", "--vm", "solo", "-o", "json")
    maintenance_id = json.loads(begun.stdout)["maintenance_id"]

    shown = run("event", "show", event_id[:8].lower(), "-o", "json")
    paused = run("maintenance", "pause", maintenance_id[:8].upper(), "-o", "json")
    canceled = run("event", "cancel", event_id[:30], "-o", "json")

    assert json.loads(shown.stdout)["event_id"] == event_id
    assert json.loads(paused.stdout)["status"] == "paused"
    assert json.loads(canceled.stdout)["event_status"] == "Canceled"


def test_beginning_of_several_ids_is_refused_with_their_names(run: Run) -> None:
    first, second = announce(run, "web-0"), announce(run, "solo")

    result = run("event", "cancel", "0")

    line, hint = result.stderr.splitlines()
    assert result.exit_code == 2
    assert line.startswith("forewarn: '0' is ambiguous; it matches ")
    assert first in line
    assert second in line
    assert hint == "  type more characters of the id"
    assert json.loads(run("event", "show", first, "-o", "json").stdout)["event_status"] == (
        "Scheduled"
    )


def test_beginning_of_no_id_is_unknown(run: Run) -> None:
    result = run("event", "show", "dead")

    assert result.exit_code == 3
    assert result.stderr.startswith("forewarn: Unknown event DEAD.")


KEYS = {
    "event": ("events", "event_id"),
    "maintenance": ("maintenances", "maintenance_id"),
    "scenario": ("scenario-runs", "run_id"),
    "notification": ("notifications", "notification_id"),
    "task": ("maintenances", "maintenance_id"),
}
ALSO: dict[tuple[str, ...], tuple[str, ...]] = {
    ("event", "postpone"): ("--not-before", "1h"),
    ("event", "start"): ("--yes",),
    ("maintenance", "set"): ("--soak", "1m"),
    ("maintenance", "skip"): ("--yes",),
    ("maintenance", "abort"): ("--yes",),
    ("maintenance", "complete"): ("--yes",),
    ("maintenance", "fail"): ("--yes",),
    ("task", "settle"): ("--yes",),
}
BEHIND: dict[tuple[str, ...], tuple[str, ...]] = {
    ("maintenance", "complete"): ("kvm-1",),
    ("maintenance", "fail"): ("kvm-1",),
    ("task", "settle"): ("failed",),
}
"""What stands behind the id."""
IN_THE_BODY = {("task", "settle")}
UNKNOWN = (
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 31\r\n\r\n" + b'{"detail": "There is no such."}'
)


def commands_with_ids() -> Iterator[tuple[str, ...]]:
    for path, parameter in parameters():
        if parameter.metavar == "ID" and path != ("vm", "set"):  # that is a subscription's
            options = [option for option in parameter.opts if option.startswith("--")]
            yield (*path, *ALSO.get(path[:2], ()), *options)


def ask(command: tuple[str, ...], typed: str, *answers: object) -> tuple[Result, list[str]]:
    with answering(*answers) as (server, asked):
        result = CliRunner().invoke(
            app,
            [*command, typed, *BEHIND.get(command[:2], ())],
            env={"FOREWARN_SERVER": server, "FOREWARN_TOKEN": "x"},
        )
    return result, asked


def listing(command: tuple[str, ...], *ids: str) -> dict[str, Any]:
    noun, key = KEYS[command[0]]
    return {noun.replace("-", "_"): [{key: each} for each in ids]}


@pytest.mark.parametrize("command", tuple(commands_with_ids()), ids=" ".join)
def test_every_command_with_an_id_takes_its_beginning(command: tuple[str, ...]) -> None:
    several, _ = ask(command, "602d9444", listing(command, ONE, TWO))
    one, (_, asked) = ask(command, "5c2b", listing(command, ONE, OTHER), UNKNOWN)
    none, _ = ask(command, "dead", listing(command, *[ONE] * 1000))

    assert several.exit_code == 2
    assert several.stderr == (
        f"forewarn: '602d9444' is ambiguous; it matches {ONE}, {TWO}.\n  type more characters of "
        "the id\n"
    )
    assert one.exit_code == 3
    assert (OTHER in asked.partition("\r\n")[0]) is (command[:2] not in IN_THE_BODY)
    assert none.exit_code == 3
    assert none.stderr.startswith("forewarn: No id of the newest 1000 ")
    assert "type the full id" in none.stderr


@pytest.mark.parametrize("command", tuple(commands_with_ids()), ids=" ".join)
def test_whole_id_is_not_looked_up(command: tuple[str, ...]) -> None:
    result, (asked,) = ask(command, OTHER, UNKNOWN)

    assert result.exit_code == 3
    assert (OTHER in asked.partition("\r\n")[0]) is (command[:2] not in IN_THE_BODY)
