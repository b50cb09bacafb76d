"""Containers of localhost/forewarn, run by podman, and gone after each test."""

import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.conftest import START_SECONDS, wait_until

from forewarn.environment import environment_with

IMAGE: Final = "localhost/forewarn"
# Works also where systemd does not run, and for who may not raise limits.
CONFIGURATION: Final = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=1024:1024"]

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"

[network]
network_backend = "netavark"
"""


def await_so(is_so: Callable[[], bool], reason: str) -> None:
    """Return when *is_so*, which takes a command to find out."""
    wait_until(is_so, reason, START_SECONDS, pause=0.2)


@dataclass(frozen=True, slots=True)
class Podman:
    """Runs podman and what uses it."""

    environment: dict[str, str]

    def __call__(self, *arguments: str) -> str:
        """Return what podman prints; it may not fail."""
        done = self.attempt("podman", *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def attempt(
        self, *command: str, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* with *more* in its environment, whatever comes of it."""
        return subprocess.run(
            command,
            cwd=cwd,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def is_healthy(self, container: str) -> bool:
        """Tell what the health check of the image says."""
        return self.attempt("podman", "healthcheck", "run", container).returncode == 0

    def await_health(self, container: str) -> None:
        """Return when *container* serves polls."""
        await_so(lambda: self.is_healthy(container), f"{container} is not healthy")


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    file = tmp_path_factory.mktemp("podman") / "containers.conf"
    file.write_text(CONFIGURATION, encoding="utf-8")
    return Podman(environment_with({"CONTAINERS_CONF": str(file)}))


@pytest.fixture
def server(podman: Podman) -> Generator[str]:
    """Serve in a container with nothing that it could write to but its volume."""
    container = podman(
        *("run", "--detach", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all"),
        *(IMAGE, "serve", "--metadata", "0.0.0.0:8169", "--trust-path", "--executor", "simulated"),
    ).strip()
    try:
        podman.await_health(container)
        yield container
    finally:
        sys.stderr.write(podman.attempt("podman", "logs", container).stderr)
        podman("rm", "--force", "--volumes", "--time", "3", container)
