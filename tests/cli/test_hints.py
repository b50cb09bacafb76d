"""What errors tell to try next: commands and flags that there are."""

import ast
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.cli.golden_script import read_script
from typer.main import get_command

import forewarn
from forewarn.cli.app import app
from forewarn.cli.catalogue import COMMANDS
from forewarn.cli.errors import HINTS, hint_for
from forewarn.cli.output import OPTIONS
from forewarn.control.problems import STATUSES, problem_of
from forewarn.domain.access import ADMIN, TokenExpiredError, TokenRevokedError
from forewarn.protocol.errors import ForewarnError

SOURCE = Path(forewarn.__file__).parent
GOLDEN = Path(__file__).with_name("golden")
TOLD = re.compile(r"(?:[Tt]ry|with|for|run|[Ee]xample):? `?forewarn ([a-z][^`,;]+)")
COMMAND: Any = get_command(app)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text of `forewarn`, with where it is; what is filled in is X."""
    for path in sorted(set(SOURCE.rglob("*.py")) - set((SOURCE / "agent").iterdir())):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
                yield place, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value


def find(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that *words* begin with, and the rest of them."""
    command: Any = COMMAND
    rest = list(words)
    while known := commands_of(command):
        assert rest, f"{words} names no command"
        if rest[0].startswith("-") and COMMANDS[words[0]].usual_verb:
            rest.insert(0, COMMANDS[words[0]].usual_verb)
        assert rest[0] in known, f"there is no command {' '.join(words)}"
        command = known[rest.pop(0)]
    return command, rest


@cache
def commands_of(command: Any) -> dict[str, Any]:
    """Return the commands of a group; a lazy one makes them at each look."""
    return dict(getattr(command, "commands", {}))


def flags_of(command: Any) -> set[str]:
    return {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {
        "--help"
    }


@cache
def every_flag() -> set[str]:
    def walk(command: Any) -> Iterator[str]:
        yield from flags_of(command)
        for child in commands_of(command).values():
            yield from walk(child)

    return set(walk(COMMAND))


def test_command_that_is_told_exists_with_its_flags() -> None:
    seen = 0
    for place, text in texts():
        for told in TOLD.finditer(text):
            command, rest = find(told[1].split("\n")[0].split())
            assert set(FLAG.findall(" ".join(rest))) <= flags_of(command), place
            seen += 1
    assert seen > 80


@pytest.mark.parametrize("kind", HINTS)
def test_flag_in_a_hint_exists_somewhere(kind: str) -> None:
    assert set(FLAG.findall(HINTS[kind])) <= every_flag()


def test_every_option_of_a_field_exists_somewhere() -> None:
    assert set(FLAG.findall(" ".join(OPTIONS.values()))) <= every_flag()


def test_log_event_in_a_hint_is_logged_by_the_server() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    named = set(re.findall(r"\bsee (\w+) in the server.s log", sources))

    assert named >= {"database_not_writable", "lease_lost", "loop_failed"}
    assert [name for name in named if f'("{name}", ' not in sources] == []


def test_every_hint_is_of_a_problem_there_is() -> None:
    def kinds(error: type[ForewarnError]) -> Iterator[str]:
        name = error.__name__.removesuffix("Error")
        yield re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
        for child in error.__subclasses__():
            yield from kinds(child)

    assert STATUSES, "the errors have been imported"
    assert HINTS.keys() <= set(kinds(ForewarnError))


@pytest.mark.parametrize("error", [TokenExpiredError, TokenRevokedError])
def test_admin_is_not_told_to_ask_an_admin(error: Callable[[str, datetime], ForewarnError]) -> None:
    problems = {name: problem_of(error(name, NOON)) for name in (ADMIN, "deploy")}

    hints = {name: hint_for(each.kind, each.members) for name, each in problems.items()}

    assert hints[ADMIN].startswith("try: forewarn token renew-admin")
    assert hints["deploy"].startswith("ask an admin for: ")


@pytest.mark.parametrize("script", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_hint_without_a_command_is_about_the_one_that_failed(script: Path) -> None:
    for line, hint in hints_of(script.read_text(encoding="utf-8")):
        command, _ = find(line)
        if "forewarn " not in hint:
            assert set(FLAG.findall(hint)) <= flags_of(command), f"{' '.join(line)}: {hint}"


def hints_of(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield each command that failed with a hint, and the hint."""
    said = re.split(r"^(?=\$ )", text, flags=re.MULTILINE)[1:]
    for step, block in zip(read_script(text), said, strict=True):
        for hint in re.findall(r"^!   (.+)$", block, flags=re.MULTILINE):
            yield step.arguments, hint
