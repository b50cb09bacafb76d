"""The programs of contrib as forewarn runs them: processes with an environment."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.conftest import environment, forks, make_server
from tests.e2e.test_tls import Pair, make_pair_in
from tests.needs import need

__all__ = ["environment", "forks", "make_server", "pair"]

CONTRIB = Path(__file__).parents[2] / "contrib"
PROGRAM_SECONDS = 45.0
FAST = ("--pause", "0.05", "--request-timeout", "10", "--wait", "20")


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    printed: str
    said: str
    """What it printed on standard error."""

    @property
    def last_line(self) -> str:
        """The line that forewarn shows."""
        lines = f"{self.printed}{self.said}".splitlines()
        return lines[-2] if lines[-1].startswith("host=") else lines[-1]

    @property
    def host(self) -> str:
        """Where the machine is now, if the last line says so."""
        last = f"{self.printed}{self.said}".splitlines()[-1]
        return last.removeprefix("host=") if last.startswith("host=") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of contrib with the arguments of an executor file."""

    path: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-B", str(self.path), *self.arguments, *arguments],
            env={"PATH": os.defpath, **self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # as forewarn does
        )

    def run(self, *arguments: str, **variables: str) -> Ended:
        with self.start(*arguments, **variables) as process:
            try:
                printed, said = process.communicate(timeout=PROGRAM_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ended(process.returncode, printed, said)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Return a certificate of 127.0.0.1, and its key."""
    need("openssl")
    folder = tmp_path / "certificate"
    folder.mkdir()
    return make_pair_in(folder)
