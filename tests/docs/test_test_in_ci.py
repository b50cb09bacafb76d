"""The jobs of "Test in CI" and the Compose file, run as processes; `make image` runs the image.

Left out are the actions of GitHub, and what pip installs: tests/testing/test_requirements.py does.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.test_containerfile import final_stage
from tests.e2e.conftest import wait_until
from tests.e2e.test_detach import READY, stop
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMPOSE = EXAMPLES / "containers" / "compose.yaml"
PAGE = (ROOT / "docs/how-to/test-in-ci.md").read_text("utf-8")
GITHUB, GITLAB = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
JOBS = GITHUB["jobs"]
INSTALL = re.compile(r"pip install 'forewarn\[(\w+)\]'")
EXEC = "docker exec ${{ job.services.forewarn.id }} "
SECONDS = 120


class Job:
    """A folder of a job, in which servers get free ports and are stopped in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._metadata = free_port()
        self._variables = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "FOREWARN_METADATA": f"127.0.0.1:{self._metadata}",
            "FOREWARN_CONTROL": f"127.0.0.1:{free_port()}",
        }
        self._servers: list[int] = []

    def run(self, command: str, more: Mapping[str, str] | None = None) -> str:
        """Return what *command* prints; it may not fail."""
        variables = {name: self._here(value) for name, value in (more or {}).items()}
        done = subprocess.run(
            ["/bin/sh", "-c", self._here(command)],
            cwd=self.folder,
            env={**self._variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self._servers += [int(pid) for pid, _ in READY.findall(done.stdout)]
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    @contextmanager
    def running(self, command: str, more: Mapping[str, str]) -> Iterator[Path]:
        """Run *command* meanwhile, and give the file that it prints to."""
        variables = {name: self._here(value) for name, value in more.items()}
        path = self.folder / "printed"
        with (
            path.open("wb") as printed,
            subprocess.Popen(
                shlex.split(command),
                cwd=self.folder,
                env={**self._variables, **variables},
                stdout=printed,
            ) as process,
        ):
            try:
                yield path
            finally:
                process.kill()

    def stop_servers(self) -> None:
        for pid in self._servers:
            stop(pid)

    def _here(self, text: str) -> str:
        return re.sub(
            r"(0\.0\.0\.0|127\.0\.0\.1|forewarn):8169", f"127.0.0.1:{self._metadata}", text
        )


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.stop_servers()


def steps_of(job: Mapping[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Return the commands of a job of either system, each with its variables."""
    if "script" in job:
        return [(line, {}) for line in job["script"]]
    return [(step["run"], step.get("env", {})) for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(
    "described", [JOBS["fixture"], GITLAB["fixture"]], ids=["github", "gitlab"]
)
def test_job_with_the_fixture_passes(described: Mapping[str, Any], job: Job) -> None:
    for name in ("conftest.py", "fleet.toml", "pytest.ini", "sync_app.py", "test_sync_app.py"):
        shutil.copy(EXAMPLES / "testing" / name, job.folder)
    install, test = (command for command, _ in steps_of(described))

    assert INSTALL.fullmatch(install)
    assert " passed" in job.run(test)


def test_job_with_a_service_passes(job: Job) -> None:
    shutil.copy(EXAMPLES / "python_urllib.py", job.folder / "program.py")
    service = JOBS["program"]["services"]["forewarn"]
    words = [*final_stage()["ENTRYPOINT"], *final_stage()["CMD"], "--detach"]
    job.run(" ".join(words), service["env"])

    told = [
        job.run(command.removeprefix(EXEC), more) for command, more in steps_of(JOBS["program"])
    ]

    assert "approved" in told[-2]
    assert "Completed" in told[-1]


def test_job_that_starts_a_server_passes(job: Job) -> None:
    shutil.copy(EXAMPLES / "python_urllib.py", job.folder / "program.py")
    install, *others = (command for command, _ in steps_of(GITLAB["program"]))

    told = [job.run(command) for command in others]

    assert INSTALL.fullmatch(install)
    assert "approved" in told[-2]
    assert "Completed" in told[-1]


def test_extras_that_jobs_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert set(INSTALL.findall(PAGE)) == {"pytest", "server"}
    assert set(INSTALL.findall(PAGE)) < set(project["optional-dependencies"])


def test_programs_of_the_compose_file_find_each_other(job: Job) -> None:
    forewarn, web = (read_compose()["services"][name] for name in ("forewarn", "web-0"))
    job.run(f"forewarn {on_this_machine(forewarn['command'], forewarn)} --detach")

    with job.running(on_this_machine(web["entrypoint"], web), web["environment"]) as printed:
        job.run("forewarn vm restart web-0")

        wait_until(lambda: "approved" in printed.read_text(), "nobody has approved", SECONDS)


def test_compose_file_names_what_is_there() -> None:
    compose = read_compose()
    assert compose["services"].keys() == {"forewarn", "web-0"}
    assert compose["services"]["forewarn"]["read_only"] is True

    for service in compose["services"].values():
        for source in mounts_of(service).values():
            assert source in compose["volumes"] or (COMPOSE.parent / source).is_file()
    build = compose["services"]["forewarn"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).samefile(
        ROOT / "Containerfile"
    )


def read_compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return compose


def mounts_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Return what is mounted, by where it is in the container."""
    return {each.split(":")[1]: each.split(":")[0] for each in service["volumes"]}


def on_this_machine(command: str, service: Mapping[str, Any]) -> str:
    """Return *command* with the files that are mounted into its container."""
    for inside, source in mounts_of(service).items():
        command = command.replace(inside, str(COMPOSE.parent / source))
    return command
