"""The databases that migrations have to work on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, make_url
from tests.postgres import Cluster, run

from forewarn.ports.store import Reading, Store
from forewarn.storage.postgres import open_postgres
from forewarn.storage.reading import SqlReading
from forewarn.storage.schema import bring_up_to_date, prepare_database
from forewarn.storage.sqlite import open_sqlite
from forewarn.storage.topology_cache import TopologyCache

T = TypeVar("T")


class Preparer(Protocol):
    def __call__(self, *, migrate: bool) -> bool: ...


def migrate(engine: Engine, revision: str) -> None:
    """Run every migration up to *revision*."""
    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database, on one of the engines."""

    engine: Engine
    prepare: Preparer
    open: Callable[[], Store]
    describe: Callable[[], list[str]]
    """Returns the statements that would create it as it is, in any order."""

    def upgrade(self) -> bool:
        return self.prepare(migrate=True)

    def migrate(self, revision: str = "head") -> None:
        """Have the schema of *revision*, as a database of the first release comes to it."""
        migrate(self.engine, revision)

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def read(self, look: Callable[[Reading], T]) -> T:
        with self.engine.connect() as connection:
            return look(SqlReading(connection, TopologyCache()))


@pytest.fixture(params=["sqlite", "postgresql"])
def make_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], Database]]:
    """Return a function that makes an empty database of a name."""
    made: list[Database] = []

    def make(name: str) -> Database:
        if request.param == "sqlite":
            made.append(_in_file(tmp_path / f"{name}.db"))
        else:
            made.append(_on_server(request.getfixturevalue("postgres")))
        return made[-1]

    yield make
    for database in made:
        database.engine.dispose()
        if request.param == "postgresql":
            request.getfixturevalue("postgres").drop(database.engine.url.render_as_string())


@pytest.fixture
def database(make_database: Callable[[str], Database]) -> Database:
    return make_database("forewarn")


def _in_file(path: Path) -> Database:
    engine = create_engine(f"sqlite:///{path}")

    def describe() -> list[str]:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql NOT NULL")
            return [" ".join(sql.split()) for (sql,) in rows]

    def prepare(*, migrate: bool) -> bool:
        return bring_up_to_date(path, migrate=migrate)

    return Database(engine, prepare, lambda: open_sqlite(path, migrate=False), describe)


def _on_server(cluster: Cluster) -> Database:
    url = cluster.empty_database()
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))

    def describe() -> list[str]:
        program = str(cluster.binaries / "pg_dump")
        dump = run(program, "--schema-only", "--dbname", url)
        # Newer ones begin and end with a random word.
        lines = [line for line in dump.splitlines() if not line.startswith(("--", "\\"))]
        return "\n".join(lines).split(";\n")

    def prepare(*, migrate: bool) -> bool:
        return prepare_database(engine, migrate=migrate)

    return Database(engine, prepare, lambda: open_postgres(url, migrate=False), describe)
