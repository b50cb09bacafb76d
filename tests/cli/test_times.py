"""One grammar of durations and times: every option that takes one takes the same forms."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cli.test_help import commands
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.times import DURATION, TIME

Run = Callable[..., Result]
REFUSED = {
    DURATION: "Invalid duration 'soon'; use 30s, 15m, 2h.",
    TIME: "'soon' is not a valid time; use 20m, 22:00 or 2026-01-05T08:15:00Z.",
}
FORMS = (": 20m, 22:00 (GMT) or a time.", ": 2h (ago), 22:00 (GMT) or a time.")
SOUND_LIKE_TIMES = {
    "--after", "--at", "--before", "--delay", "--duration", "--every", "--expires", "--interval",
    "--not-before", "--overdue-after", "--patience", "--retry-after", "--seconds", "--since",
    "--soak", "--timeout", "--until",
}  # fmt: skip
NEITHER = {
    "event watch --after": "a line",
    "fault set --retry-after": "the number in a header",
    "fault set --seconds": "a number whose unit is its name; it may be a fraction",
    "schedule create --every": "days",
    "schedule create --until": "a day",
    "schedule set --every": "days",
    "schedule set --until": "a day",
}
WHOLE = get_command(app)


def parameters() -> Iterator[tuple[tuple[str, ...], Any]]:
    for path in commands():
        command: Any = WHOLE
        for name in path:
            assert isinstance(command, TyperGroup)
            command = command.commands[name]
        for parameter in command.params:
            yield path, parameter


def typed(path: tuple[str, ...], parameter: Any, text: str) -> list[str]:
    options = [option for option in parameter.opts if option.startswith("--")]
    return [*path, *options[:1], text]


TYPED = [(path, each) for path, each in parameters() if each.metavar in REFUSED]


def test_there_are_options_of_both_kinds() -> None:
    assert {each.metavar for _, each in TYPED} == {DURATION, TIME}


@pytest.mark.parametrize(
    ("path", "parameter"), TYPED, ids=[" ".join(typed(path, each, "")) for path, each in TYPED]
)
def test_every_duration_and_time_is_read_by_the_one_grammar(
    path: tuple[str, ...], parameter: Any
) -> None:
    result = CliRunner().invoke(app, typed(path, parameter, "soon"))

    assert result.exit_code == 2
    assert REFUSED[parameter.metavar] in " ".join(result.stderr.split())
    if parameter.metavar == TIME:
        assert parameter.help.endswith(FORMS)


def test_what_sounds_like_a_duration_or_a_time_is_one() -> None:
    others = {
        " ".join([*path, option])
        for path, parameter in parameters()
        for option in parameter.opts
        if parameter.metavar not in REFUSED
        and (option in SOUND_LIKE_TIMES or parameter.metavar == "S")
    }

    assert others == NEITHER.keys()


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1h30m", 5400)])
def test_duration_of_an_event_is_taken_in_every_form(run: Run, text: str, seconds: int) -> None:
    made = run(
        *("event", "create", "--type", "Reboot", "--resource", "solo", "-o", "json"),
        *("--duration", text),
    )

    assert json.loads(made.stdout)["events"][0]["duration_in_seconds"] == seconds


@pytest.mark.parametrize(
    ("text", "not_before"),
    [
        ("22:00", "2026-01-05T22:00:00Z"),
        ("07:00", "2026-01-06T07:00:00Z"),
        ("+2h", "2026-01-05T10:00:00Z"),
        ("2026-01-05T10:15:00+01:00", "2026-01-05T09:15:00Z"),
    ],
)
def test_not_before_takes_every_form_of_a_time(run: Run, text: str, not_before: str) -> None:
    made = run(
        *("event", "create", "--type", "Reboot", "--resource", "solo", "-o", "json"),
        *("--not-before", text),
    )

    assert json.loads(made.stdout)["events"][0]["not_before"] == not_before
