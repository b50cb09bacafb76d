"""The schema of a database: is it there, is it ours, can this release use it; and upgrades."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from typing import Final, TypeAlias

import structlog
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
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
    DatabasePlace,
    DatabasePlaceError,
    DatabaseTooNewError,
    DatabaseUnreleasedError,
    DatabaseUnusableError,
    NotADatabaseError,
)
from forewarn.storage.tables import LOCK_ROW, audit, ledger, metadata, settings, write_lock

REVISIONS: Final = ("0100",)
"""Every migration, oldest first; a test compares it with the scripts.

Lower numbers are those of versions that were never released.
"""

HEAD: Final = REVISIONS[-1]

WORKS_WITH: Final = "0100"
"""The oldest release, by its newest migration, that can use a database of this one.

Every database says so, that replicas of both can share it during an upgrade. A migration which
takes away something that releases still use raises it to the first that does without.
"""

_MAGIC: Final = b"SQLite format 3\x00"
_VERSIONS: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_OURS: Final = {_VERSIONS.name, ledger.name, settings.name}
"""Tables that tell a database of ours from one of others, which may use Alembic as well."""
_DIALECTS: Final = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}
_APPEND_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite": tuple(
        f"CREATE TRIGGER {table.name}_refuses_{verb} BEFORE {verb} ON {table.name} {unless}"
        f"BEGIN SELECT RAISE(ABORT, '{table.name} is append-only'); END"
        for table in (ledger, audit)
        for verb, unless in (
            ("update", ""),
            (
                "delete",
                """WHEN NOT EXISTS (SELECT 1 FROM settings WHERE name = 'history_retention'
                AND CAST(value AS INTEGER) >= 86400 AND OLD.at <
                (CAST(strftime('%s', 'now') AS INTEGER) - CAST(value AS INTEGER)) * 1000000) """,
            ),
        )
    ),
    "postgresql": (
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
          IF EXISTS (SELECT FROM settings WHERE name = 'history_retention'
            AND nullif(value, '')::bigint >= 86400 AND OLD.at <
            (floor(extract(epoch FROM now()))::bigint - nullif(value, '')::bigint) * 1000000)
          THEN RETURN OLD; END IF;
        END IF;
        RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' is append-only';
        END $$""",
        *(
            f"CREATE TRIGGER {table.name}_refuses_{name} "
            f"BEFORE {verbs} ON {table.name} {each}EXECUTE FUNCTION refuse_change()"
            for table in (ledger, audit)
            for name, verbs, each in (
                ("change", "UPDATE OR TRUNCATE", ""),
                ("delete", "DELETE", "FOR EACH ROW "),
            )
        ),
    ),
}
"""What keeps the records as they were written, whoever has the database open, by engine.

Only what is older than the stored `history_retention`, by the database's clock, can be deleted.
"""
SCRIPTS: Final = "forewarn.storage:migrations"
WORKS_WITH_NAME: Final = "schema_works_with"
_ATTEMPTS: Final = 4
_RACES: Final = frozenset({"23505", "40P01", "42P07", "42710", "42723"})
"""The errors of PostgreSQL for those who come second: something exists by now, or a deadlock."""

_log = structlog.get_logger(__name__)

Begin: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Begins a transaction that is committed at its end, unless there is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """Which schema a database has; no *revision* for none. *works_with* is what it says of it."""

    revision: str | None
    works_with: str | None = None

    @property
    def is_current(self) -> bool:
        """Whether this release has nothing to do: its own, or a newer one that works with it."""
        return self.revision == HEAD or (self._is_newer and self.works_with in REVISIONS)

    @property
    def is_too_new(self) -> bool:
        """Whether this release cannot use it."""
        return self._is_newer and not self.is_current

    @property
    def is_unreleased(self) -> bool:
        """Whether it was made by a version that was never released."""
        return self.revision is not None and self.revision < REVISIONS[0]

    def require_usable(self, place: DatabasePlace) -> None:
        """Refuse the database at *place* if this release can neither use nor upgrade it."""
        if self.is_unreleased:
            raise DatabaseUnreleasedError(place, str(self.revision))
        if self.is_too_new:
            raise DatabaseTooNewError(place, str(self.revision))

    def require_own(self, place: DatabasePlace) -> None:
        """Refuse the database at *place* unless it has exactly the schema of this release."""
        self.require_usable(place)
        if self.revision != HEAD:
            raise DatabaseOutdatedError(place)

    @property
    def _is_newer(self) -> bool:
        return not self.is_unreleased and self.revision not in {None, *REVISIONS}


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
                check_encoding(connection, engine.url)
                state = read_schema(connection, engine.url)
            return _bring_up_to_date(state, begin, engine.url, migrate=migrate)
        except DBAPIError as error:
            if is_last or getattr(error.orig, "sqlstate", None) not in _RACES:
                raise _explain_refusal(engine.url, error) from error
    raise AssertionError


def bring_up_to_date(path: Path, *, migrate: bool) -> bool:
    """Create or upgrade the database in a file, and tell whether there was anything to do.

    All or nothing: whatever goes wrong, the file is as it was. The caller holds its lock.
    """
    is_new = not path.exists()
    state = SchemaState(revision=None) if is_new else find_schema(path)
    try:
        return _bring_up_to_date(state, partial(_begin, path), path, migrate=migrate)
    except (sqlite3.Error, DBAPIError) as error:
        if is_new:
            remove_files(path)
        raise explain_failure(path, error) from error


def find_schema(path: Path) -> SchemaState:
    """Return which schema the database in a file has; refused if it is damaged or not ours."""
    try:
        connection = Connector(path, mode="rw").connect()
        try:
            finding = connection.driver.execute("PRAGMA quick_check(1)").fetchone()[0]
            if finding != "ok":
                raise DatabaseDamagedError(path, str(finding))
            return read_schema(connection.sql, path)
        finally:
            connection.close()
    except (sqlite3.Error, DBAPIError) as error:
        raise explain_failure(path, error) from error


def check_file(path: Path) -> None:
    """Refuse what is not, and cannot become, a database; look only, touch nothing."""
    try:
        if path.exists() and not path.is_file():
            raise DatabaseUnusableError(path, "it is not a regular file")
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
        problem = "its directory is not writable; give the server permission"
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
    path.unlink(missing_ok=True)
    remove_companions(path)


def remove_companions(path: Path) -> None:
    """Remove what SQLite keeps beside a database."""
    for suffix in ("-journal", "-wal", "-shm"):
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
        raise DatabaseUnusableError(path, f"it cannot be created ({error.strerror})") from error
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


def check_encoding(connection: Connection, url: URL) -> None:
    """Refuse a PostgreSQL database that is not in UTF-8."""
    # Others cannot keep every name and description, and say so only when one is written.
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise DatabaseUnusableError(url, f"its encoding is {encoding}; create it with UTF8")


def read_schema(connection: Connection, place: DatabasePlace) -> SchemaState:
    """Return which schema the database at *place* has; refused if it is not ours."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return SchemaState(revision=None)
    if not names >= _OURS:
        raise NotADatabaseError(place)
    revisions = connection.scalars(select(_VERSIONS.c.version_num)).all()
    if len(revisions) != 1:
        raise NotADatabaseError(place)
    return SchemaState(
        revision=revisions[0],
        works_with=connection.scalar(
            select(settings.c.value).where(settings.c.name == WORKS_WITH_NAME)
        ),
    )


def _bring_up_to_date(
    state: SchemaState, begin: Begin, place: DatabasePlace, *, migrate: bool
) -> bool:
    state.require_usable(place)
    if state.is_current:
        if state.revision != HEAD:
            _log.info("newer_schema", schema=state.revision, known=HEAD)
        return False
    if not migrate:
        raise DatabaseOutdatedError(place)
    with begin() as connection:
        if state.revision is None:
            create_schema(connection)
            return True
        _lock_out_others(connection)
        # Another replica may have been quicker, and of a newer release.
        found = read_schema(connection, place)
        found.require_usable(place)
        if not found.is_current:
            _upgrade(connection)
        return not found.is_current


def create_schema(connection: Connection) -> None:
    """Create all that an empty database needs, in the transaction of its caller."""
    # Much quicker than all migrations one after another, and tests see that it comes to the same.
    for statement in _creation(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(insert(_VERSIONS).values(version_num=HEAD))
    connection.execute(insert(write_lock).values(name=LOCK_ROW, last_change=0))
    _say_works_with(connection)


@lru_cache
def _creation(engine: str) -> tuple[str, ...]:
    tables = (_VERSIONS, *metadata.sorted_tables)
    indexes = [index for table in tables for index in table.indexes]
    elements: list[ExecutableDDLElement] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    dialect = _DIALECTS[engine]()
    return (*(str(element.compile(dialect=dialect)) for element in elements), *_APPEND_ONLY[engine])


def _lock_out_others(connection: Connection) -> None:
    """Let no other replica upgrade or write until the end of the transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        connection.execute(select(write_lock).with_for_update())


def _upgrade(connection: Connection) -> None:
    # Alembic is slow to import, and most starts have nothing to upgrade.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.attributes["connection"] = connection
    # Both engines change their schema inside transactions like anything else.
    command.upgrade(config, "head")
    _say_works_with(connection)


def _say_works_with(connection: Connection) -> None:
    connection.execute(delete(settings).where(settings.c.name == WORKS_WITH_NAME))
    connection.execute(insert(settings).values(name=WORKS_WITH_NAME, value=WORKS_WITH))
