"""Connections to an SQLite file, and what SQLite's errors mean."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from forewarn.ports.changes import StoreChange
from forewarn.storage.transaction import Changes

BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for another program, such as a backup, that has the database locked."""


@dataclass(frozen=True, slots=True)
class SqliteConnection:
    """One connection as SQLAlchemy sees it, and as the driver does.

    Transactions are begun and ended on the driver's side only: SQLAlchemy is told that there is
    one, and never ends it.
    """

    sql: Connection
    driver: sqlite3.Connection

    def close(self) -> None:
        """Roll back and close."""
        self.sql.close()


class OpenedFile:
    """The file that *path* names, as long as it does."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._identity = self._identify()

    def is_in_place(self) -> bool:
        """Tell whether its name is still its own."""
        return self._identify() == self._identity

    def check(self) -> None:
        """Refuse to go on without it: what is written to a file without a name is lost.

        SQLite has an error for this, but does not look for it in WAL mode.
        """
        if not self.is_in_place():
            error = sqlite3.OperationalError("database file has moved")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
            raise error

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


class SqliteSession:
    """The writer's connection to an SQLite file, which nobody else writes to."""

    def __init__(self, connection: SqliteConnection, file: OpenedFile) -> None:
        self.sql = connection.sql
        self._driver = connection.driver
        self._file = file
        self._last = 0
        self._is_first = True
        self._is_marked = False

    def begin(self) -> None:
        """Begin a transaction."""
        self._file.check()
        # IMMEDIATE, or a work that reads first could find at its first write that it may not.
        self._driver.execute("BEGIN IMMEDIATE")
        self._is_first, self._is_marked = True, False

    def commit(self, changes: Changes) -> Sequence[StoreChange]:
        """Commit, and return the change, if there is one."""
        self._driver.execute("COMMIT")
        hint = changes.hint(self._last + 1)
        if hint is None:
            return ()
        self._last = hint.sequence
        return (hint,)

    def roll_back(self) -> None:
        """Undo all of the transaction, if there still is one."""
        if self._driver.in_transaction:
            self._driver.rollback()

    def set_mark(self) -> None:
        """Remember what was done so far: nothing, if nothing was."""
        if self._is_first:
            self._is_first = False
            return
        # One after the other, not inside of it: SQLite looks through all that are open.
        if self._is_marked:
            self._driver.execute("RELEASE work")
        self._driver.execute("SAVEPOINT work")
        self._is_marked = True

    def require_sound(self) -> None:
        """Do nothing: in SQLite a statement that failed undoes itself, and nothing else."""

    def undo(self) -> None:
        """Take back what was done since the mark."""
        if self._is_marked:
            self._driver.execute("ROLLBACK TO work")
        else:
            self.roll_back()
            self.begin()

    @property
    def total_changes(self) -> int:
        """How many rows were ever changed."""
        return self._driver.total_changes

    def outage(self, error: BaseException) -> str | None:
        """Say what is wrong with disk, file or lock, if that is what *error* tells."""
        return outage(error)


_opened: Final[ContextVar[sqlite3.Connection]] = ContextVar("_opened")
# One for all files, so that they share the statements it has compiled: that takes much longer than
# to open a file.
_ENGINE: Final = create_engine(
    "sqlite://", creator=_opened.get, poolclass=NullPool, isolation_level="AUTOCOMMIT"
)


class Connector:
    """Makes connections to one file."""

    def __init__(
        self,
        path: Path,
        *,
        mode: Literal["ro", "rw", "rwc"],
        busy_timeout: float = BUSY_TIMEOUT,
        pragmas: tuple[str, ...] = (),
    ) -> None:
        self._url = f"{path.absolute().as_uri()}?mode={mode}"
        self._busy_timeout = busy_timeout
        self._pragmas = pragmas

    def connect(self) -> SqliteConnection:
        """Open the file; sqlite3's own errors come through."""
        driver = self._open()
        token = _opened.set(driver)
        try:
            sql = _ENGINE.connect()
        finally:
            _opened.reset(token)
        sql.begin()
        return SqliteConnection(sql, driver)

    def _open(self) -> sqlite3.Connection:
        driver = sqlite3.connect(
            self._url,
            uri=True,
            timeout=self._busy_timeout,
            # None: the driver begins nothing by itself. The store says when.
            isolation_level=None,
            # A connection is used by one thread at a time, but not always by the same one.
            check_same_thread=False,
        )
        try:
            for pragma in self._pragmas:
                driver.execute(f"PRAGMA {pragma}")
        except sqlite3.Error:
            driver.close()
            raise
        return driver


def driver_error(error: BaseException) -> sqlite3.Error | None:
    """Return the driver's error behind *error*, if there is one."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return origin if isinstance(origin, sqlite3.Error) else None


def outage(error: BaseException) -> str | None:
    """Say what is wrong with disk, file or lock, if that is what *error* tells.

    None for anything else, such as a row that breaks a constraint.
    """
    origin = driver_error(error)
    code = getattr(origin, "sqlite_errorcode", None)
    if code is None:
        return None
    # The low byte is the kind, the rest says more about where.
    sentence = _OUTAGES.get(code) or _OUTAGES.get(code & 0xFF)
    return None if sentence is None else sentence(origin)


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the file is not, or no longer, a sound database."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


_OUTAGES: Final[Mapping[int, Callable[[object], str]]] = {
    sqlite3.SQLITE_FULL: lambda _: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: lambda _: "it is read-only; give the server permission to write",
    sqlite3.SQLITE_READONLY_DBMOVED: lambda _: (
        "it was moved, removed or replaced while the server was running; restore it, or restart "
        "the server"
    ),
    sqlite3.SQLITE_PERM: lambda _: "it is not accessible; give the server permission to write",
    sqlite3.SQLITE_CANTOPEN: lambda _: (
        "it cannot be opened; check that its directory exists and is writable"
    ),
    sqlite3.SQLITE_BUSY: lambda _: "another program has locked it; stop that program",
    sqlite3.SQLITE_LOCKED: lambda _: "another program has locked it; stop that program",
    sqlite3.SQLITE_IOERR: lambda error: (
        f"the disk failed ({error}); check its free space and its health"
    ),
    sqlite3.SQLITE_CORRUPT: lambda error: f"it is damaged ({error}); restore it from a backup",
    sqlite3.SQLITE_NOTADB: lambda error: f"it is damaged ({error}); restore it from a backup",
}
