"""The sum of the migrations is the schema that the code declares, on either engine."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from operator import methodcaller
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
from tests.upgrade.conftest import Database

from forewarn.domain.course import Course
from forewarn.domain.maintenance import Resolution
from forewarn.domain.names import ScopeId
from forewarn.domain.profile import NO_PROFILE
from forewarn.ports.entries import AuditEntry
from forewarn.ports.store import Transaction
from forewarn.storage.errors import (
    DatabaseOutdatedError,
    DatabaseTooNewError,
    UpgradeTooEarlyError,
)
from forewarn.storage.schema import HEAD, REVISIONS, WORKS_WITH
from forewarn.storage.tables import metadata

FIRST_EVENT = """
INSERT INTO events (
    event_id, event_type, event_source, event_status, scope_id, update_domain, resources,
    description, created_at, not_before, first_not_before, is_announced, is_published, approvals,
    reason
) VALUES (
    'E1', 'Reboot', 'Platform', 'Scheduled', 'virtual-machine/web-0', 0, '["web-0"]',
    '', 0, 900000000, 900000000, true, true, '[]', ''
)
"""

FIRST_LEDGER = "INSERT INTO ledger VALUES (1, 'E1', 0, 'scheduled', 'admin', '')"
FIRST_AUDIT = "INSERT INTO audit VALUES (1, 0, 0, 'admin', 'event create', 'E1', 'done', '')"


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
GONE = {"knowledge", "simulated_impacts", "host_offers"}
"""Tables that are dropped when nothing of what they are about is under way."""


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
def test_upgrade_from_any_revision_keeps_every_row(database: Database, revision: str) -> None:
    database.migrate(revision)
    _fill(database.engine)
    before = {name: rows for name, rows in _contents(database.engine).items() if name not in GONE}

    assert database.upgrade() is (revision != HEAD)

    after = _contents(database.engine)
    assert before.pop("alembic_version") == [{"version_num": revision}]
    assert after.pop("alembic_version") == [{"version_num": HEAD}]
    assert set(after) == set(metadata.tables)
    for name, rows in before.items():
        kept = rows[0].keys() & after[name][0].keys()
        assert [{key: row[key] for key in kept} for row in rows] == [
            {key: row[key] for key in kept} for row in after[name][: len(rows)]
        ], name


def test_database_of_the_first_release_is_upgraded_with_what_is_in_it(database: Database) -> None:
    database.migrate("0001")
    database.run(FIRST_EVENT, FIRST_LEDGER, FIRST_AUDIT)

    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        database.prepare(migrate=False)
    assert database.upgrade()

    (event,) = database.read(lambda reading: reading.events_in_flight())
    assert (event.event_id, event.resources) == ("E1", ("web-0",))
    assert event.simulated_duration is None
    assert event.overdue_at is None
    assert database.read(lambda reading: reading.notifications()) == ()
    assert database.read(lambda reading: reading.scenario_runs()) == ()
    (line,) = database.read(lambda reading: reading.ledger(event.event_id))
    (entry,) = database.read(lambda reading: reading.audit())
    assert (line.who, line.where) == (entry.who, entry.where) == ("admin", "")
    assert entry.actor == "unknown"
    assert database.read(lambda reading: reading.tokens()) == ()


FIRST_MACHINE = (
    """
    INSERT INTO delivery_scopes VALUES ('virtual-machine/Web-0', 0, 'virtual-machine', 'Web-0',
        NULL, 1, 1, 'any', 0, false, NULL)
    """,
    """
    INSERT INTO virtual_machines VALUES ('Web-0', 0, 'virtual-machine/Web-0', 0, 0, NULL, '[]', '',
        '', '', '', '', '{}', '{}')
    """,
    "INSERT INTO settings VALUES ('preview_wire', 'observed')",
    "INSERT INTO settings VALUES ('topology_version', '1')",
)
VIRTUAL_NOW = "INSERT INTO settings VALUES ('virtual_now', '2026-01-05T08:00:00+00:00')"


@pytest.mark.parametrize("is_virtual", [True, False])
def test_where_machines_were_is_known_from_the_upgrade_on(
    database: Database, *, is_virtual: bool
) -> None:
    database.migrate("0002")
    database.run(*FIRST_MACHINE, *([VIRTUAL_NOW] if is_virtual else []))

    database.upgrade()

    (membership,) = database.read(lambda reading: reading.memberships("WEB-0"))
    ((_, wire),) = database.read(lambda reading: reading.preview_wires())
    (vm,) = database.read(lambda reading: reading.topology()).virtual_machines.values()
    assert vm.profile == NO_PROFILE
    assert (membership.scope_id, wire) == ("virtual-machine/Web-0", "observed")
    if is_virtual:
        assert membership.since == datetime(2026, 1, 5, 8, tzinfo=UTC)
    else:
        assert membership.since > datetime(2026, 1, 5, 9, tzinfo=UTC)


OLD_MAINTENANCES = (
    """
    INSERT INTO maintenances VALUES (1, 'old', 'Freeze', '', NULL, '["web-0"]', '[]',
        true, false, false, '[]', NULL)
    """,
    """
    INSERT INTO maintenances VALUES (2, 'lost', 'Freeze', '', NULL, '["web-0"]', '[]',
        false, false, false, '[]', 9)
    """,
    """
    INSERT INTO audit VALUES (1, 0, 1767600000000000, 'admin', 'maintenance start', 'old', 'done',
        '', '')
    """,
    """
    INSERT INTO audit VALUES (2, 0, 1767700000000000, 'admin', 'maintenance start', 'old', 'done',
        '', '')
    """,
)


def test_maintenances_keep_holding_all_scopes_and_learn_when_they_began(
    database: Database,
) -> None:
    database.migrate("0006")
    database.run(*OLD_MAINTENANCES)

    database.upgrade()

    old, lost = database.read(lambda reading: reading.maintenances())
    assert old.course == Course(hold_all=True)
    assert old.started_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert old.resumed_at is None
    assert lost.course == Course(hold_all=False)
    assert lost.started_at == datetime(1970, 1, 1, tzinfo=UTC)


EVENT_OF_HOST = """
INSERT INTO events (
    event_id, event_type, event_source, event_status, scope_id, update_domain, resources,
    description, created_at, not_before, first_not_before, is_announced, is_published, approvals,
    reason, maintenance_id, host, ended_at, outcome
) VALUES (
    '{}', 'Reboot', 'Platform', '{}', 'web', 0, '["web-0"]', '', 5, 6, 6, true, true, '[]', '',
    'm', '{}', {}, {}
)
"""
MAINTENANCE = """
INSERT INTO maintenances (sequence, maintenance_id, event_type, description, resources, hosts,
    is_paused, is_aborted, released, finished_at)
VALUES (1, 'm', 'Reboot', '', '["web-0"]', '["h-2", "h-1", "h-0"]', false, false, '["E1"]', 9)
"""


def test_hosts_of_a_maintenance_have_had_their_operations(database: Database) -> None:
    database.migrate("0011")
    database.run(
        MAINTENANCE,
        EVENT_OF_HOST.format("E0", "Completed", "h-2", 7, "'completed'"),
        EVENT_OF_HOST.format("E1", "Completed", "h-1", 7, "'failed'"),
        EVENT_OF_HOST.format("E2", "Completed", "h-1", 6, "'completed'"),
        EVENT_OF_HOST.format("E3", "Started", "h-0", "NULL", "NULL"),
        EVENT_OF_HOST.format("E4", "Scheduled", "h-0", "NULL", "NULL"),
    )

    database.migrate("0021")

    with database.engine.connect() as connection:
        operations = connection.exec_driver_sql(
            "SELECT operation_id, phase, outcome, ended_at FROM host_operations ORDER BY sequence"
        ).all()
    (maintenance,) = database.read(lambda reading: reading.maintenances())
    (event,) = database.read(lambda reading: reading.events_in_flight())[:1]
    assert operations == [
        ("m/h-2", "over", "succeeded", 7),
        ("m/h-1", "over", "failed", 7),
        ("m/h-0", "impact", None, None),
    ]
    assert event.operation_id == "m/h-0"
    assert maintenance.resolutions == {"m/h-1": Resolution.SKIP}
    assert maintenance.outcome == "incomplete"


OPERATION = """
INSERT INTO host_operations (sequence, operation_id, maintenance_id, event_type, host, created_at,
    phase, attempt, ended_at, reason)
VALUES (1, 'm/h-0', 'm', 'Reboot', 'h-0', 5, '{}', 1, {}, '')
"""
UNDER_WAY = {
    "event": EVENT_OF_HOST.format("E0", "Started", "h-0", "NULL", "NULL"),
    "work": OPERATION.format("work", "NULL"),
}
NOT_UNDER_WAY = (
    EVENT_OF_HOST.format("E1", "Scheduled", "h-0", "NULL", "NULL"),
    EVENT_OF_HOST.format("E2", "Completed", "h-0", 7, "'completed'"),
)


@pytest.mark.parametrize("what", UNDER_WAY)
def test_upgrade_waits_until_nothing_is_done_outside_any_more(
    database: Database, what: str
) -> None:
    database.migrate("0021")
    database.run(*NOT_UNDER_WAY, UNDER_WAY[what])
    before = _contents(database.engine)

    with pytest.raises(UpgradeTooEarlyError, match=r"\(1 started events and host operations\)"):
        database.upgrade()

    assert _contents(database.engine) == before
    database.run(
        "UPDATE events SET event_status = 'Completed', ended_at = 7, outcome = 'completed'",
        "UPDATE host_operations SET phase = 'over', ended_at = 7, outcome = 'succeeded'",
    )
    assert database.upgrade()


def test_upgrade_works_while_events_are_only_announced(database: Database) -> None:
    database.migrate("0021")
    database.run(*NOT_UNDER_WAY, OPERATION.format("announced", "NULL"))

    assert database.upgrade()

    (event,) = database.read(lambda reading: reading.events_in_flight())
    assert event.event_id == "E1"
    assert database.read(lambda reading: reading.tasks()) == ()


def test_messages_that_wait_are_still_about_their_events(database: Database) -> None:
    database.migrate("0013")
    database.run(
        "INSERT INTO outbox VALUES "
        "(1, 'n1', 'E1', 'scheduled', 'ops', '{}', 0, 0, 0, 'waiting', 0, NULL, '')"
    )

    database.upgrade()

    (message,) = database.read(lambda reading: reading.next_notifications("ops"))
    assert (message.event_id, message.maintenance_id) == ("E1", None)


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


LATER_RELEASE = (
    *(f"ALTER TABLE {name} ADD COLUMN later VARCHAR" for name in metadata.tables),
    "CREATE TABLE novelties (name VARCHAR)",
    "UPDATE alembic_version SET version_num = '9999'",
)
"""Upgrades a database as a release to come does: it adds, and changes nothing."""
WORKS_FROM = "UPDATE settings SET value = '{}' WHERE name = 'schema_works_with'"


@pytest.mark.parametrize("way", ["upgrade", "from the first"])
def test_database_says_which_releases_can_use_it(database: Database, way: str) -> None:
    if way == "from the first":
        database.migrate("0001")

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


@pytest.mark.parametrize("works_with", ["9998", ""])
def test_schema_of_a_later_release_that_does_not_work_with_it_is_refused(
    database: Database, works_with: str
) -> None:
    database.upgrade()
    database.run(*LATER_RELEASE, WORKS_FROM.format(works_with))

    with pytest.raises(DatabaseTooNewError, match="has schema 9999"):
        database.prepare(migrate=True)
