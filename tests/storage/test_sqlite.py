"""What only SQLite can go through: its files, who else has them open, and disks that are full."""

import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.works import TIMEOUT, held

from forewarn.domain.event import Happening
from forewarn.ports.entries import AuditEntry, LedgerEntry
from forewarn.ports.store import StoreError, StoreUnavailableError, Transaction
from forewarn.protocol.vocabulary import EventId
from forewarn.storage.errors import (
    DatabaseDamagedError,
    DatabaseInUseError,
    DatabaseTooNewError,
    DatabaseUnusableError,
    DatabaseUrlError,
    NotADatabaseError,
)
from forewarn.storage.sqlite import SqliteStore, open_sqlite

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def _record(number: int) -> Callable[[Transaction], None]:
    event_id = EventId(f"602D9444-D2CD-49C7-8624-{number:012X}")

    def work(tx: Transaction) -> None:
        tx.append_ledger(
            LedgerEntry(event_id=event_id, at=NOW, what=Happening.SCHEDULED, who="ada")
        )
        tx.append_audit(
            AuditEntry(at=NOW, maintenance_time=NOW, who="ada", action="create", subject="x")
        )

    return work


def _open_files() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


@contextmanager
def _full_disk(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the database as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = path.stat().st_size if path.exists() else 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_commits_wait_for_the_disk_unless_nothing_has_to_last(tmp_path: Path) -> None:
    full, off = 2, 0

    with (
        closing(open_sqlite(tmp_path / "lasting.db")) as lasting,
        closing(open_sqlite(tmp_path / "emulator.db", is_durable=False)) as fleeting,
    ):
        modes = [
            store._writing.driver.execute("PRAGMA synchronous").fetchone()  # noqa: SLF001
            for store in (lasting, fleeting)
        ]

    assert modes == [(full,), (off,)]


def test_full_disk_refuses_writes_serves_reads_and_heals(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "forewarn.db")
    store.write(_record(0))
    with _full_disk(tmp_path / "forewarn.db-wal"):
        with pytest.raises(StoreUnavailableError, match=r"forewarn\.db cannot be written now"):
            store.write(_record(1))
        store.write(lambda tx: tx.setting("a work that writes nothing"))
        writable_while_full = store.is_writable()
        seen = store.read(lambda reading: reading.audit())

    store.write(_record(1))

    assert not writable_while_full
    assert len(seen) == 1
    assert store.is_writable()
    assert len(store.read(lambda reading: reading.audit())) == 2
    store.close()


def test_full_disk_fails_all_that_would_have_been_committed_together(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "forewarn.db")
    store.write(_record(0))
    with _full_disk(tmp_path / "forewarn.db-wal"):
        with held(store):
            futures = [store.submit(_record(number)) for number in range(1, 100)]
        errors = [future.exception(TIMEOUT) for future in futures]

    assert {type(error) for error in errors} == {StoreUnavailableError}
    assert len({id(error) for error in errors}) == 99
    assert len(store.read(lambda reading: reading.audit())) == 1
    store.close()


def test_database_locked_by_another_program_is_unavailable(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "forewarn.db", busy_timeout=0.05)
    other = sqlite3.connect(tmp_path / "forewarn.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match="another program has locked it"):
        store.write(_record(0))
    other.execute("COMMIT")
    store.write(_record(0))

    assert store.is_writable()
    other.close()
    store.close()


@pytest.mark.parametrize("instead", [None, "other.db"])
def test_database_that_is_moved_away_takes_no_writes_until_it_is_back(
    tmp_path: Path, instead: str | None
) -> None:
    """What is written to a file without a name is lost, though it was acknowledged."""
    path, away = tmp_path / "forewarn.db", tmp_path / "away"
    away.mkdir()
    open_sqlite(away / "other.db").close()
    store = open_sqlite(path)
    store.write(_record(1))
    path.rename(away / "forewarn.db")
    if instead is not None:
        (away / instead).rename(path)

    with pytest.raises(StoreUnavailableError, match="moved, removed or replaced"):
        store.write(_record(2))
    with pytest.raises(StoreUnavailableError, match="cannot be read now"):
        store.read(lambda reading: reading.audit())
    assert not store.is_writable()
    (away / "forewarn.db").replace(path)
    store.write(_record(3))

    assert store.is_writable()
    assert len(store.read(lambda reading: reading.audit())) == 2
    store.close()


def test_database_is_still_in_its_place_when_the_server_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_sqlite("forewarn.db")

    monkeypatch.chdir("/")
    store.write(_record(1))

    assert store.is_writable()
    store.close()


def test_database_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    open_sqlite(path).close()
    before = _open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room, refused, store = 3, 0, None

    while store is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))
        try:
            store = SqliteStore(path)
        except DatabaseUnusableError:
            refused += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if store is None:
            assert _open_files() == before, f"{refused} attempts"
        room += 1

    store.close()


def test_second_server_on_the_same_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    store = open_sqlite(f"sqlite:///{path}")

    with pytest.raises(DatabaseInUseError, match=r"forewarn\.db is in use by another"):
        open_sqlite(path)

    store.close()
    open_sqlite(path).close()


def _text(path: Path) -> None:
    path.write_text("[[virtual_machine]]\nname = 'web-0'\n")


def _garbled_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 32)


def _garbled_pages(path: Path) -> None:
    store = open_sqlite(path)
    for number in range(200):
        store.submit(_record(number))
    store.close()
    with path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 20)


def _truncated(path: Path) -> None:
    open_sqlite(path).close()
    path.write_bytes(path.read_bytes()[:5000])


def _newer_release(path: Path) -> None:
    _another_schema(
        path,
        "UPDATE alembic_version SET version_num = '9999'",
        "UPDATE settings SET value = '9999' WHERE name = 'schema_works_with'",
    )


def _another_program(path: Path) -> None:
    _another_schema(path, "DROP TABLE alembic_version")


def _another_schema(path: Path, *statements: str) -> None:
    open_sqlite(path).close()
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (_text, NotADatabaseError, "is not a forewarn database"),
        (_another_program, NotADatabaseError, "is not a forewarn database"),
        (_garbled_header, DatabaseDamagedError, "restore it from a backup"),
        (_garbled_pages, DatabaseDamagedError, "restore it from a backup"),
        (_truncated, DatabaseDamagedError, "restore it from a backup"),
        (_newer_release, DatabaseTooNewError, "has schema 9999"),
        (Path.mkdir, DatabaseUnusableError, "it is not a regular file"),
    ],
)
def test_what_is_no_database_of_ours_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], error: type[StoreError], sentence: str
) -> None:
    path = tmp_path / "forewarn.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(error, match=sentence) as refusal:
        open_sqlite(path)

    assert str(path) in str(refusal.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "postgresql://user:secret@db/forewarn", "sqlite:///a?x=y"],
)
def test_url_that_names_no_file_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(DatabaseUrlError, match="is not a valid database URL") as refusal:
        open_sqlite(url)

    assert "secret" not in str(refusal.value)


def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusableError, match="its directory does not exist"):
        open_sqlite(tmp_path / "nowhere" / "forewarn.db")


def test_full_disk_leaves_no_half_made_database(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"

    with _full_disk(path), pytest.raises(DatabaseUnusableError, match="check its free space"):
        open_sqlite(path)

    assert not path.exists()
    open_sqlite(path).close()


@contextmanager
def _as_nobody(directory: Path) -> Iterator[None]:
    """Be a user whom permissions mean something, with *directory* as one's own."""
    is_root = os.geteuid() == 0
    if is_root:
        for path in (directory, *directory.iterdir()):
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        directory.chmod(0o700)
        if is_root:
            os.seteuid(0)


@pytest.fixture
def unprivileged_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory, _as_nobody(Path(directory)):
        yield Path(directory) / "forewarn.db"


@pytest.fixture
def unprivileged_database() -> Iterator[Path]:
    # Made before we are nobody, who may not be allowed to read the migrations.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "forewarn.db"
        open_sqlite(path).close()
        with _as_nobody(Path(directory)):
            yield path


def test_read_only_database_is_refused(unprivileged_database: Path) -> None:
    unprivileged_database.chmod(0o400)

    with pytest.raises(DatabaseUnusableError, match="it is read-only"):
        open_sqlite(unprivileged_database)


def test_unreadable_database_is_refused(unprivileged_database: Path) -> None:
    unprivileged_database.chmod(0)

    with pytest.raises(DatabaseUnusableError, match="it cannot be read"):
        open_sqlite(unprivileged_database)


def test_directory_that_cannot_be_written_is_refused(unprivileged_path: Path) -> None:
    unprivileged_path.parent.chmod(0o500)

    with pytest.raises(DatabaseUnusableError, match="its directory is not writable"):
        open_sqlite(unprivileged_path)


@pytest.mark.parametrize("table", ["audit", "ledger"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET who = 'x'", "DELETE FROM {}"])
def test_records_are_append_only(tmp_path: Path, table: str, verb: str) -> None:
    store = open_sqlite(tmp_path / "forewarn.db")
    store.write(_record(1))
    connection = sqlite3.connect(tmp_path / "forewarn.db")

    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
        connection.execute(verb.format(table))

    connection.close()
    store.close()


@pytest.mark.skipif(os.name != "posix", reason="there are no permission bits")
def test_database_is_made_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = open_sqlite(tmp_path / "forewarn.db")
        store.write(lambda tx: tx.topology())
    finally:
        os.umask(before)

    kept = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("forewarn.db*")}
    store.close()
    assert {"forewarn.db", "forewarn.db-wal", "forewarn.db-shm"} <= kept.keys()
    assert set(kept.values()) == {0o600}, "whoever can read a file can lock it"
