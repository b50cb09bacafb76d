"""Grades every example that this machine can run in all situations. Only `make soak` runs this."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.test_one_filers import BUILDS, EXAMPLES
from tests.needs import need

from forewarn.conformance.situations import SITUATIONS

FOREWARN = Path(sys.executable).with_name("forewarn")
SECONDS = 1200.0
WITH_COMMAND = 'exec "$@" "$FOREWARN_CONFORMANCE_PREPARE"'
WITH_HOOKS = """\
HOOKS=$FOREWARN_CONFORMANCE_FOLDER/hooks
mkdir -p "$HOOKS"
ln -sf "$FOREWARN_CONFORMANCE_PREPARE" "$HOOKS/drain"
ln -sf "$FOREWARN_CONFORMANCE_RECOVER" "$HOOKS/restore"
export HOOKS
exec sh "$1"
"""


def expect_full_marks(*words: str | Path) -> None:
    command = (FOREWARN, "conformance", "run", "--output", "json", *words)
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, check=False)
    report = json.loads(done.stdout)

    failed = [
        (situation["situation"], result["grade"], result["reason"], situation["last_lines"])
        for situation in report["situations"]
        for result in situation["results"]
        if result["outcome"] == "failed"
    ]
    assert failed == []
    assert (report["score"], done.returncode) == (100, 0)
    assert len(report["situations"]) == len(SITUATIONS)


@pytest.mark.parametrize("name", BUILDS)
def test_example_has_full_marks(name: str, tmp_path: Path) -> None:
    program = BUILDS[name](tmp_path)

    expect_full_marks("--without", "recover", "--", "sh", "-c", WITH_COMMAND, "sh", *program)


def test_tested_shell_handler_has_full_marks() -> None:
    need("curl", "jq")

    expect_full_marks("--", "sh", "-c", WITH_HOOKS, "sh", EXAMPLES / "testing" / "handler.sh")


def test_tested_node_handler_has_full_marks() -> None:
    need("node")
    handler = ("env", "PORT=0", "DRAIN_SECONDS=1", "node", EXAMPLES / "testing" / "handler.mjs")

    expect_full_marks("--without", "prepare", "--without", "recover", "--", *handler)
