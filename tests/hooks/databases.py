"""PostgreSQL refuses to run as root, and its user cannot look into the folders of root."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hooks.conftest import PATH, need

USER = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C"}
SECONDS = 60


def find_binaries() -> Path:
    """Return where the programs of the server are."""
    need("psql", "runuser", "setpriv")
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if binaries is None:
        pytest.skip("there is no PostgreSQL server; run scripts/test_needs.sh as root")
    return binaries


@contextmanager
def make_folder() -> Generator[Path]:
    """Make a folder that belongs to the user."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    shutil.chown(folder, USER)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def as_user(*command: str) -> Sequence[str]:
    """Return *command* as that user runs it."""
    if os.geteuid() != 0:
        return command
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command)


def run(*command: str) -> str:
    """Run *command* as that user, and return what it prints."""
    done = subprocess.run(
        as_user(*command),
        cwd="/",
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
