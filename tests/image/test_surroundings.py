"""What pages in docs/how-to do with the image: Compose and Testcontainers, with podman."""

import re
import shlex
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.image.conftest import IMAGE, Podman, await_so
from tests.wheels import ROOT

COMPOSE = ROOT / "examples" / "containers"
CONTAINERS = (ROOT / "docs/how-to/run-in-containers.md").read_text("utf-8")
IN_CI = (ROOT / "docs/how-to/test-in-ci.md").read_text("utf-8")
TESTCONTAINERS = ROOT / ".venv/clients/testcontainers/bin/python"


@pytest.fixture
def socket(podman: Podman, tmp_path: Path) -> Generator[str]:
    """Serve the API of Docker, and return where."""
    path = tmp_path / "podman.sock"
    command = ["podman", "system", "service", "--time=0", f"unix://{path}"]
    with subprocess.Popen(command, env=podman.environment, stderr=subprocess.DEVNULL) as service:
        try:
            await_so(path.exists, "there is no API")
            yield f"unix://{path}"
        finally:
            service.terminate()


def compose(podman: Podman, *arguments: str) -> str:
    command = ("podman-compose", "--project-name", "forewarn-image-test", *arguments)
    done = podman.attempt(*command, cwd=COMPOSE, WEB_IMAGE=IMAGE)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_commands_of_the_page_have_the_other_container_approve(podman: Podman) -> None:
    lines = re.findall(r"^\$ docker compose (.*)$", CONTAINERS, re.MULTILINE)
    up, restart, logs = map(shlex.split, lines)
    try:
        compose(podman, *up)
        await_so(lambda: "I am web-0" in compose(podman, *logs), "the program does not run")
        restart.insert(1, "-T")  # as in a script, without a terminal
        compose(podman, *restart)

        await_so(lambda: "\nstarted " in compose(podman, *logs), "nobody has approved")
    finally:
        # The second has a volume, too, which goes only with it.
        podman("rm", "--force", "--volumes", "--time", "3", "forewarn-image-test_web-0_1")
        compose(podman, "down", "--volumes", "--timeout", "3")
        podman("network", "rm", "--force", "forewarn-image-test_default")


def test_test_with_testcontainers_passes(podman: Podman, socket: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", IN_CI, re.DOTALL)
    file = tmp_path / "test_it.py"
    file.write_text(f"{program}\ntest_restart_waits_for_fifteen_minutes()\n", encoding="utf-8")

    # Its helper is another image, and podman does not tell addresses as Docker does.
    done = podman.attempt(
        str(TESTCONTAINERS),
        str(file),
        DOCKER_HOST=socket,
        TESTCONTAINERS_RYUK_DISABLED="true",
        TESTCONTAINERS_HOST_OVERRIDE="127.0.0.1",
        TESTCONTAINERS_CONNECTION_MODE="docker_host",
    )

    assert done.returncode == 0, done.stderr
