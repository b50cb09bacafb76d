"""The wheel of this checkout, and environments to install it in."""

import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.environment import environment_with

ROOT = Path(__file__).parents[1]


def uv(*arguments: str) -> str:
    """Run uv in the checkout, the one beside us or the one in PATH; return what it prints."""
    beside_us = Path(sys.executable).with_name("uv")
    command = str(beside_us) if beside_us.exists() else "uv"
    done = subprocess.run(
        [command, *arguments], check=False, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode and "Request failed" in done.stderr:
        pytest.skip("the package index does not answer; uv has nothing to install from")
    sys.stderr.write(done.stderr)
    done.check_returncode()
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel into *folder*, with the build tools that are pinned."""
    constraints = "requirements/build.txt"
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), "--build-constraints", constraints)
    (built,) = folder.glob("forewarn-*.whl")
    return built


class Environment:
    """A virtual environment with nothing but our wheel in it."""

    def __init__(self, home: Path, wheel: Path, python: str = sys.executable) -> None:
        uv("venv", "--quiet", "--python", python, str(home))
        self.bin = home / ("Scripts" if sys.platform == "win32" else "bin")
        self.python = self.bin / "python"
        self.install("--no-deps", str(wheel))

    def install(self, *what: str) -> None:
        """Install *what*; it is compiled where it is used, which is less of it."""
        uv("pip", "install", "--quiet", "--python", str(self.python), *what)

    def packages(self) -> list[str]:
        """Return what is installed, each as NAME==VERSION."""
        return uv("pip", "freeze", "--python", str(self.python)).splitlines()

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment."""
        command = (str(self.bin / command[0]), *command[1:])
        # What is compiled once is not compiled by each process.
        variables = environment_with({"PYTHONDONTWRITEBYTECODE": ""})
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env=variables
        )
