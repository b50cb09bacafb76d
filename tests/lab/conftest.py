"""Guests and their server. Each test has a guest that was just booted."""

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from tests.e2e.conftest import Server, ServerMaker, environment, forks, make_server
from tests.lab.guests import Guest, make_disk
from tests.wheels import ROOT, build_wheel

__all__ = ["environment", "forks", "make_server"]

LabServerMaker = Callable[..., Server]


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    return make_disk(folder, build_wheel(folder))


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
