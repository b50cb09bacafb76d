"""Backups of real files: consistent while they are written, private, and put back with care."""

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.syncs import is_lasting, record_syncs
from tests.works import writing

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import ScopeId
from forewarn.domain.task import Task
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.pausing import find_pause
from forewarn.operations.restoring import AHEAD, take_over_backup
from forewarn.operations.tasks import find_ownership
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.backups import back_up, examine, restore
from forewarn.storage.errors import (
    BackupRefusedError,
    DatabaseDamagedError,
    DatabaseInUseError,
    DatabaseTooNewError,
    DatabaseUnusableError,
    NotADatabaseError,
)
from forewarn.storage.sqlite import open_sqlite

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
FLEET = '[[virtual_machine]]\nname = "web-0"\n'
CONTEXT = Context(who="admin", now=AT, at=AT, new_id=lambda: event_id(f"{1:032x}"))


def put(store: Store, value: str) -> None:
    store.write(lambda tx: tx.put_setting("test", value))


def value_in(path: Path) -> str | None:
    with closing(open_sqlite(path)) as store:
        return store.read(lambda reading: reading.setting("test"))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:-4096] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "forewarn.db"
    with closing(open_sqlite(path)) as store:
        put(store, "old")
    return path


@pytest.fixture
def backup(database: Path, tmp_path: Path) -> Path:
    back_up(database, tmp_path / "backup.db", at=AT)
    return tmp_path / "backup.db"


def test_backup_of_a_database_that_is_written_is_what_it_was_at_one_moment(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "forewarn.db")) as store:
        put(store, "here")
        with writing(store):
            for number in range(5):
                back_up(tmp_path / "forewarn.db", tmp_path / f"{number}.db", at=AT)

    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as copy:
            found = dict(copy.execute("SELECT name, value FROM settings").fetchall())
        assert found.get("a") == found.get("b")
        assert found["test"] == "here"


def test_backup_is_one_private_file_that_says_when_it_was_made(backup: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert examine(backup).backup_taken_at == AT.isoformat()
    assert {path.name for path in backup.parent.glob("backup.db*")} == {"backup.db"}


def test_backup_is_on_disk_before_and_after_it_takes_its_place(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)

    back_up(database, tmp_path / "backup.db", at=AT)

    assert is_lasting(tmp_path / "backup.db", syncs)


def test_backup_replaces_nothing_unless_told_to(database: Path, backup: Path) -> None:
    before = backup.read_bytes()

    with pytest.raises(BackupRefusedError, match="add --overwrite"):
        back_up(database, backup, at=AT)

    assert backup.read_bytes() == before
    with pytest.raises(BackupRefusedError, match="the database itself"):
        back_up(database, database, at=AT, overwrite=True)
    back_up(database, backup, at=AT, overwrite=True)
    assert not list(backup.parent.glob("*.part"))


def test_backup_that_cannot_be_written_leaves_nothing(database: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusableError, match="No such file or directory"):
        back_up(database, tmp_path / "nowhere" / "backup.db", at=AT)


def test_damaged_database_is_not_backed_up(database: Path, tmp_path: Path) -> None:
    damage(database)

    with pytest.raises(DatabaseDamagedError):
        back_up(database, tmp_path / "backup.db", at=AT)

    assert not (tmp_path / "backup.db").exists()


def test_restored_database_is_the_backup_and_the_old_one_is_kept(
    database: Path, backup: Path
) -> None:
    with closing(open_sqlite(database)) as store:
        put(store, "new")

    aside = restore(backup, database, at=AT)

    assert aside is not None
    assert value_in(database) == "old"
    assert value_in(aside) == "new"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_log_of_the_old_database_is_kept_with_it(database: Path, backup: Path) -> None:
    """A server that was killed leaves commits in its write-ahead log only."""
    store = open_sqlite(database)
    put(store, "new")
    log = database.with_name("forewarn.db-wal")
    files = {path: path.read_bytes() for path in (database, log)}
    store.close()
    for path, content in files.items():
        path.write_bytes(content)

    aside = restore(backup, database, at=AT)

    assert aside is not None
    assert value_in(database) == "old"
    assert value_in(aside) == "new"


def test_copy_made_by_other_means_is_restored_as_a_backup(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(database.read_bytes())

    assert restore(copy, tmp_path / "other.db", at=AT) is None
    assert examine(tmp_path / "other.db").backup_taken_at == AT.isoformat()


def test_restoring_is_refused_while_a_server_uses_the_database(
    database: Path, backup: Path
) -> None:
    with closing(open_sqlite(database)) as store:
        with pytest.raises(DatabaseInUseError):
            restore(backup, database, at=AT)
        put(store, "still here")

    assert value_in(database) == "still here"


def test_backup_that_is_no_good_is_refused_and_changes_nothing(
    database: Path, backup: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("a,b\n" * 100)
    newer = tmp_path / "newer.db"
    back_up(database, newer, at=AT)
    with closing(sqlite3.connect(newer)) as copy, copy:
        copy.execute("UPDATE alembic_version SET version_num = '9999'")
        copy.execute("DELETE FROM settings WHERE name = 'schema_works_with'")
    damage(backup)
    before = database.read_bytes()

    for file, error in (
        (text, NotADatabaseError),
        (tmp_path / "none.db", DatabaseUnusableError),
        (newer, DatabaseTooNewError),
        (backup, DatabaseDamagedError),
        (database, BackupRefusedError),
    ):
        with pytest.raises(error):
            restore(file, database, at=AT)
    assert database.read_bytes() == before
    assert not list(tmp_path.glob("*before-restore*"))


def test_place_that_cannot_hold_a_database_is_refused(backup: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "forewarn.db"):
        with pytest.raises(DatabaseUnusableError):
            restore(backup, place, at=AT)


def test_rows_without_what_they_refer_to_are_damage(database: Path) -> None:
    with closing(sqlite3.connect(database)) as copy, copy:
        copy.execute(
            "INSERT INTO virtual_machines SELECT 'x', 0, 'nowhere', 0, 0, NULL, '[]', '', '', '', "
            "'', '', '{}', '{}', NULL"
        )

    assert examine(database).damage == ("1 rows refer to rows that do not exist",)


@pytest.mark.parametrize("is_shared", [True, False])
def test_backup_of_a_shared_database_does_not_tell_what_replicas_have_begun(
    database: Path, tmp_path: Path, *, is_shared: bool
) -> None:
    backup = tmp_path / "backup.db"
    back_up(database, backup, at=AT)
    task = Task(
        subject="event",
        name="web-0",
        runner="command",
        node="db-1",
        epoch=1,
        said=Impact(status=ImpactStatus.NOT_BEGUN),
        reserved_at=AT - timedelta(hours=1),
    )
    context = replace(CONTEXT, rules=Rules(node="db-1", is_shared=is_shared))

    with closing(open_sqlite(backup)) as store:
        store.write(lambda tx: take_over_backup(tx, context))
        ownership = store.read(lambda reading: find_ownership(reading, context))

    assert ownership.is_in_doubt(task, task.reserved_at) is is_shared


def test_server_on_a_backup_is_paused_and_shows_no_incarnation_again(
    database: Path, tmp_path: Path
) -> None:
    with closing(open_sqlite(database)) as store:
        store.write(lambda tx: apply_fleet(tx, CONTEXT, read_fleet_file(FLEET)))
        before = store.read(lambda reading: reading.documents())
    backup = tmp_path / "backup.db"
    back_up(database, backup, at=AT)

    with closing(open_sqlite(backup)) as store:
        first = store.write(lambda tx: take_over_backup(tx, CONTEXT))
        again = store.write(lambda tx: take_over_backup(tx, CONTEXT))
        after = store.read(lambda reading: reading.documents())
        pause = store.read(find_pause)
        vm_id = "00000000-0000-4000-8000-000000000002"
        other = read_fleet_file(f'[[virtual_machine]]\nname = "new"\nvm_id = "{vm_id}"\n')
        store.write(lambda tx: apply_fleet(tx, CONTEXT, other))
        new = store.read(lambda reading: reading.document(ScopeId("virtual-machine/new")))
        (entry,) = store.read(lambda reading: reading.audit(action="db restore"))

    assert (first, again) == (True, False)
    assert all(
        after[scope].document_incarnation > document.document_incarnation + AHEAD
        for scope, document in before.items()
    )
    assert new.document_incarnation > AHEAD
    assert pause is not None
    assert pause.who == "server"
    assert pause.reason == entry.detail == f"the database is a backup from {AT.isoformat()}"
    back_up(backup, tmp_path / "next.db", at=AT)
    assert examine(tmp_path / "next.db").backup_taken_at == AT.isoformat()
