"""What administrators do with a database, whichever engine it is on; none of it needs a server.

A database is a file, or a URL as the settings have it.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

from forewarn.ports.store import Store
from forewarn.storage import backups, sqlite
from forewarn.storage.copying import (
    CopyReport,
    CopySource,
    CopyTarget,
    ServerDatabaseState,
    Tell,
    copy_database,
)
from forewarn.storage.errors import CopyRefusedError, PostgresMissingError
from forewarn.storage.file_copies import DatabaseFile, NewFile, mark_file_as_backup, measure_file
from forewarn.storage.sizes import DatabaseSize, measure_database

Location: TypeAlias = Path | str
"""A file, or the URL of a PostgreSQL database."""


class ServerDatabase(CopySource, CopyTarget, Protocol):
    """A database of a server, as `PostgresDatabase` is; that needs an extra to be imported."""

    def examine(self) -> ServerDatabaseState:
        """Look at it, and change nothing."""

    def upgrade(self) -> bool:
        """Create or upgrade its schema; tell whether there was anything to do."""

    def mark_as_backup(self, at: datetime, *, wait: Callable[[], object]) -> None:
        """Have the next server that starts on it treat it as a backup of *at*.

        Call *wait* before it takes seconds to see whether replicas use it.
        """


def copy(source: Location, target: Location, *, at: datetime, tell: Tell) -> CopyReport:
    """Copy all of *source* to *target*, which is new or empty."""
    if (
        isinstance(source, Path)
        and isinstance(target, Path)
        and target.exists()
        and target.samefile(source)
    ):
        raise CopyRefusedError(target, "is the source; choose another file")
    read = DatabaseFile(source) if isinstance(source, Path) else at_server(source)
    made = NewFile(target) if isinstance(target, Path) else at_server(target)
    return copy_database(read, made, at=at, tell=tell)


def back_up(
    source: Location, file: Path, *, at: datetime, overwrite: bool = False, tell: Tell
) -> None:
    """Copy *source* to a new file that only its owner reads, while servers use it or not."""
    if isinstance(source, Path):
        backups.back_up(source, file, at=at, overwrite=overwrite)
        return
    backups.refuse_existing(file, overwrite=overwrite)
    target = NewFile(file, is_backup=True)
    copy_database(at_server(source), target, at=at, is_backup=True, tell=tell)


def restore(backup: Path, target: Location, *, at: datetime, tell: Tell) -> Path | None:
    """Put *backup* in the place of *target*, and return where the old file is kept, if any.

    A database of a server is not replaced: it has to be empty.
    """
    if isinstance(target, Path):
        return backups.restore(backup, target, at=at)
    copy_database(DatabaseFile(backup), at_server(target), at=at, is_backup=True, tell=tell)
    return None


def measure(database: Location) -> DatabaseSize:
    """Return how large the database is, while servers use it or not."""
    if isinstance(database, Path):
        return measure_file(database)
    with at_server(database).open() as seen:
        return measure_database(seen.connection)


def upgrade(database: Location) -> bool:
    """Give the database the schema of this release; tell whether there was anything to do."""
    if isinstance(database, Path):
        return sqlite.upgrade(database)
    return at_server(database).upgrade()


def mark_restored(
    database: Location, *, at: datetime, wait: Callable[[], object] = lambda: None
) -> None:
    """Have the next server treat the database as a backup of *at*, however it got there.

    Call *wait* before it takes seconds to see whether replicas use it.
    """
    if isinstance(database, Path):
        mark_file_as_backup(database, at)
    else:
        at_server(database).mark_as_backup(at, wait=wait)


def at_server(url: str) -> ServerDatabase:
    """Return the PostgreSQL database at *url*."""
    try:
        from forewarn.storage.postgres_copies import PostgresDatabase  # noqa: PLC0415 - an extra
        from forewarn.storage.postgres_session import PostgresAddress  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PostgresMissingError from error
    return PostgresDatabase(PostgresAddress(url))


def open_shared(url: str) -> Store:
    """Open the store in the PostgreSQL database at *url*, which has its schema already."""
    try:
        from forewarn.storage.postgres import open_postgres  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PostgresMissingError from error
    return open_postgres(url, migrate=False)
