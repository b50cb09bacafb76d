"""The stores that have to keep the contracts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from typing import TypeAlias

import pytest
from tests.postgres import Cluster
from tests.simulation.database import Database, SimulatedStore
from tests.simulation.world import Process, World

from forewarn.ports.store import Store
from forewarn.storage.postgres import open_postgres
from forewarn.storage.sqlite import open_sqlite, upgrade

OpenStore: TypeAlias = Callable[[], Store]


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fresh") / "forewarn.db"
    upgrade(path)
    return path


@pytest.fixture(scope="module")
def shared_url(postgres: Cluster) -> Iterator[str]:
    """The URL of a PostgreSQL database for one test after the other."""
    with postgres.lend() as url:
        yield url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests that need threads out of the simulation, which has one."""
    items[:] = [
        item
        for item in items
        if "simulated" not in item.name or item.get_closest_marker("threads") is None
    ]


@pytest.fixture(params=["sqlite", "postgresql", "simulated"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: Path) -> OpenStore:
    """Open the same database each time; what differs between adapters ends here."""
    if request.param == "simulated":
        database = Database(World(0))
        return lambda: SimulatedStore(database, Process("r0"), node="db-1:0")
    if request.param == "postgresql":
        url = request.getfixturevalue("shared_url")
        request.getfixturevalue("postgres").renew(url)
        return lambda: open_postgres(url, node="db-1:0")
    copy(fresh_database, tmp_path)
    return lambda: open_sqlite(tmp_path / "forewarn.db", busy_timeout=0.05)


@pytest.fixture
def store(open_store: OpenStore) -> Iterator[Store]:
    opened = open_store()
    yield opened
    opened.close()
