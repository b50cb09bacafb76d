"""What every command has in common when it prints: relative times, YAML, and hints."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from typer.testing import Result

import forewarn.control.app  # noqa: F401 - with the errors of all that it can do
from forewarn.cli.errors import HINTS
from forewarn.cli.output import Output, ShownMoment, print_one_of_many
from forewarn.control.problems import problem_of, refusals
from forewarn.protocol.errors import ForewarnError

Run = Callable[..., Result]
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)

SAYS_ENOUGH = {
    "access": "its kinds have hints",
    "not-leading": "it says to try again",
    "no-answer": "it says that the server is stopping",
    "origin-refused": "only browsers are told so",
    "busy": "it says to try again",
    "stream-limit": "it says to close one",
    "sign-in-links": "it says to use one, or to wait",
    "form": "only the console says so",
    "unknown-fetched-task": "only hosts that fetch their work are told so",
    "taking-refused": "only hosts that fetch their work are told so",
    "not-taken": "only hosts that fetch their work are told so",
    "owner-replaced": "only servers that carry out tasks are told so",
    "owner-forgotten": "only servers that carry out tasks are told so",
    "other-host": "only hosts that fetch their work are told so",
    "plan-changed": "only the console says so",
    "unknown-page": "only the console says so",
    "topology": "it is about a file or a flag, and named",
    "fleet": "it is about a file, with the line",
    "scenario": "it is about a file, with the line",
    "duration": "it says what to write",
    "journal": "it names the option",
    "fault": "it says what the fault needs",
    "user-operation": "its kinds have hints",
    "calendar": "its kinds say what to write",
    "holidays": "it is about a file, and says what is wrong with it",
    "shared-operation": "it names the option",
    "idempotency-key-not-taken": "no command sends one there",
    "idempotency-key-reused": "every command makes a new one",
    "api-version": "no command asks there",
    "resource-type": "no command asks there",
    "unknown-resource": "no command asks there",
}
"""The kinds of problems that need no hint, and why."""


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (timedelta(), "0 s ago"),
        (timedelta(seconds=1), "in 1 s"),
        (timedelta(seconds=-119), "119 s ago"),
        (timedelta(minutes=14, seconds=59), "in 14 min"),
        (timedelta(minutes=-3), "3 min ago"),
        (timedelta(hours=2), "in 2 h"),
        (timedelta(hours=47), "in 47 h"),
        (timedelta(days=-30), "30 d ago"),
    ],
)
def test_moment_is_told_from_now(distance: timedelta, text: str) -> None:
    assert ShownMoment(NOW + distance).seen_from(NOW) == text


@pytest.mark.parametrize("command", ["event show", "event explain", "event history", "audit"])
def test_words_of_others_are_printed_without_line_breaks_and_escape_sequences(
    run: Run, command: str
) -> None:
    words = "\x1b]0;gone\x07\r\u202eforged\nline"
    event = "00000000-0000-4000-8000-000000000003"
    order = ("--type", "Reboot", "--resource", "solo", "--description", words)
    assert run("event", "create", *order).exit_code == 0
    run("event", "cancel", event, "--reason", words)
    run("token", "revoke", words)

    printed = run(*command.split(), *([event] if command.endswith(("show", "explain")) else []))

    assert printed.exit_code == 0
    assert all(letter.isprintable() for letter in printed.stdout.replace("\n", ""))
    assert "\nline" not in printed.stdout


@pytest.mark.parametrize("command", ["event show", "event explain", "event history"])
def test_words_of_others_are_printed_as_they_wrote_them(run: Run, command: str) -> None:
    words = "used `operation: true` by mistake"
    event = "00000000-0000-4000-8000-000000000003"
    run("event", "create", "--type", "Reboot", "--resource", "solo")
    run("event", "cancel", event, "--reason", words)

    printed = run(*command.split(), *([event] if command != "event history" else []))

    assert words in printed.stdout


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_answers_that_come_one_by_one_have_no_raw_control_character(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    print_one_of_many({"detail": "a\x7fb\x9bc\x1bd"}, output, lambda _: None)

    assert capsys.readouterr().out.replace("\n", "").isprintable()


@pytest.mark.parametrize("command", ["vm list", "fleet show", "clock show", "scenario list"])
def test_yaml_says_what_json_says(run: Run, command: str) -> None:
    printed = run(*command.split(), "-o", "yaml").stdout

    assert not printed.startswith("{")
    assert yaml.safe_load(printed) == json.loads(run(*command.split(), "-o", "json").stdout)


def kinds() -> Iterator[str]:
    for error in refusals():
        yield problem_of(error.__new__(error)).kind


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_problem_has_a_hint_or_needs_none(kind: str) -> None:
    assert (kind in HINTS) != (kind in SAYS_ENOUGH)


def test_no_hint_is_for_a_problem_there_is_not() -> None:
    assert set(HINTS) <= {problem_of(error.__new__(error)).kind for error in family(ForewarnError)}


def family(error: type[ForewarnError]) -> Iterator[type[ForewarnError]]:
    yield error
    for child in error.__subclasses__():
        yield from family(child)
