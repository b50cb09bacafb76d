"""Nothing that is printed, logged or put into a calendar has a raw control character in it."""

import ast
import io
import json
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st

import forewarn
from forewarn.cli import output
from forewarn.files.fleet import write_fleet_file
from forewarn.protocol.controls import escape_controls, printable, without_controls
from forewarn.telemetry.logs import configure_logging

CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
WORDS = st.text(st.one_of(st.sampled_from(CONTROLS), st.characters(codec="utf-8")))
ROWS = st.fixed_dictionaries(
    {
        "name": WORDS,
        "reason": WORDS,
        "description": WORDS,
        "labels": st.dictionaries(WORDS, WORDS, max_size=3),
        "resources": st.lists(WORDS, max_size=3),
    }
)
COLUMNS: output.Columns = {
    name.upper(): name for name in ("name", "reason", "description", "labels", "resources")
}
PRINTERS: dict[str, Callable[[output.Row], None]] = {
    "table": lambda row: output.print_table([row], COLUMNS),
    "fields": lambda row: output.print_fields({"id": "x", **row}, {"ID": "id", **COLUMNS}),
    "line": lambda row: output.print_line(row["reason"]),
    "text": lambda row: output.print_text(row["description"]),
    "json": output.print_json,
    "one of many": lambda row: output.print_one_of_many(row, output.Output.JSON, print),
    "yaml": output.print_yaml,
}
SPEAKERS = {
    "cli/output.py": "the one place",
    "cli/__init__.py": "says what to install, without the rest",
    "cli/version.py": "prints the version",
    "cli/completion.py": "prints the script of a shell",
    "cli/demonstration/audience.py": "prints what is printable",
    "agent/startup.py": "says which setting is wrong",
    "agent/check.py": "prints what is printable",
    "agent/command.py": "prints the version",
}


def printed(print_it: Callable[[output.Row], None], row: output.Row) -> str:
    with redirect_stdout(io.StringIO()) as said:
        print_it(row)
    return said.getvalue()


def controls_in(text: str) -> set[str]:
    return set(CONTROLS) & set(text) - {"\n", "\t"}


@pytest.mark.parametrize("print_it", PRINTERS.values(), ids=PRINTERS)
@given(row=ROWS)
def test_nothing_printed_has_control_characters(
    print_it: Callable[[output.Row], None], row: output.Row
) -> None:
    assert controls_in(printed(print_it, row).replace("\r\n", "")) == set()


@given(row=ROWS)
def test_programs_still_read_what_was_meant(row: output.Row) -> None:
    assert json.loads(printed(output.print_json, row)) == row
    assert yaml.safe_load(printed(output.print_yaml, row)) == row


@given(words=WORDS.filter(lambda words: "\r" not in words))
def test_fleet_file_still_says_what_was_meant(words: str) -> None:
    fleet = {"host": [{"name": "kvm-1", "labels": {"note": words}}]}

    text = escape_controls(write_fleet_file(fleet))

    assert controls_in(text) == set()
    assert tomllib.loads(text) == fleet


@given(words=WORDS)
def test_text_keeps_its_lines_and_nothing_that_a_terminal_obeys(words: str) -> None:
    kept = without_controls(words)

    assert controls_in(kept.replace("\r\n", "")) == set()
    assert kept.count("\n") == words.count("\n")
    assert printable(words).isprintable()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_log_lines_have_no_control_characters(log_format: str) -> None:
    with redirect_stderr(io.StringIO()) as said:
        configure_logging(log_format, "info")
        structlog.get_logger().info("refused", who="".join(CONTROLS), of="a\x9bb\x7f")
    structlog.reset_defaults()

    assert controls_in(said.getvalue()) == set()
    assert "refused" in said.getvalue()


def test_only_output_prints() -> None:
    package = Path(forewarn.__file__).parent
    found = {
        str(path.relative_to(package))
        for folder in ("cli", "agent")
        for path in (package / folder).rglob("*.py")
        if any(map(speaks, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }

    assert found <= SPEAKERS.keys()


def speaks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func) in {"print", "typer.echo", "typer.secho", "sys.stdout.write"}
