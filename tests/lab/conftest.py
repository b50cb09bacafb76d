"""Guests and their server. Each test has a guest that was just booted."""

import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.conftest import Server, ServerMaker, environment, forks, make_server
from tests.lab.data_centres import DataCentre, build_data_centre
from tests.lab.guests import Guest, make_disk
from tests.lab.small_guests import BootFiles, SmallGuest, make_boot_files
from tests.wheels import ROOT, build_wheel

__all__ = ["environment", "forks", "make_server"]

LabServerMaker = Callable[..., Server]
DataCentreMaker = Callable[..., DataCentre]


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    return make_disk(folder, build_wheel(folder))


@pytest.fixture(scope="session")
def boot_files(tmp_path_factory: pytest.TempPathFactory) -> BootFiles:
    return make_boot_files(tmp_path_factory.mktemp("boot"))


@pytest.fixture
def make_data_centre(
    tmp_path_factory: pytest.TempPathFactory,
    environment: Mapping[str, str],
    boot_files: BootFiles,
) -> Generator[DataCentreMaker]:
    """Return a function that makes hosts with small guests; all is stopped after the test."""
    with ExitStack() as stack:

        def make(*guests: SmallGuest) -> DataCentre:
            # The path of a socket may have 107 characters, so not in the folder of the test.
            folder = tmp_path_factory.mktemp("site")
            return stack.enter_context(build_data_centre(folder, environment, boot_files, guests))

        yield make


@pytest.fixture
def guest(disk: Path, tmp_path: Path) -> Generator[Guest]:
    """A guest with app.service running, and the agent installed but not yet configured."""
    folder = tmp_path / "guest"
    folder.mkdir()
    guest = Guest(folder=folder, disk=disk)
    try:
        guest.switch_on()
        guest.run("systemctl start app")
        yield guest
    finally:
        guest.switch_off()


@pytest.fixture
def start_server(make_server: ServerMaker, guest: Guest, tmp_path: Path) -> LabServerMaker:
    """Return a function that starts a server; its executor does *verb* of maintain.py, if any."""

    def start(verb: str | None = None) -> Server:
        server = make_server(*(execute_with(verb, guest, tmp_path) if verb else ()))
        server.start()
        return server

    return start


def execute_with(verb: str, guest: Guest, folder: Path) -> tuple[str, ...]:
    """Write the file of executors; return the flags that name it."""
    script = [sys.executable, "-m", "tests.lab.maintain", verb, str(guest.folder)]
    run = json.dumps(["env", f"PYTHONPATH={ROOT}", *script])
    file = folder / "executors.toml"
    file.write_text(f'[[command]]\nrun = {run}\ntimeout = "5m"\n', encoding="utf-8")
    return "--executor-file", str(file)
