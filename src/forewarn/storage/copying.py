"""Copies of a whole database, from either engine to either.

A copy of a database that nobody uses is a move: a server that starts on it continues where the
last one stopped. A copy of one that is in use lies behind as soon as it is made, so it is marked
as a backup, and the server that starts on it begins paused and far ahead (`operations.restoring`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Date,
    Integer,
    Select,
    String,
    Table,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    type_coerce,
    update,
)
from sqlalchemy.types import NullType

from forewarn.domain.access import ADMIN
from forewarn.operations.restoring import BACKUP_TAKEN_AT
from forewarn.storage.columns import Kept
from forewarn.storage.errors import (
    CopyRefusedError,
    DatabasePlace,
)
from forewarn.storage.schema import WORKS_WITH_NAME, SchemaState
from forewarn.storage.tables import (
    changes,
    leases,
    metadata,
    replicas,
    scenario_runs,
    sessions,
    settings,
    tokens,
    write_lock,
)

OWN: Final = (write_lock, changes, replicas, sessions)
"""What replicas tell each other, and who is signed in with them. It stays with its database."""
COPIED: Final = tuple(table for table in metadata.sorted_tables if table not in OWN)
"""All other tables; what rows refer to comes before them."""
CHUNK: Final = 10_000
"""How many rows are in memory at once."""

Tell = Callable[[str, int, int], None]
"""Told how far it is: the table, the rows written so far, and how many there will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """A database at one moment; nobody can write to one that *is_still* until it is closed."""

    connection: Connection
    is_still: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDatabaseState:
    """What a database of a server says of itself."""

    version: str
    encoding: str
    can_write: bool
    schema: SchemaState
    clock: str | None
    backup_taken_at: str | None


class CopyEnd(Protocol):
    """A database that is copied, or copied to."""

    @property
    def place(self) -> DatabasePlace:
        """Where it is."""

    def explain(self, error: Exception) -> Exception:
        """Return what an error of its driver means, and any other error as it is."""


class CopySource(CopyEnd, Protocol):
    """What can be copied."""

    def open(self) -> AbstractContextManager[SourceView]:
        """Look at it; refused if its schema is not that of this release."""


class CopyTarget(CopyEnd, Protocol):
    """What can be copied to."""

    def begin(self) -> AbstractContextManager[Connection]:
        """Begin the transaction that makes it; it has the schema of this release and no rows.

        After an error nothing is changed.
        """

    def write(self, connection: Connection, table: Table, rows: Sequence[list[Any]]) -> None:
        """Write *rows*, a chunk."""

    def refuse(self, connection: Connection) -> str | None:
        """Say what of the database of *connection* cannot be used there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """How many rows each table had, and whether the copy is marked as a backup."""

    rows: Mapping[str, int]
    is_backup: bool


def copy_database(
    source: CopySource,
    target: CopyTarget,
    *,
    at: datetime,
    is_backup: bool = False,
    tell: Tell = lambda *_: None,
) -> CopyReport:
    """Copy all of *source* to *target*, which must be empty, in one transaction.

    The copy is marked as a backup of *at* if *is_backup*, or if somebody uses the source.
    """
    with source.open() as seen:
        with blamed_on(source):
            if problem := target.refuse(seen.connection):
                raise CopyRefusedError(source.place, problem)
        with target.begin() as connection:
            rows = {}
            # What it says of itself the source says as well.
            connection.execute(delete(settings))
            for table in COPIED:
                rows[table.name] = 0
                for chunk in _read(source, seen.connection, table, tell):
                    with blamed_on(target):
                        target.write(connection, table, chunk)
                    rows[table.name] += len(chunk)
            with blamed_on(target):
                _verify(target.place, rows, connection)
                _make_own(connection, at)
                if is_backup or not seen.is_still:
                    mark_as_backup(connection, at)
                return CopyReport(rows=rows, is_backup=is_marked(connection))


@contextmanager
def blamed_on(end: CopyEnd) -> Iterator[None]:
    """Say of an error which of two databases it is about."""
    try:
        yield
    except Exception as error:
        explained = end.explain(error)
        if explained is error:
            raise
        raise explained from error


def mark_as_backup(connection: Connection, at: datetime) -> None:
    """Have the next server that starts on the database treat it as a backup of *at*."""
    name = settings.c.name == BACKUP_TAKEN_AT
    connection.execute(delete(settings).where(name, settings.c.value == ""))
    if not is_marked(connection):
        row = {"name": BACKUP_TAKEN_AT, "value": at.isoformat()}
        connection.execute(insert(settings).values(row))


def is_marked(connection: Connection) -> bool:
    """Tell whether the database is a backup that no server has been started on."""
    return bool(read_settings(connection).get(BACKUP_TAKEN_AT))


def read_settings(connection: Connection) -> dict[str, str]:
    """Return what the database says of itself."""
    look = select(settings.c.name, settings.c.value)
    return {row[0]: row[1] for row in connection.execute(look)}


def find_rows(connection: Connection) -> str | None:
    """Return the first table that has rows, not counting what an empty database says of itself."""
    for table in COPIED:
        look = select(literal(1)).select_from(table)
        if table is settings:
            look = look.where(settings.c.name != WORKS_WITH_NAME)
        if connection.scalar(select(exists(look))):
            return table.name
    return None


def has_running_scenario(connection: Connection) -> bool:
    """Tell whether a scenario has not ended yet."""
    running = exists().where(scenario_runs.c.finished_at.is_(None))
    return bool(connection.scalar(select(running)))


def _read(
    source: CopySource, connection: Connection, table: Table, tell: Tell
) -> Iterator[list[list[Any]]]:
    """Yield all rows in chunks, and tell how many of them have been taken."""
    with blamed_on(source):
        total = connection.scalar(select(func.count()).select_from(table)) or 0
        look = _look(table, connection.dialect.name)
        found = connection.execution_options(yield_per=CHUNK).execute(look)
    done = 0
    tell(table.name, done, total)
    with found:
        while rows := _next_rows(source, found):
            yield rows
            done += len(rows)
            tell(table.name, done, total)


def _next_rows(source: CopySource, found: CursorResult[Any]) -> list[list[Any]]:
    with blamed_on(source):
        return [list(row) for row in found.fetchmany(CHUNK)]


def _look(table: Table, engine: str) -> Select[Any]:
    """Return the look at every row as SQLite keeps it: no types but numbers, texts and bytes."""
    return select(*(_as_in_sqlite(column, engine) for column in table.columns))


def _as_in_sqlite(column: Column[Any], engine: str) -> ColumnElement[Any]:
    kind = column.type.kind if isinstance(column.type, Kept) else column.type
    plain: ColumnElement[Any] = type_coerce(column, NullType())
    if engine != "postgresql":
        return plain
    if isinstance(kind, JSON | Date):
        return cast(plain, String)
    return cast(plain, Integer) if isinstance(kind, Boolean) else plain


def _verify(place: DatabasePlace, rows: Mapping[str, int], connection: Connection) -> None:
    for table in COPIED:
        found = connection.scalar(select(func.count()).select_from(table))
        if found != rows[table.name]:
            problem = f"has {found} rows in {table.name}, but {rows[table.name]} were expected"
            raise CopyRefusedError(place, f"{problem}; nothing was copied")


def _make_own(connection: Connection, at: datetime) -> None:
    """Have the new database belong to nobody, and number its rows after those it has.

    Whoever can read the state directory of a replica must not be the admin of the copy.
    """
    connection.execute(update(leases).values(holder="", expires_at=None))
    is_live_admin = (tokens.c.name == ADMIN, tokens.c.revoked_at.is_(None))
    connection.execute(update(tokens).where(*is_live_admin).values(revoked_at=at))
    if connection.dialect.name != "postgresql":
        return
    for table in COPIED:
        if "sequence" in table.columns:
            numbering = func.pg_get_serial_sequence(table.name, "sequence")
            connection.execute(select(func.setval(numbering, func.max(table.c.sequence))))
