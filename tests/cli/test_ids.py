"""Ids are shown short on a terminal, and any beginning that is of one id is taken."""

import json
from collections.abc import Callable

import pytest
from tests.cli.test_terminal import on_terminal
from typer.testing import Result

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
    assert line.startswith("forewarn: '0' is the beginning of ")
    assert first in line
    assert second in line
    assert hint == "  type more of the id"
    assert json.loads(run("event", "show", first, "-o", "json").stdout)["event_status"] == (
        "Scheduled"
    )


def test_beginning_of_no_id_is_unknown(run: Run) -> None:
    result = run("event", "show", "dead")

    assert result.exit_code == 3
    assert result.stderr.startswith("forewarn: There is no event DEAD.")
