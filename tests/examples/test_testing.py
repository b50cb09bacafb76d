"""The folder that newcomers copy: its tests pass, and its programs find 169.254.169.254."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.docs.blocks import Block

ROOT = Path(__file__).parents[2]
TESTING = ROOT / "examples" / "testing"
SECONDS = 120
OURS = {"forewarn", "xdist"}
WITHOUT_OTHERS = " ".join(
    f"-p no:{plugin.name}" for plugin in entry_points(group="pytest11") if plugin.name not in OURS
)
"""Plugins that newcomers do not have, and that take half of the time of a start."""


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not here; run scripts/test_needs.sh as root")


def need_namespaces() -> None:
    probe = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--user", "--net"]
    if subprocess.run([*probe, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets us make no network namespace")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the folder in a checkout, as its README has it made."""
    need("curl", "jq", "node")
    folder = tmp_path / "first-steps"
    shutil.copytree(TESTING, folder, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return folder


def run(command: str, folder: Path) -> str:
    """Return all that *command* prints, as in a shell in which forewarn was installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTEST_ADDOPTS": WITHOUT_OTHERS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout


def test_tests_of_the_examples_pass(copy: Path) -> None:
    printed = run("pytest -q -W error", copy)

    assert re.search(r"^12 passed", printed, re.MULTILINE), printed


def test_built_in_address_is_ours_in_a_namespace(blocks: list[Block]) -> None:
    need("curl", "jq", "unshare")
    need_namespaces()

    for block in blocks:
        follow(block.page.parent, block.text)


def follow(folder: Path, text: str) -> None:
    """Run the command of a block, and compare all that is shown with what it prints."""
    command, *shown = text.splitlines()
    assert command.startswith("$ "), command

    printed = run(command.removeprefix("$ "), folder)

    lines = iter(timeless(printed).splitlines())
    for line in shown:
        assert line == "..." or timeless(line) in lines, f"{line!r} is not in:\n{printed}"


def timeless(text: str) -> str:
    """Return *text* without what differs from run to run: ids, dates, durations and numbers."""
    text = re.sub(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    text = re.sub(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "DATE", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"\d+\.\d+ s\b", "TIME", text)
    text = re.sub(r"\d+ POSTs", "N POSTs", text)
    return re.sub(r" in \d+\.\d\ds\b.*", " in TIME", text)
