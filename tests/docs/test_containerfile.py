"""The Containerfile, without building it: `make image` does that."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

from typer.testing import CliRunner

from forewarn.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text("utf-8")
LINES = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", " ")
STAGES = re.split(r"^FROM .*$", LINES, flags=re.MULTILINE)


def final_stage() -> dict[str, list[str]]:
    """Return the instructions of the last stage, each with its words; the last of each counts."""
    found = {}
    for line in filter(None, map(str.strip, STAGES[-1].splitlines())):
        name, _, rest = line.partition(" ")
        _, _, command = rest.partition("[") if name == "HEALTHCHECK" else ("", "", rest.lstrip("["))
        found[name] = json.loads(f"[{command}") if rest.endswith("]") else rest.split()
    return found


def test_last_stage_only_copies() -> None:
    assert "RUN" not in final_stage()
    assert "RUN" in STAGES[1]
    assert len(STAGES) == 3


def test_both_stages_have_the_same_base_which_can_be_named() -> None:
    assert re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.search(r"^ARG BASE=docker\.io/library/python:3\.\d+-slim$", TEXT, re.MULTILINE)


def test_image_does_not_run_as_root() -> None:
    (user,) = final_stage()["USER"]

    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert f"--chown={user}" in TEXT
    assert final_stage()["VOLUME"] == final_stage()["WORKDIR"]


def test_health_check_and_command_are_commands_of_ours() -> None:
    stage = final_stage()
    assert stage["ENTRYPOINT"] == ["forewarn"]

    for program, *words in (stage["HEALTHCHECK"], [*stage["ENTRYPOINT"], *stage["CMD"]]):
        assert program == "forewarn"
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def test_what_is_copied_is_there_and_not_ignored() -> None:
    kept = [
        line.removeprefix("!").rstrip("/")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    ]
    copied = re.findall(r"^COPY ((?!--)\S+(?: \S+)*) \S+$", TEXT, re.MULTILINE)
    names = [name for line in copied for name in line.split()]

    assert {"pyproject.toml", "src", "requirements/runtime.txt"} < set(names)
    for name in names:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, f"{each}*") for each in kept), name
