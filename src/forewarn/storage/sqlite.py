"""The store in one SQLite file: one writer thread, and a connection for each who reads."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Empty, Full, LifoQueue
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.changes import ChangeListeners
from forewarn.storage.connections import (
    BUSY_TIMEOUT,
    Connector,
    OpenedFile,
    SqliteConnection,
    SqliteSession,
    outage,
)
from forewarn.storage.errors import DatabaseUnusableError, DatabaseUrlError, StoreClosedError
from forewarn.storage.lock import DatabaseLock
from forewarn.storage.schema import bring_up_to_date, check_file, explain_failure
from forewarn.storage.store import SqlStore
from forewarn.storage.topology_cache import TopologyCache
from forewarn.storage.writer import Writer

T = TypeVar("T")

_IDLE_READERS: Final = 8

# WAL lets readers go on while the writer writes; FULL has every commit on the disk before it is
# acknowledged, and WAL alone would not.
_WRITER_PRAGMAS: Final = ("journal_mode=WAL", "foreign_keys=ON")
_READER_PRAGMAS: Final = ("query_only=ON",)


def open_sqlite(
    url_or_path: str | Path,
    *,
    migrate: bool = True,
    busy_timeout: float = BUSY_TIMEOUT,
    is_durable: bool = True,
) -> "SqliteStore":
    """Open the store in a file, for this process alone; create or upgrade it if *migrate*.

    Whatever is wrong with the file is refused with a DatabaseError, and nothing is changed. What is
    not *is_durable* need not survive the machine, and is written without waiting for the disk.
    """
    path = database_path(url_or_path)
    check_file(path)
    lock = DatabaseLock(path)
    try:
        bring_up_to_date(path, migrate=migrate)
        return SqliteStore(path, lock=lock, busy_timeout=busy_timeout, is_durable=is_durable)
    except BaseException:
        lock.release()
        raise


def upgrade(url_or_path: str | Path) -> bool:
    """Give the database the schema of this release; tell whether there was anything to do."""
    path = database_path(url_or_path)
    check_file(path)
    lock = DatabaseLock(path)
    try:
        return bring_up_to_date(path, migrate=True)
    finally:
        lock.release()


def database_path(url_or_path: str | Path) -> Path:
    """Return the file that a URL like sqlite:///forewarn.db names, or a plain path."""
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return Path(url_or_path)
    try:
        url = make_url(url_or_path)
    except ArgumentError:
        raise DatabaseUrlError from None
    is_file = url.database not in {None, "", ":memory:"} and not url.host and not url.query
    if url.drivername != "sqlite" or url.database is None or not is_file:
        raise DatabaseUrlError
    return Path(url.database)


class SqliteStore(SqlStore):
    """The Store port on a file that has the schema already; `open_sqlite` sees to that."""

    def __init__(
        self,
        path: Path,
        *,
        lock: DatabaseLock | None = None,
        busy_timeout: float = BUSY_TIMEOUT,
        is_durable: bool = True,
    ) -> None:
        pragmas = (*_WRITER_PRAGMAS, f"synchronous={'FULL' if is_durable else 'OFF'}")
        writing = Connector(path, mode="rw", busy_timeout=busy_timeout, pragmas=pragmas)
        self._reading = Connector(
            path, mode="ro", busy_timeout=busy_timeout, pragmas=_READER_PRAGMAS
        )
        with ExitStack() as opened:
            try:
                self._writing = opened.enter_context(closing(writing.connect()))
                # Listeners also read when no more files can be opened: theirs are open already.
                self._listening = opened.enter_context(closing(self._reading.connect()))
                self._listening.driver.execute("SELECT 1 FROM sqlite_schema").fetchone()
            except (sqlite3.Error, DBAPIError) as error:
                raise explain_failure(path, error) from error
            if self._writing.driver.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                problem = (
                    "its file system does not support the shared memory that SQLite needs; use "
                    "a local disk"
                )
                raise DatabaseUnusableError(path, problem)
            opened.pop_all()
        self._file = OpenedFile(path)
        self._lock = lock
        self._cache = TopologyCache()
        self._idle: LifoQueue[SqliteConnection] = LifoQueue(_IDLE_READERS)
        self._is_closed = False
        self._listeners = ChangeListeners()
        session = SqliteSession(self._writing, self._file)
        self._writer = Writer(
            str(path), session, self._cache, self._listeners, load=self.load_topology
        )

    def is_writable(self) -> bool:
        """Tell whether the file is there, and disk and permission sufficed for the last write."""
        return self._writer.is_writable and self._file.is_in_place()

    def close(self) -> None:
        """Finish what was submitted, then let go of the files."""
        self._writer.close()
        self._is_closed = True
        while not self._idle.empty():
            self._idle.get_nowait().close()
        self._listening.close()
        # The last connection to be closed brings the write-ahead log home.
        self._writing.close()
        if self._lock is not None:
            self._lock.release()

    def query(self, look: Callable[[Connection], T]) -> T:
        """Return what *look* sees in one consistent snapshot, in words of the database."""
        try:
            return self._look_once(look)
        except (sqlite3.Error, DBAPIError) as error:
            reason = outage(error)
            if reason is None:
                raise
            sentence = f"{self._file.path} cannot be read now: {reason}."
            raise StoreUnavailableError(sentence) from error

    def _look_once(self, look: Callable[[Connection], T]) -> T:
        connection = self._take_reader()
        try:
            # Deferred: the snapshot is taken by the first statement, and holds to the end.
            connection.driver.execute("BEGIN")
            return look(connection.sql)
        finally:
            connection.driver.rollback()
            self._give_back(connection)

    def _take_reader(self) -> SqliteConnection:
        if self._is_closed:
            raise StoreClosedError
        if self._writer.is_current_thread() and not self._listening.driver.in_transaction:
            return self._listening
        try:
            return self._idle.get_nowait()
        except Empty:
            self._file.check()
            return self._reading.connect()

    def _give_back(self, connection: SqliteConnection) -> None:
        if connection is self._listening:
            return
        if self._is_closed:
            connection.close()
            return
        try:
            self._idle.put_nowait(connection)
        except Full:
            connection.close()
