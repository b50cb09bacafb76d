"""The fixture in environments of its own: with few packages, the newest and the oldest."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.wheels import Environment, build_wheel, uv

pytestmark = pytest.mark.timeout(300)

PACKAGES = 25
"""`forewarn[pytest]` brings fewer than these, pytest and forewarn among them."""
OLDEST_PYTHON = "3.11"
SUITE = Path(__file__).parent
BESIDE = ("fastapi==0.115.0", "sqlalchemy==2.0.0", "typer==0.15.1", "uvicorn==0.32.1")
"""What a program under test may need."""
EMULATOR = "test_emulator.py"
PLUGIN = "test_pytest_plugin.py::test_failure_shows_documents_and_ledger"
WITHOUT_SERVER = """
import pytest

from forewarn.testing import ServerMissingError

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    try:
        return (yield)
    except ServerMissingError as missing:
        pytest.skip(str(missing))
"""
"""Leaves out what asks for the control API."""
ASK_FOR_CONTROL = """
from forewarn.testing import Emulator

with Emulator() as emulator:
    print(emulator.control_url)
"""
LOOK_AROUND = """
from urllib.request import Request, urlopen

from forewarn.testing import Emulator

with Emulator() as emulator:
    emulator.vm("web-0").reboot()
    for path in ("api/openapi.json", "api/v1/events", "api/v1/calendar.ics", "metrics", "login"):
        asked = Request(f"{emulator.control_url}/{path}")
        asked.add_header("Authorization", f"Bearer {emulator.token}")
        assert urlopen(asked).read(), path
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("newest") / "venv", wheel)
    environment.install("--extra=pytest", "-r", "pyproject.toml")
    return environment


def install_oldest(
    home: Path, wheel: Path, *extras: str, others: Iterable[str] = ()
) -> Environment:
    """Return an environment with the oldest that pyproject.toml allows for *extras*, and others."""
    try:
        python = uv("python", "find", "--no-python-downloads", OLDEST_PYTHON).strip()
    except subprocess.CalledProcessError:
        pytest.skip(f"Python {OLDEST_PYTHON} is not here")
    environment = Environment(home, wheel, python)
    named = [f"--extra={extra}" for extra in extras]
    environment.install("--resolution=lowest-direct", *named, "-r", "pyproject.toml", *others)
    return environment


def run_suite(environment: Environment, folder: Path, *options: str, conftest: str = "") -> int:
    """Return how many tests of the emulator have passed in *environment*; none may fail."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")  # not ours
    (folder / "conftest.py").write_text(conftest)
    for path in SUITE.glob("test_*.py"):
        shutil.copy(path, folder)
    done = environment.run("python", "-m", "pytest", "-q", *options, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    return int(passed)


def test_few_packages_come_with_the_fixture(newest: Environment) -> None:
    packages = newest.packages()

    assert {"forewarn", "pytest"} < {re.split(r"[ =]", each)[0] for each in packages}
    assert len(packages) < PACKAGES, packages


def test_fixture_works_with_what_comes_with_it(newest: Environment, tmp_path: Path) -> None:
    suite = tmp_path / "suite"

    assert run_suite(newest, suite, EMULATOR, PLUGIN, conftest=WITHOUT_SERVER) > 40


def test_fixture_works_with_the_oldest_packages_of_a_program(wheel: Path, tmp_path: Path) -> None:
    oldest = install_oldest(tmp_path / "venv", wheel, "pytest", others=BESIDE)
    suite = tmp_path / "suite"

    assert set(BESIDE) < set(oldest.packages())
    assert run_suite(oldest, suite, EMULATOR, PLUGIN, conftest=WITHOUT_SERVER) > 40


def test_server_works_with_the_oldest_packages(wheel: Path, tmp_path: Path) -> None:
    oldest = install_oldest(tmp_path / "venv", wheel, "pytest", "server")
    asked = "control_api_is or operator or audit"

    assert run_suite(oldest, tmp_path / "suite", EMULATOR, "-k", asked) >= 3
    for command in (("python", "-c", LOOK_AROUND), ("forewarn", "doctor", "--help")):
        done = oldest.run(*command)
        assert done.returncode == 0, done.stderr


def test_control_api_that_is_not_installed_says_what_to_install(newest: Environment) -> None:
    done = newest.run("python", "-c", ASK_FOR_CONTROL)

    assert done.returncode == 1
    assert "control_url needs: pip install 'forewarn[server]'" in done.stderr.splitlines()[-1]
