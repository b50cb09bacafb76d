"""Machines with agents, that are killed after the test."""

from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from tests.e2e.agent.machines import Machine
from tests.e2e.conftest import Server

MachineMaker = Callable[..., Machine]


@pytest.fixture
def make_machine(tmp_path: Path, environment: Mapping[str, str]) -> Generator[MachineMaker]:
    """Return a function that makes a machine of a server, reached through a *port* of its own."""
    machines: list[Machine] = []

    def make(
        server: Server, name: str = "solo-0", *, port: int | None = None, **settings: str
    ) -> Machine:
        folder = tmp_path / name
        folder.mkdir()
        endpoint = f"http://127.0.0.1:{port or server.metadata_port}/vm/{name}"
        machine = Machine(name=name, folder=folder, endpoint=endpoint, environment=environment)
        machine.configure(**settings)
        machines.append(machine)
        return machine

    yield make
    for machine in machines:
        machine.cut_power()
