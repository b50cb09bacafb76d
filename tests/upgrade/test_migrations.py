"""The sum of the migrations is the schema that the code declares, on either engine."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    inspect,
)
from structlog.testing import capture_logs
from tests.next_release import NEXT_REVISION, become_next_release
from tests.upgrade.conftest import Database

from forewarn.domain.names import ScopeId
from forewarn.ports.entries import AuditEntry
from forewarn.ports.store import Transaction
from forewarn.storage.errors import (
    DatabaseOutdatedError,
    DatabaseTooNewError,
    DatabaseUnreleasedError,
    NotADatabaseError,
)
from forewarn.storage.schema import HEAD, REVISIONS, WORKS_WITH
from forewarn.storage.tables import metadata


def test_migrations_give_what_a_new_database_has(
    make_database: Callable[[str], Database],
) -> None:
    migrated, new = make_database("migrated"), make_database("new")

    migrated.migrate()
    new.upgrade()

    assert sorted(migrated.describe()) == sorted(new.describe())
    assert set(inspect(new.engine).get_table_names()) == {*metadata.tables, "alembic_version"}


@pytest.mark.parametrize("way", ["upgrade", "migrate"])
def test_alembic_finds_nothing_to_migrate(database: Database, way: str) -> None:
    methodcaller(way)(database)

    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, metadata)

    assert differences == []


def test_upgrade_is_needed_once(database: Database) -> None:
    assert database.upgrade()
    assert not database.upgrade()


SAMPLES: dict[type, object] = {
    String: "x",
    Boolean: True,
    Integer: 1,
    Float: 0.5,
    Date: date(2026, 1, 5),
    JSON: [],
    LargeBinary: b"x",
}
FILLED = {"alembic_version", "write_lock"}
"""Tables that have what they need from the start."""


def _reflect(engine: Engine) -> MetaData:
    stored = MetaData()
    stored.reflect(engine)
    return stored


def _fill(engine: Engine) -> None:
    """Add a row to every table, with something in every column."""
    with engine.begin() as connection:
        for table in _reflect(engine).sorted_tables:
            if table.name not in FILLED:
                connection.execute(table.insert().values({c.name: _sample(c) for c in table.c}))


def _sample(column: Column[Any]) -> object:
    return next(value for kind, value in SAMPLES.items() if isinstance(column.type, kind))


def _contents(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    with engine.connect() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(table.select()).mappings()]
            for table in _reflect(engine).sorted_tables
        }


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_from_any_revision_keeps_every_row(
    database: Database, revision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database.migrate(revision)
    _fill(database.engine)
    before = _contents(database.engine)
    become_next_release(monkeypatch, tmp_path)

    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        database.prepare(migrate=False)
    assert database.upgrade()
    assert not database.upgrade()

    after = _contents(database.engine)
    assert before.pop("alembic_version") == [{"version_num": revision}]
    assert after.pop("alembic_version") == [{"version_num": NEXT_REVISION}]
    assert set(after) == {*metadata.tables, "news"}
    for name, rows in before.items():
        kept = rows[0].keys() & after[name][0].keys()
        assert [{key: row[key] for key in kept} for row in rows] == [
            {key: row[key] for key in kept} for row in after[name][: len(rows)]
        ], name


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize("revision", ["0001", "0022"])
def test_database_of_an_unreleased_version_is_refused(
    database: Database, revision: str, *, migrate: bool
) -> None:
    database.upgrade()
    database.run(HAS_SCHEMA.format(revision), WORKS_FROM.format(revision))
    before = _contents(database.engine)

    with pytest.raises(
        DatabaseUnreleasedError,
        match=f"has schema {revision} of an unreleased version, .*`forewarn fleet export`",
    ):
        database.prepare(migrate=migrate)

    assert _contents(database.engine) == before


def test_database_without_schema_is_refused_unless_migrated(database: Database) -> None:
    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        database.prepare(migrate=False)

    assert inspect(database.engine).get_table_names() == []


def test_list_of_revisions_is_that_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")

    scripts = ScriptDirectory.from_config(config).walk_revisions()

    assert tuple(script.revision for script in scripts)[::-1] == REVISIONS
    assert WORKS_WITH in REVISIONS


HAS_SCHEMA = "UPDATE alembic_version SET version_num = '{}'"
LATER_RELEASE = (
    *(f"ALTER TABLE {name} ADD COLUMN later VARCHAR" for name in metadata.tables),
    "CREATE TABLE novelties (name VARCHAR)",
    HAS_SCHEMA.format("9999"),
)
"""Upgrades a database as a release to come does: it adds, and changes nothing."""
WORKS_FROM = "UPDATE settings SET value = '{}' WHERE name = 'schema_works_with'"


@pytest.mark.parametrize("way", ["upgrade", "from the first"])
def test_database_says_which_releases_can_use_it(
    database: Database, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if way == "from the first":
        database.migrate(REVISIONS[0])
        become_next_release(monkeypatch, tmp_path)

    database.upgrade()

    assert database.read(lambda reading: reading.setting("schema_works_with")) == WORKS_WITH


def test_release_uses_the_schema_of_a_later_one_that_works_with_it(database: Database) -> None:
    database.upgrade()
    database.run(*LATER_RELEASE, WORKS_FROM.format(HEAD))

    assert not database.prepare(migrate=False)
    assert not database.prepare(migrate=True)
    with closing(database.open()) as store:
        store.write(_write_something)
        (entry,) = store.read(lambda reading: reading.audit())

    assert entry.who == "ada"
    assert _contents(database.engine)["alembic_version"] == [{"version_num": "9999"}]


def _write_something(tx: Transaction) -> None:
    at = datetime(2026, 1, 5, 8, tzinfo=UTC)
    tx.put_setting("clock", "real")
    tx.put_soak(ScopeId("web"), at + timedelta(hours=1), at=at)
    tx.append_audit(AuditEntry(at=at, maintenance_time=at, who="ada", action="a", subject="x"))


@pytest.mark.parametrize("revision", ["9999", "1", "0100x", "head"])
def test_later_schema_that_works_with_this_release_is_logged_once(
    database: Database, revision: str
) -> None:
    database.upgrade()
    database.run(HAS_SCHEMA.format(revision), WORKS_FROM.format(HEAD))

    with capture_logs() as logs, closing(database.open()) as store:
        store.write(_write_something)

    assert [line for line in logs if line["event"] == "newer_schema"] == [
        {"event": "newer_schema", "log_level": "info", "schema": revision, "known": HEAD}
    ]


def test_own_schema_is_not_logged(database: Database) -> None:
    database.upgrade()

    with capture_logs() as logs:
        database.prepare(migrate=True)

    assert logs == []


@pytest.mark.parametrize("revision", ["9999", "1", "0100x", "head"])
@pytest.mark.parametrize(
    "change",
    [
        WORKS_FROM.format("9999"),
        WORKS_FROM.format("0099"),
        "DELETE FROM settings WHERE name = 'schema_works_with'",
    ],
)
def test_schema_that_names_no_revision_of_this_release_is_refused(
    database: Database, revision: str, change: str
) -> None:
    database.upgrade()
    database.run(HAS_SCHEMA.format(revision), change)

    with pytest.raises(DatabaseTooNewError, match=f"has schema {revision}, which this release"):
        database.open()


@pytest.mark.parametrize(
    "change", ["DELETE FROM alembic_version", "INSERT INTO alembic_version VALUES ('9999')"]
)
@pytest.mark.parametrize("migrate", [True, False])
def test_database_that_does_not_say_which_schema_it_has_is_refused(
    database: Database, change: str, *, migrate: bool
) -> None:
    database.upgrade()
    database.run(change)

    with pytest.raises(NotADatabaseError):
        database.prepare(migrate=migrate)


@pytest.mark.parametrize("works_with", ["9998", ""])
def test_schema_of_a_later_release_that_does_not_work_with_it_is_refused(
    database: Database, works_with: str
) -> None:
    database.upgrade()
    database.run(*LATER_RELEASE, WORKS_FROM.format(works_with))

    with pytest.raises(DatabaseTooNewError, match="has schema 9999"):
        database.prepare(migrate=True)
