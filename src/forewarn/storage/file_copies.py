"""An SQLite file as what is copied, and as what a copy is made in."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, insert

from forewarn.storage.backups import drafting, finish_draft, sync_folder
from forewarn.storage.connections import Connector, driver_error
from forewarn.storage.copying import SourceView, find_rows, mark_as_backup
from forewarn.storage.errors import CopyRefusedError, DatabaseError
from forewarn.storage.lock import DatabaseLock
from forewarn.storage.schema import (
    bring_up_to_date,
    check_file,
    explain_failure,
    find_schema,
    read_schema,
    remove_companions,
    require_database,
)
from forewarn.storage.sizes import DatabaseSize, measure_database

# A draft that is lost was none: it is on the disk before it gets its name.
_DRAFT_PRAGMAS: Final = ("journal_mode=MEMORY", "synchronous=OFF")


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A database in a file, whether a server uses it or not."""

    place: Path

    def explain(self, error: Exception) -> Exception:
        """Return what an error of SQLite means, and any other error as it is."""
        return explain_failure(self.place, error) if driver_error(error) else error

    @contextmanager
    def open(self) -> Iterator[SourceView]:
        """Look at it; while nobody uses it, no server can start on it."""
        require_database(self.place)
        lock = None
        # A server has it, or it lies where only a reader of backups comes.
        with suppress(DatabaseError):
            lock = DatabaseLock(self.place)
        try:
            find_schema(self.place).require_own(self.place)
            with closing(Connector(self.place, mode="ro").connect()) as connection:
                # Deferred: the snapshot is taken by the first statement, and holds to the end.
                connection.driver.execute("BEGIN")
                yield SourceView(connection=connection.sql, is_still=lock is not None)
        finally:
            if lock is not None:
                lock.release()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a copy is made in, unless there is a database with rows in it.

    A *backup* replaces whatever is there, and no server is started on it.
    """

    place: Path
    is_backup: bool = False

    def explain(self, error: Exception) -> Exception:
        """Return what an error of SQLite means, and any other error as it is."""
        return explain_failure(self.place, error) if driver_error(error) else error

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Begin the transaction that makes it, in a draft that is given its name at the end."""
        check_file(self.place)
        with nullcontext() if self.is_backup else _locked(self.place):
            if not self.is_backup:
                self._require_empty()
            with drafting(self.place) as draft:
                bring_up_to_date(draft, migrate=True)
                writing = Connector(draft, mode="rw", pragmas=_DRAFT_PRAGMAS).connect()
                with closing(writing):
                    writing.driver.execute("BEGIN IMMEDIATE")
                    yield writing.sql
                    writing.driver.execute("COMMIT")
                finish_draft(draft)
                draft.replace(self.place)
                # Last: what is there now is kept, with all its files, until it is replaced.
                remove_companions(self.place)
            sync_folder(self.place.parent)

    def write(self, connection: Connection, table: Table, rows: Sequence[list[Any]]) -> None:
        """Write *rows*."""
        text = str(insert(table).compile(dialect=connection.dialect))
        connection.connection.cursor().executemany(text, rows)

    def refuse(self, connection: Connection) -> str | None:
        """Refuse nothing: a file can be used for all that a server can do."""
        del connection
        return None

    def _require_empty(self) -> None:
        if not self.place.exists() or find_schema(self.place).revision is None:
            return
        with closing(Connector(self.place, mode="ro").connect()) as there:
            if find_rows(there.sql) is not None:
                raise CopyRefusedError(self.place, "is not empty; choose another file")


def measure_file(path: Path) -> DatabaseSize:
    """Tell how large the database in *path* is, whether a server uses it or not."""
    require_database(path)
    with closing(Connector(path, mode="ro").connect()) as connection:
        read_schema(connection.sql, path).require_own(path)
        return measure_database(connection.sql)


def mark_file_as_backup(path: Path, at: datetime) -> None:
    """Have the next server that starts on the database in *path* treat it as a backup of *at*."""
    require_database(path)
    with _locked(path):
        find_schema(path).require_own(path)
        with closing(Connector(path, mode="rw").connect()) as connection:
            connection.driver.execute("BEGIN IMMEDIATE")
            mark_as_backup(connection.sql, at)
            connection.driver.execute("COMMIT")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = DatabaseLock(path)
    try:
        yield
    finally:
        lock.release()
