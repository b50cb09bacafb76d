"""Whole databases copied from one engine to the other, as they are or not at all."""

import errno
import json
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    Executable,
    Float,
    Integer,
    LargeBinary,
    String,
    insert,
    select,
    update,
)
from sqlalchemy.types import TypeEngine
from tests.needs import need_root
from tests.postgres import SECONDS, Cluster
from tests.waiting import wait_until
from tests.works import writing

from forewarn.domain.access import ConsoleSession
from forewarn.storage import backups, schema
from forewarn.storage.columns import Kept
from forewarn.storage.connections import Connector
from forewarn.storage.copying import COPIED, CopyReport, copy_database
from forewarn.storage.errors import (
    CopyRefusedError,
    DatabaseInUseError,
    DatabaseOutdatedError,
    DatabaseUnusableError,
    NotADatabaseError,
)
from forewarn.storage.file_copies import DatabaseFile, NewFile
from forewarn.storage.postgres_copies import PostgresDatabase
from forewarn.storage.postgres_session import PostgresAddress
from forewarn.storage.schema import HEAD
from forewarn.storage.sqlite import open_sqlite, upgrade
from forewarn.storage.tables import metadata, scenario_runs, settings

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
ROWS = 3
NOBODY = 65534


VALUES: Mapping[type[TypeEngine[Any]], Callable[[int], object]] = {
    Boolean: lambda number: number % 2,
    Integer: lambda number: number + 1,
    Float: lambda number: number + 0.25,
    JSON: lambda number: json.dumps({"name": f"Zoë {number}", "list": [None, 1.5, "\\ \n'"]}),
    Date: lambda number: f"2026-01-{number + 1:02}",
    LargeBinary: lambda number: bytes([0, 255, number, 92]),
    String: lambda number: f"{number} \\N\n\t\\x 'ü' 🦉",
}
"""What there is in a row, by the kind of column, as SQLite keeps it."""


def plain_value(column: Column[Any], number: int) -> object:
    """Return something for a column, as SQLite keeps it."""
    if column.nullable and number == 0 and column.table is not scenario_runs:
        return None
    kind = column.type.kind if isinstance(column.type, Kept) else column.type
    return next(make(number) for known, make in VALUES.items() if isinstance(kind, known))


def fill(path: Path) -> None:
    upgrade(path)
    with closing(Connector(path, mode="rw").connect()) as connection:
        connection.driver.execute("BEGIN")
        for table in COPIED:
            for number in range(ROWS):
                row = [plain_value(column, number) for column in table.columns]
                text = str(insert(table).compile(dialect=connection.sql.dialect))
                connection.driver.execute(text, row)
        connection.driver.execute("COMMIT")


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(Connector(path, mode="ro").connect()) as connection:
        found = {}
        for table in metadata.sorted_tables:
            look = str(select(table).compile(dialect=connection.sql.dialect))
            found[table.name] = sorted(connection.driver.execute(look).fetchall(), key=repr)
        return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "forewarn.db"
    fill(path)
    return path


@pytest.fixture
def empty_url(postgres: Cluster) -> Generator[str]:
    url = postgres.empty_database()
    yield url
    postgres.drop(url)


def database(url: str) -> PostgresDatabase:
    return PostgresDatabase(PostgresAddress(url))


def to_postgres(path: Path, url: str) -> CopyReport:
    return copy_database(DatabaseFile(path), database(url), at=AT)


def to_file(url: str, path: Path) -> CopyReport:
    return copy_database(database(url), NewFile(path), at=AT)


def settings_in(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT name, value FROM settings").fetchall())


def tables_in(url: str) -> int:
    with psycopg.connect(url) as connection:
        look = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        row = connection.execute(look).fetchone()
        assert row is not None
        return int(row[0])


def test_every_row_comes_back_as_it_was(source: Path, empty_url: str, tmp_path: Path) -> None:
    there = to_postgres(source, empty_url)
    back = to_file(empty_url, tmp_path / "back.db")

    before, after = rows_of(source), rows_of(tmp_path / "back.db")
    assert there == back
    assert not there.is_backup
    expected = dict.fromkeys((table.name for table in COPIED), ROWS)
    # One of them says which releases the schema works with.
    assert there.rows == {**expected, "settings": ROWS + 1}
    # The lease is nobody's, though its epoch stays.
    assert [row[:2] for row in after.pop("leases")] == [row[:2] for row in before.pop("leases")]
    assert after == before


@pytest.mark.parametrize(
    "make",
    [
        lambda source, target: copy_database(DatabaseFile(source), NewFile(target), at=AT),
        lambda source, target: backups.restore(source, target, at=AT),
    ],
    ids=["copy", "restore"],
)
def test_owner_of_the_folder_can_use_what_root_has_made_there(
    source: Path, tmp_path: Path, make: Callable[[Path, Path], object]
) -> None:
    need_root("give a file away")
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)

    make(source, folder / "forewarn.db")

    made = {path.name: path.stat().st_uid for path in folder.iterdir()}
    assert made == {"forewarn.db": NOBODY, "forewarn.db.lock": NOBODY}


def test_lease_of_a_copy_is_nobodys(source: Path, empty_url: str) -> None:
    to_postgres(source, empty_url)

    with psycopg.connect(empty_url) as connection:
        found = connection.execute("SELECT epoch, holder, expires_at FROM leases").fetchall()
        replicas = connection.execute("SELECT count(*) FROM replicas").fetchone()
    assert sorted(found) == [(number + 1, "", None) for number in range(ROWS)]
    assert replicas == (0,)


def test_admin_token_of_the_replicas_is_not_that_of_a_copy(
    postgres_url: str, tmp_path: Path
) -> None:
    insertion = "INSERT INTO tokens (token_hash, name, role, scopes, created_at)"
    with psycopg.connect(postgres_url) as connection:
        for name in ("admin", "ops"):
            connection.execute(
                f"{insertion} VALUES ('{name}', '{name}', 'admin', '[]', 0)".encode()
            )

    to_file(postgres_url, tmp_path / "copy.db")

    with closing(open_sqlite(tmp_path / "copy.db")) as store:
        found = {each.name: each.is_live(AT) for each in store.read(lambda tx: tx.tokens())}
    assert found == {"admin": False, "ops": True}


def test_nobody_is_signed_in_at_a_copy(source: Path, empty_url: str) -> None:
    session = ConsoleSession(
        session_hash="s", token_hash="", name="ada", is_link=False, created_at=AT, used_at=AT
    )
    with closing(open_sqlite(source)) as store:
        store.write(lambda tx: tx.put_session(session))

    to_postgres(source, empty_url)

    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


def test_rows_are_numbered_after_those_that_were_copied(source: Path, empty_url: str) -> None:
    to_postgres(source, empty_url)

    with psycopg.connect(empty_url) as connection:
        for table in COPIED:
            if "sequence" in table.columns:
                look = "SELECT nextval(pg_get_serial_sequence(%s, 'sequence'))"
                assert connection.execute(look, [table.name]).fetchone() == (ROWS + 1,)


def test_copy_of_a_file_in_use_is_one_moment_and_a_backup(tmp_path: Path, empty_url: str) -> None:
    path = tmp_path / "forewarn.db"

    with closing(open_sqlite(path)) as store, writing(store):
        report = to_postgres(path, empty_url)

    found = settings_in(empty_url)
    assert report.is_backup
    assert found["backup_taken_at"] == AT.isoformat()
    assert found.get("a") == found.get("b")


def test_no_server_starts_on_a_file_that_is_being_moved(source: Path) -> None:
    with DatabaseFile(source).open() as seen:
        assert seen.is_still
        with pytest.raises(DatabaseInUseError):
            open_sqlite(source)


@pytest.mark.parametrize(
    "sign_of_life",
    [
        "INSERT INTO replicas VALUES ('a', 'a', '', '', '{}', 0, 9e15, 0, '[]')",
        "INSERT INTO leases VALUES ('x', 1, 'a', extract(epoch FROM now()) * 1e6 + 3e6)",
    ],
    ids=["replica", "lease"],
)
def test_copy_of_a_database_with_a_live_replica_is_a_backup(
    postgres_url: str, tmp_path: Path, sign_of_life: str
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(sign_of_life.encode())

    assert to_file(postgres_url, tmp_path / "copy.db").is_backup


def test_copy_of_a_database_with_a_connected_replica_is_a_backup(
    postgres_url: str, tmp_path: Path
) -> None:
    with PostgresAddress(postgres_url).connect():
        assert to_file(postgres_url, tmp_path / "copy.db").is_backup

    assert not to_file(postgres_url, tmp_path / "other.db").is_backup


def test_nobody_writes_to_a_database_that_is_being_moved(postgres_url: str) -> None:
    with database(postgres_url).open() as seen, psycopg.connect(postgres_url) as other:
        assert seen.is_still
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SET lock_timeout = 50; SELECT FROM write_lock FOR UPDATE")


def test_copy_by_a_user_who_may_only_read_is_a_backup(
    postgres: Cluster, postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader = postgres_url.replace("forewarn@", "reader@")
    try:
        assert to_file(reader, tmp_path / "copy.db").is_backup
        assert not database(reader).examine().can_write
        assert database(postgres_url).examine().can_write
    finally:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("DROP OWNED BY reader; DROP ROLE reader")
    del postgres


def test_replica_that_comes_before_the_lock_keeps_a_database_from_being_marked(
    postgres_url: str,
) -> None:
    with psycopg.connect(postgres_url) as replica, ThreadPoolExecutor(1) as pool:
        replica.execute("SELECT 1 FROM write_lock FOR UPDATE")
        marking = pool.submit(database(postgres_url).mark_as_backup, AT)
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        wait_until(lambda: replica.execute(waiting).fetchone() is not None, "the lock")
        replica.execute("INSERT INTO replicas VALUES ('a', 'a', '', '', '{}', 0, 9e15, 0, '[]')")
        replica.commit()

        with pytest.raises(CopyRefusedError, match="is in use"):
            marking.result(SECONDS)
    assert "backup_taken_at" not in settings_in(postgres_url)


RECENT = """
INSERT INTO replicas
VALUES ('a', 'a', '', '', '{}', 0, extract(epoch FROM now()) * 1e6 - 9e6, 0, '[]');
INSERT INTO leases VALUES ('x', 1, 'a', extract(epoch FROM now()) * 1e6 + 1e6)
"""
"""A replica that led a second ago, which is nine seconds after it was last seen."""


def test_database_with_rows_of_replicas_that_are_gone_is_marked_when_these_are_old(
    postgres_url: str,
) -> None:
    """A dump of a running service has them."""
    told: list[None] = []
    with psycopg.connect(postgres_url) as connection:
        connection.execute(RECENT.encode())

    database(postgres_url).mark_as_backup(AT, wait=lambda: told.append(None))

    assert "backup_taken_at" in settings_in(postgres_url)
    assert told == [None]


def test_rows_from_the_future_are_not_waited_for_forever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.storage.postgres_copies.SILENT_AFTER", timedelta(seconds=0.1))
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO replicas VALUES ('a', 'a', '', '', '{}', 0, 9e15, 0, '[]')")

    database(postgres_url).mark_as_backup(AT)

    assert "backup_taken_at" in settings_in(postgres_url)


@pytest.mark.parametrize(
    "sign_of_life",
    ["UPDATE replicas SET seen_at = seen_at + 1", "UPDATE leases SET expires_at = expires_at + 1"],
    ids=["replica", "lease"],
)
def test_replica_that_reports_meanwhile_keeps_a_database_from_being_marked(
    postgres_url: str, sign_of_life: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as replica:
        replica.execute(RECENT.encode())

        with pytest.raises(CopyRefusedError, match="is in use"):
            database(postgres_url).mark_as_backup(
                AT, wait=lambda: replica.execute(sign_of_life.encode())
            )
    assert "backup_taken_at" not in settings_in(postgres_url)


def test_backup_that_cannot_be_replaced_is_kept(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, journal = tmp_path / "kept.db", tmp_path / "kept.db-journal"
    kept.write_bytes(b"")
    journal.write_bytes(b"")

    def fail(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(DatabaseUnusableError, match="busy"):
        copy_database(database(postgres_url), NewFile(kept, is_backup=True), at=AT)
    assert kept.exists()
    assert journal.exists()


def test_copy_of_a_backup_stays_one(source: Path, empty_url: str) -> None:
    with closing(open_sqlite(source)) as store:
        store.write(lambda tx: tx.put_setting("backup_taken_at", "long ago"))

    assert to_postgres(source, empty_url).is_backup
    assert database(empty_url).examine().backup_taken_at == "long ago"


def test_database_with_rows_is_refused_and_untouched(
    source: Path, postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO settings VALUES ('mine', 'here')")
    other = tmp_path / "other.db"
    fill(other)
    before = other.read_bytes()

    with pytest.raises(CopyRefusedError, match="is not empty; create a new database"):
        to_postgres(source, postgres_url)
    with pytest.raises(CopyRefusedError, match="is not empty; choose another file"):
        to_file(postgres_url, other)

    assert other.read_bytes() == before
    assert settings_in(postgres_url)["mine"] == "here"


def test_database_with_the_schema_and_no_rows_is_empty(
    source: Path, postgres_url: str, tmp_path: Path
) -> None:
    upgrade(tmp_path / "new.db")

    to_postgres(source, postgres_url)
    to_file(postgres_url, tmp_path / "new.db")

    assert rows_of(tmp_path / "new.db")["ledger"] == rows_of(source)["ledger"]


def test_database_of_others_is_refused(source: Path, empty_url: str, tmp_path: Path) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TABLE theirs ()")

    with pytest.raises(NotADatabaseError):
        to_postgres(source, empty_url)
    with pytest.raises(NotADatabaseError):
        to_file(empty_url, tmp_path / "x")
    assert tables_in(empty_url) == 1
    assert not (tmp_path / "x").exists()


def test_outdated_database_is_refused(
    source: Path, empty_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "REVISIONS", ("0050", HEAD))
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0050'")
    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        to_postgres(source, postgres_url)

    with closing(Connector(source, mode="rw").connect()) as connection:
        connection.driver.execute("UPDATE alembic_version SET version_num = '0050'")
    with pytest.raises(DatabaseOutdatedError, match="forewarn db upgrade"):
        to_postgres(source, empty_url)
    assert tables_in(empty_url) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (insert(settings).values(name="clock", value="virtual"), "virtual clock, which needs"),
        (update(scenario_runs).values(finished_at=None), "a running scenario"),
    ],
)
def test_what_only_sqlite_can_do_is_refused(
    source: Path, empty_url: str, change: Executable, sentence: str
) -> None:
    with closing(Connector(source, mode="rw").connect()) as connection:
        connection.sql.execute(change)

    with pytest.raises(CopyRefusedError, match=sentence):
        to_postgres(source, empty_url)
    assert tables_in(empty_url) == 0


def test_character_that_postgresql_cannot_keep_is_replaced(source: Path, empty_url: str) -> None:
    with closing(open_sqlite(source)) as store:
        store.write(lambda tx: tx.put_setting("test", "a\0b"))

    to_postgres(source, empty_url)

    assert settings_in(empty_url)["test"] == "a␀b"


def test_copy_that_fails_leaves_nothing(source: Path, empty_url: str) -> None:
    with closing(Connector(source, mode="rw").connect()) as connection:
        connection.driver.execute("UPDATE virtual_machines SET update_domain = 1 << 40")

    with pytest.raises(DatabaseUnusableError, match="out of range"):
        to_postgres(source, empty_url)

    assert tables_in(empty_url) == 0
