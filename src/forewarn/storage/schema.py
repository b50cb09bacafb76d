"""The schema of a database: is it there, is it ours, can this release use it; and upgrades."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from forewarn.storage.connections import Connector, driver_error, is_damage, outage
from forewarn.storage.errors import (
    DatabaseDamagedError,
    DatabaseOutdatedError,
    DatabasePlaceError,
    DatabaseTooNewError,
    DatabaseUnusableError,
    NotADatabaseError,
    Place,
)
from forewarn.storage.tables import APPEND_ONLY, ledger, metadata, write_lock

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
_OURS: Final = {_VERSIONS.name, ledger.name}
"""Tables that tell a database of ours from one of others, which may use Alembic as well."""
_DIALECTS: Final = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}
_ATTEMPTS: Final = 4
_RACES: Final = frozenset({"23505", "40P01", "42P07", "42710", "42723"})
"""The errors of PostgreSQL for those who come second: something exists by now, or a deadlock."""

Begin: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Begins a transaction that is committed at its end, unless there is an error."""


def prepare_database(engine: Engine, *, migrate: bool) -> bool:
    """Create or upgrade a PostgreSQL database, and tell whether there was anything to do.

    All or nothing, however many replicas do so at once. A database that cannot be used is refused
    with a DatabaseError; an error that says that the server is away comes through.
    """
    options = {"isolation_level": "READ COMMITTED", "postgresql_readonly": False}
    begin = engine.execution_options(**options).begin
    for is_last in (*repeat(False, _ATTEMPTS - 1), True):
        try:
            with begin() as connection:
                revision = _read_revision(connection, engine.url)
            return _bring_up_to_date(revision, begin, engine.url, migrate=migrate)
        except DBAPIError as error:
            if is_last or getattr(error.orig, "sqlstate", None) not in _RACES:
                raise _explain_refusal(engine.url, error) from error
    raise AssertionError


def bring_up_to_date(path: Path, *, migrate: bool) -> bool:
    """Create or upgrade the database in a file, and tell whether there was anything to do.

    All or nothing: whatever goes wrong, the file is as it was. The caller holds its lock.
    """
    is_new = not path.exists()
    try:
        revision = None if is_new else find_revision(path)
        return _bring_up_to_date(revision, partial(_begin, path), path, migrate=migrate)
    except (sqlite3.Error, DBAPIError) as error:
        if is_new:
            remove_files(path)
        raise explain_failure(path, error) from error


def find_revision(path: Path) -> str | None:
    """Return the revision of the schema; None for an empty file, refused if it is not ours."""
    connection = Connector(path, mode="rw").connect()
    try:
        finding = connection.driver.execute("PRAGMA quick_check(1)").fetchone()[0]
        if finding != "ok":
            raise DatabaseDamagedError(path, str(finding))
        return _read_revision(connection.sql, path)
    finally:
        connection.close()


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


def explain_failure(path: Path, error: Exception) -> DatabasePlaceError:
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


@contextmanager
def _begin(path: Path) -> Iterator[Connection]:
    # Names of tokens, addresses, who did what: for its owner, as is what SQLite keeps beside it.
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise DatabaseUnusableError(path, f"it cannot be made ({error.strerror})") from error
    connection = Connector(path, mode="rw").connect()
    try:
        connection.driver.execute("BEGIN IMMEDIATE")
        yield connection.sql
        connection.driver.execute("COMMIT")
    finally:
        connection.close()


def _explain_refusal(url: URL, error: DBAPIError) -> Exception:
    # What the server does not let us do is for the operator; that it is away is for the caller.
    if not isinstance(error, ProgrammingError):
        return error
    return DatabaseUnusableError(url, str(error.orig).partition("\n")[0])


def _read_revision(connection: Connection, place: Place) -> str | None:
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if not names >= _OURS:
        raise NotADatabaseError(place)
    return connection.scalar(select(_VERSIONS.c.version_num))


def _bring_up_to_date(revision: str | None, begin: Begin, place: Place, *, migrate: bool) -> bool:
    if not _is_outdated(revision, place):
        return False
    if not migrate:
        raise DatabaseOutdatedError(place)
    with begin() as connection:
        if revision is None:
            _create(connection)
            return True
        _lock_out_others(connection)
        # Another replica may have been quicker.
        is_outdated = _is_outdated(_read_revision(connection, place), place)
        if is_outdated:
            _upgrade(connection)
        return is_outdated


def _is_outdated(revision: str | None, place: Place) -> bool:
    if revision not in {None, *REVISIONS}:
        raise DatabaseTooNewError(place, str(revision))
    return revision != HEAD


def _create(connection: Connection) -> None:
    # Much quicker than all migrations one after another, and tests see that it comes to the same.
    for statement in _creation(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(insert(_VERSIONS).values(version_num=HEAD))
    connection.execute(insert(write_lock).values(name="writer", last_change=0))


@lru_cache
def _creation(engine: str) -> tuple[str, ...]:
    tables = (_VERSIONS, *metadata.sorted_tables)
    indexes = [index for table in tables for index in table.indexes]
    elements: list[ExecutableDDLElement] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    dialect = _DIALECTS[engine]()
    return (*(str(element.compile(dialect=dialect)) for element in elements), *APPEND_ONLY[engine])


def _lock_out_others(connection: Connection) -> None:
    """Let no other replica upgrade or write until the end of the transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        if inspect(connection).has_table(write_lock.name):
            connection.execute(select(write_lock).with_for_update())


def _upgrade(connection: Connection) -> None:
    # Alembic is slow to import, and most starts have nothing to upgrade.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "forewarn.storage:migrations")
    config.attributes["connection"] = connection
    # Both engines change their schema inside transactions like anything else.
    command.upgrade(config, "head")
