"""The sum of the migrations is the schema that the code declares."""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from forewarn.domain.course import Course
from forewarn.domain.profile import NO_PROFILE
from forewarn.storage.errors import DatabaseOutdatedError
from forewarn.storage.schema import REVISIONS
from forewarn.storage.sqlite import open_sqlite, upgrade
from forewarn.storage.tables import metadata

FIRST_EVENT = """
INSERT INTO events (
    event_id, event_type, event_source, event_status, scope_id, update_domain, resources,
    description, created_at, not_before, first_not_before, is_announced, is_published, approvals,
    reason
) VALUES (
    'E1', 'Reboot', 'Platform', 'Scheduled', 'virtual-machine/web-0', 0, '["web-0"]',
    '', 0, 900000000, 900000000, 1, 1, '[]', ''
)
"""

FIRST_LEDGER = "INSERT INTO ledger VALUES (1, 'E1', 0, 'scheduled', 'admin', '')"
FIRST_AUDIT = "INSERT INTO audit VALUES (1, 0, 0, 'admin', 'event create', 'E1', 'done', '')"


def _schema(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ).fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows}


def _migrate(path: Path, revision: str = "head") -> None:
    """Run every migration up to *revision*, as a database of the first release would see them."""
    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


def test_migrations_give_what_a_new_database_has(tmp_path: Path) -> None:
    migrated, new = tmp_path / "migrated.db", tmp_path / "new.db"

    _migrate(migrated)
    upgrade(new)

    assert _schema(migrated) == _schema(new)
    assert {*metadata.tables, "alembic_version"} <= set(_schema(new))


@pytest.mark.parametrize("make", [upgrade, _migrate])
def test_alembic_finds_nothing_to_migrate(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "forewarn.db"
    make(path)
    engine = create_engine(f"sqlite:///{path}")

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, metadata)
    engine.dispose()

    assert differences == []


def test_upgrade_is_needed_once(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"

    assert upgrade(path)
    assert not upgrade(path)


def test_upgrade_keeps_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    store = open_sqlite(path)
    store.write(lambda tx: tx.put_setting("clock", "virtual"))
    store.close()

    upgrade(path)

    store = open_sqlite(path, migrate=False)
    assert store.read(lambda reading: reading.setting("clock")) == "virtual"
    store.close()


def test_database_of_the_first_release_is_upgraded_with_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    _migrate(path, "0001")
    connection = sqlite3.connect(path)
    connection.execute(FIRST_EVENT)
    connection.execute(FIRST_LEDGER)
    connection.execute(FIRST_AUDIT)
    connection.commit()
    connection.close()

    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        open_sqlite(path, migrate=False)
    assert upgrade(path)

    store = open_sqlite(path, migrate=False)
    (event,) = store.read(lambda reading: reading.events_in_flight())
    assert (event.event_id, event.resources) == ("E1", ("web-0",))
    assert event.simulated_duration is None
    assert event.overdue_at is None
    assert store.read(lambda reading: reading.notifications()) == ()
    assert store.read(lambda reading: reading.scenario_runs()) == ()
    (line,) = store.read(lambda reading: reading.ledger(event.event_id))
    (entry,) = store.read(lambda reading: reading.audit())
    assert (line.who, line.where) == (entry.who, entry.where) == ("admin", "")
    assert entry.actor == "unknown"
    assert store.read(lambda reading: reading.tokens()) == ()
    store.close()


FIRST_MACHINE = """
INSERT INTO delivery_scopes VALUES ('virtual-machine/Web-0', 0, 'virtual-machine', 'Web-0', NULL, 1,
    1, 'any', 0, 0, NULL);
INSERT INTO virtual_machines VALUES ('Web-0', 0, 'virtual-machine/Web-0', 0, 0, NULL, '[]', '', '',
    '', '', '', '{}', '{}');
INSERT INTO settings VALUES ('preview_wire', 'observed');
INSERT INTO settings VALUES ('topology_version', '1');
"""
VIRTUAL_NOW = "INSERT INTO settings VALUES ('virtual_now', '2026-01-05T08:00:00+00:00');"


@pytest.mark.parametrize("is_virtual", [True, False])
def test_where_machines_were_is_known_from_the_upgrade_on(
    tmp_path: Path, *, is_virtual: bool
) -> None:
    path = tmp_path / "forewarn.db"
    _migrate(path, "0002")
    connection = sqlite3.connect(path)
    connection.executescript(FIRST_MACHINE + (VIRTUAL_NOW if is_virtual else ""))
    connection.close()

    upgrade(path)

    store = open_sqlite(path, migrate=False)
    (membership,) = store.read(lambda reading: reading.memberships("WEB-0"))
    ((_, wire),) = store.read(lambda reading: reading.preview_wires())
    (vm,) = store.read(lambda reading: reading.topology()).virtual_machines.values()
    store.close()
    assert vm.profile == NO_PROFILE
    assert (membership.scope_id, wire) == ("virtual-machine/Web-0", "observed")
    is_of_the_test = membership.since > datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert is_of_the_test is not is_virtual


OLD_MAINTENANCE = """
INSERT INTO maintenances VALUES (1, 'old', 'Freeze', '', NULL, '["web-0"]', '[]',
    1, 0, 0, '[]', NULL);
INSERT INTO maintenances VALUES (2, 'lost', 'Freeze', '', NULL, '["web-0"]', '[]',
    0, 0, 0, '[]', 9);
INSERT INTO audit VALUES (1, 0, 1767600000000000, 'admin', 'maintenance start', 'old', 'done', '',
    '');
"""


def test_maintenances_keep_holding_all_scopes_and_learn_when_they_began(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    _migrate(path, "0006")
    connection = sqlite3.connect(path)
    connection.executescript(OLD_MAINTENANCE)
    connection.close()

    upgrade(path)

    store = open_sqlite(path, migrate=False)
    old, lost = store.read(lambda reading: reading.maintenances())
    store.close()
    assert old.course == Course(hold_all=True)
    assert old.started_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert old.resumed_at is None
    assert lost.course == Course(hold_all=False)
    assert lost.started_at == datetime(1970, 1, 1, tzinfo=UTC)


def test_messages_that_wait_are_still_about_their_events(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _migrate(path, "0013")
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO outbox VALUES "
            "(1, 'n1', 'E1', 'scheduled', 'ops', '{}', 0, 0, 0, 'waiting', 0, NULL, '')"
        )
    connection.close()

    upgrade(path)
    store = open_sqlite(path)
    (message,) = store.read(lambda reading: reading.next_notifications("ops"))
    store.close()

    assert (message.event_id, message.maintenance_id) == ("E1", None)


def test_database_without_schema_is_refused_unless_migrated(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"

    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        open_sqlite(path, migrate=False)

    assert not path.exists()


def test_list_of_revisions_is_that_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")

    scripts = ScriptDirectory.from_config(config).walk_revisions()

    assert tuple(script.revision for script in scripts)[::-1] == REVISIONS
