"""What tutorials say is taken by the programs it is for; `make lab` goes through all of it.

Also how that compares what is printed with what a page shows.
"""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_help import helped
from tests.lab.tutorials import Saved, Typed, compare, read_tutorial, say_with

from forewarn.settings_table import SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorials/an-afternoon-with-a-kvm-host.md").read_text("utf-8")
STEPS = [*read_tutorial(PAGE)]
COMMANDS = sorted(
    {
        step.command.partition(" > ")[0]
        for step in STEPS
        if isinstance(step, Typed) and step.command.startswith("forewarn ")
    }
)
FILES: dict[str, Any] = {
    step.path: tomllib.loads(step.text) for step in STEPS if isinstance(step, Saved)
}
SHOWN = ("EVENT ID  ENDED", "602D9444  5 s ago", "...", "event: 602D9444-D2CD-49C7-8624-…")
PRINTED = "EVENT ID    ENDED\nABCD0123    12 min ago\nand more\nevent: ABCD0123-D2CD-49C7-8624-0\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command: str) -> None:
    _, *words = shlex.split(command)
    verbs = words[: 1 if words[0] in {"serve", "doctor"} else 2]

    known = helped(*verbs)

    assert all(f"{option} " in known for option in words if option.startswith("--"))


def test_settings_exist() -> None:
    assert {*FILES["forewarn.toml"]} <= {*SETTINGS}


def test_machines_are_those_that_the_page_names() -> None:
    machines = {step.machine for step in STEPS}

    assert machines == {"kvm-1", "web-1", "web-2"}
    assert all(f"`{name}`" in PAGE for name in machines)


def test_ids_that_are_printed_are_typed_where_the_page_has_others() -> None:
    ids = compare(SHOWN[:2], PRINTED, {})

    assert say_with(ids, "forewarn event show 602D9444") == "forewarn event show ABCD0123"
    assert say_with(ids, "kill 4711") == "kill 4711"


@pytest.mark.parametrize(
    ("shown", "ids"),
    [
        pytest.param(("EVENT ID  STATUS",), {}, id="another line"),
        pytest.param((SHOWN[1], SHOWN[0]), {}, id="another order"),
        pytest.param(SHOWN[:2], {"602D9444": "11111111"}, id="another id than before"),
        pytest.param(SHOWN[:2], {"11111111": "ABCD0123"}, id="the same id as another"),
    ],
)
def test_output_that_differs_from_the_page_is_found(
    shown: tuple[str, ...], ids: dict[str, str]
) -> None:
    with pytest.raises(AssertionError, match="the page"):
        compare(shown, PRINTED, ids)


def test_lines_and_ends_of_lines_may_be_left_out() -> None:
    assert compare(SHOWN, PRINTED, {}) == {"602D9444": "ABCD0123"}


def test_prompt_is_needed_at_the_beginning_of_a_block() -> None:
    with pytest.raises(AssertionError, match="prompt"):
        list(read_tutorial("```console\n$ ls\n```\n"))


def test_page_has_to_say_where_a_file_is_saved() -> None:
    with pytest.raises(AssertionError, match="where to save"):
        list(read_tutorial("```toml\na = 1\n```\n"))


def test_numbers_of_processes_are_ids() -> None:
    ids = compare(("stop it with: kill 17081",), "  stop it with: kill 5", {})

    assert re.fullmatch("kill 5", say_with(ids, "kill 17081"))
