"""The schema of a database file: is it there, is it ours, is it of this release; and upgrades."""

import os
import sqlite3
from functools import lru_cache
from pathlib import Path
from typing import Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, inspect
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from forewarn.storage.connections import Connector, driver_error, is_damage, outage
from forewarn.storage.errors import (
    DatabaseDamagedError,
    DatabaseFileError,
    DatabaseOutdatedError,
    DatabaseTooNewError,
    DatabaseUnusableError,
    NotADatabaseError,
)
from forewarn.storage.tables import APPEND_ONLY, metadata

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 19))
"""Every migration, oldest first; a test compares it with the scripts."""

HEAD: Final = REVISIONS[-1]

_MAGIC: Final = b"SQLite format 3\x00"
_VERSIONS: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def check_file(path: Path) -> None:
    """Refuse what is not, and cannot become, a database; look only, touch nothing."""
    try:
        if path.exists() and not path.is_file():
            raise DatabaseUnusableError(path, "it is not a file; name one")
        if not path.parent.is_dir():
            raise DatabaseUnusableError(path, "its directory does not exist; create it")
        beginning = _read_beginning(path) if path.exists() else b""
    except OSError as error:
        problem = f"it cannot be read ({error.strerror}); give the server permission"
        raise DatabaseUnusableError(path, problem) from error
    if beginning and beginning != _MAGIC:
        raise NotADatabaseError(path)
    if path.exists() and not _can_write(path):
        raise DatabaseUnusableError(path, "it is read-only; give the server permission to write")
    if not _can_write(path.parent):
        problem = "its directory cannot be written; give the server permission"
        raise DatabaseUnusableError(path, problem)


def require_database(path: Path) -> None:
    """Refuse a file that is not there, cannot be read or holds something else."""
    try:
        beginning = _read_beginning(path)
    except OSError as error:
        raise DatabaseUnusableError(path, f"it cannot be read ({error.strerror})") from error
    if beginning != _MAGIC:
        raise NotADatabaseError(path)


def bring_up_to_date(path: Path, *, migrate: bool) -> bool:
    """Create or upgrade the database, and tell whether there was anything to do.

    All or nothing: whatever goes wrong, the file is as it was. The caller holds its lock.
    """
    is_new = not path.exists()
    try:
        revision = None if is_new else find_revision(path)
        if revision == HEAD:
            return False
        if revision not in {None, *REVISIONS}:
            raise DatabaseTooNewError(path, str(revision))
        if not migrate:
            raise DatabaseOutdatedError(path)
        (_create if revision is None else _upgrade)(path)
    except (sqlite3.Error, DBAPIError) as error:
        if is_new:
            remove_files(path)
        raise explain_failure(path, error) from error
    return True


def explain_failure(path: Path, error: Exception) -> DatabaseFileError:
    """Return what an error of SQLite means for the database at *path*."""
    origin = driver_error(error)
    if origin is not None and is_damage(origin):
        return DatabaseDamagedError(path, str(origin))
    return DatabaseUnusableError(path, outage(error) or str(origin or error))


def remove_files(path: Path) -> None:
    """Remove a database and what SQLite keeps beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _can_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _read_beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_MAGIC))


def find_revision(path: Path) -> str | None:
    """Return the revision of the schema; None for an empty file, refused if it is not ours."""
    connection = Connector(path, mode="rw").connect()
    try:
        finding = connection.driver.execute("PRAGMA quick_check(1)").fetchone()[0]
        if finding != "ok":
            raise DatabaseDamagedError(path, str(finding))
        names = set(inspect(connection.sql).get_table_names())
        if not names:
            return None
        if "alembic_version" not in names:
            raise NotADatabaseError(path)
        row = connection.driver.execute("SELECT version_num FROM alembic_version").fetchone()
        return None if row is None else str(row[0])
    finally:
        connection.close()


def _create(path: Path) -> None:
    # Names of tokens, addresses, who did what: for its owner, as is what SQLite keeps beside it.
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise DatabaseUnusableError(path, f"it cannot be made ({error.strerror})") from error
    # Much quicker than all migrations one after another, and tests see that it comes to the same.
    connection = Connector(path, mode="rwc").connect()
    try:
        connection.driver.execute("BEGIN IMMEDIATE")
        for statement in _creation():
            connection.driver.execute(statement)
        connection.driver.execute("INSERT INTO alembic_version VALUES (?)", [HEAD])
        connection.driver.execute("COMMIT")
    finally:
        connection.close()


@lru_cache
def _creation() -> tuple[str, ...]:
    tables = (_VERSIONS, *metadata.sorted_tables)
    indexes = [index for table in tables for index in table.indexes]
    elements: list[ExecutableDDLElement] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    return (*(str(element.compile(dialect=dialect())) for element in elements), *APPEND_ONLY)


def _upgrade(path: Path) -> None:
    # Alembic is slow to import, and most starts have nothing to upgrade.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    connection = Connector(path, mode="rwc").connect()
    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")
    config.attributes["connection"] = connection.sql
    try:
        # SQLite changes its schema inside transactions like anything else.
        connection.driver.execute("BEGIN IMMEDIATE")
        command.upgrade(config, "head")
        connection.driver.execute("COMMIT")
    finally:
        connection.close()
