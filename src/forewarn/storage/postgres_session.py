"""Connections to a PostgreSQL database, and the one that writes.

Only the libpq under psycopg reads the address, so whatever it understands is understood: several
hosts, TLS, a password file, a service. What it says in errors is cleared of passwords.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final, Self

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine
from sqlalchemy.exc import DBAPIError

from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.columns import HintColumn
from forewarn.storage.errors import DatabaseUnusableError, DatabaseUrlError, describe_place
from forewarn.storage.postgres_changes import CHANGES_KEPT, CHANNEL, read_changes
from forewarn.storage.postgres_outages import outage
from forewarn.storage.tables import LOCK_ROW
from forewarn.storage.transaction import Changes
from forewarn.storage.writer import UncertainCommitError

OLDEST_SERVER: Final = 14
"""The oldest release of PostgreSQL that is supported."""
DATABASE_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
"""The time of the database, as columns have it."""

# A replica that has lost the database, or the other way round, finds out within seconds.
_PARAMETERS: Final[Mapping[str, object]] = {
    "application_name": "forewarn",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}
# What the database does about a machine that is lost while it sends it rows, or waits for it: it
# would keep its locks and its connections for minutes or hours. Unix sockets have none of this.
_LIMITS: Final = """
SET lock_timeout = '10s';
SET TimeZone = 'UTC';
SET default_transaction_isolation = 'read committed';
SET tcp_user_timeout = '10s';
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3
"""
# A replica that stands still in the middle of a transaction would have all others wait for it. It
# has renewed its lease up to a second before, and is to be replaced six seconds after that.
_WRITER_LIMITS: Final = "SET idle_in_transaction_session_timeout = '4s'"
# Whoever may create tables in another schema of the search path could put theirs before ours. Every
# name here is qualified, because the path is that of the database, the role or the URL until then.
_FIND_SCHEMAS: Final = """
SELECT name, pg_catalog.to_regclass(pg_catalog.format('%I.write_lock', name)) IS NOT NULL
FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS path (name, place)
ORDER BY place
"""
READERS: Final = 12
"""How many may read at once."""
_READER_SECONDS: Final = 10.0

# Several statements at once where they can be: each way to the database and back costs as much as
# what is done there.
_TAKE_TURN: Final = f"""
BEGIN;
SELECT last_change FROM write_lock WHERE name = '{LOCK_ROW}' FOR UPDATE;
SAVEPOINT work
"""  # noqa: S608
_MOVE_MARK: Final = "RELEASE work; SAVEPOINT work"
_RECORD_CHANGE: Final = f"""
WITH added AS (
    INSERT INTO changes (number, hint, changed_at)
    VALUES (%(number)s, %(hint)s::JSON, {DATABASE_NOW})
  ),
  removed AS (DELETE FROM changes WHERE number <= %(number)s - %(kept)s),
  moved AS (UPDATE write_lock SET last_change = %(number)s WHERE name = %(lock)s)
SELECT pg_notify(%(channel)s, %(number)s::TEXT)
"""  # noqa: S608

_INSERT: Final = re.compile(
    r"(INSERT INTO [^()]+ \([^()]+\) VALUES )(\([^()]+\))(| ON CONFLICT .+)", re.DOTALL
)
"""What is inserted, the values of a row, and the rest."""


class _Cursor(psycopg.Cursor[Any]):
    """Has the symbol for NUL in place of NUL, the one character that PostgreSQL cannot keep."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        try:
            return super().execute(query, params, **options)
        except psycopg.DataError:  # by the driver, before anything was sent
            cleaned = without_nul(params)
            if cleaned == params:
                raise
            return super().execute(query, cleaned, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        # All rows in one message: the database waits without a limit for the rest of several.
        del options
        rows = list(params_seq)
        insert = _INSERT.fullmatch(query)
        before, row, after = insert.groups() if insert else ("", query, "")
        write = partial(psycopg.ClientCursor(self.connection).mogrify, row)
        try:
            written = [write(each) for each in rows]
        except psycopg.DataError:
            written = [write(without_nul(each)) for each in rows]
        separator = "," if insert else ";"
        super().execute(f"{before}{separator.join(written)}{after}", prepare=False)


def without_nul(params: Any) -> Any:
    """Return *params* with the symbol for NUL wherever a text has NUL."""
    if isinstance(params, str):
        return params.replace("\0", "␀")
    if isinstance(params, Mapping):
        return {key: without_nul(each) for key, each in params.items()}
    if isinstance(params, list | tuple):
        return type(params)([without_nul(each) for each in params])
    return params


class PostgresAddress:
    """Where a database is, as libpq reads it; `str` of it has no secret in it.

    All its connections use the schema that the first of them has found.
    """

    def __init__(self, url: str) -> None:
        self._schema = ""
        try:
            self._given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise DatabaseUrlError from None

    def __str__(self) -> str:
        return describe_place(self.place)

    @property
    def place(self) -> URL:
        """Where it is, for people."""
        hosts = str(self._given.get("host") or self._given.get("hostaddr") or "localhost")
        ports = str(self._given.get("port") or "")
        return URL.create(
            "postgresql+psycopg",
            host=hosts,
            port=int(ports) if ports.isdecimal() else None,
            database=str(self._given.get("dbname") or self._given.get("service") or ""),
        )

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection that begins nothing by itself."""
        whole: dict[str, Any] = {**_PARAMETERS, **self._given}
        conninfo = make_conninfo("", **whole)
        connection = psycopg.connect(conninfo, autocommit=True, cursor_factory=_Cursor)
        try:
            self._require_supported(connection.info)
            connection.execute(_LIMITS)
            self._schema = self._schema or self._find_schema(connection)
            path = sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(self._schema))
            connection.execute(path)
        except BaseException:
            connection.close()
            raise
        return connection

    def writing_engine(self) -> Engine:
        """Return what makes connections on which the store says when a transaction begins."""
        return create_engine(
            self.place,
            creator=self.connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
        )

    def reading_engine(self, size: int = 8, most: int = READERS) -> Engine:
        """Return what looks, each time at one moment."""
        return create_engine(
            self.place,
            creator=self.connect,
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=most - size,
            pool_timeout=_READER_SECONDS,
            isolation_level="REPEATABLE READ",
            execution_options={"postgresql_readonly": True},
        )

    def _find_schema(self, connection: psycopg.Connection[Any]) -> str:
        """Return the schema that has the tables, or is the first on the search path if none has."""
        known = connection.execute(_FIND_SCHEMAS).fetchall()
        found = [name for name, has_tables in known if has_tables] or [row[0] for row in known[:1]]
        if len(found) != 1:
            quoted = ", ".join(f'"{name}"' for name in found)
            problem = (
                f"it has tables of forewarn in the schemas {quoted}; select one with "
                "?options=-csearch_path%3DSCHEMA in its URL"
                if found
                else "its search_path contains no schema that exists; create the schema"
            )
            raise DatabaseUnusableError(self.place, problem)
        return str(found[0])

    def _require_supported(self, info: psycopg.ConnectionInfo) -> None:
        if info.server_version < OLDEST_SERVER * 10_000:
            version = server_version(info)
            problem = f"it is PostgreSQL {version}; forewarn needs {OLDEST_SERVER} or newer"
            raise DatabaseUnusableError(self.place, problem)


def server_version(info: psycopg.ConnectionInfo) -> str:
    """Return the release of the server, such as 15.4, without what a distribution adds."""
    return (info.parameter_status("server_version") or "").partition(" ")[0]


class StandingConnection:
    """A connection for short statements of one part, on any thread; opened again when it is lost.

    It is apart from those that others wait for.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._turn = Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, statement: str, values: Mapping[str, object]) -> psycopg.Cursor[Any]:
        """Run *statement*; a StoreUnavailableError if the database is away."""
        with self._turn:
            try:
                if self._connection is None:
                    self._connection = self._address.connect()
                return self._connection.execute(statement, values)
            except psycopg.Error as error:
                self.close()
                reason = outage(error)
                if reason is None:
                    raise
                sentence = f"{self._address} cannot be used now: {reason}."
                raise StoreUnavailableError(sentence) from error

    def close(self) -> None:
        """Close it; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@dataclass(frozen=True, slots=True)
class _Opened:
    """One connection as SQLAlchemy sees it, and as the driver does."""

    sql: Connection
    driver: psycopg.Connection[Any]


class PostgresSession:
    """The writer's connection, which is opened again when it was lost.

    Whoever has locked the row of `write_lock` writes, over all replicas. So changes are numbered
    in the order in which they are committed, and each work sees all that came before it. *note* is
    called with what others changed that nobody here was told of, before the first work.
    """

    def __init__(
        self,
        address: PostgresAddress,
        told: Callable[[], int],
        note: ChangeListener = lambda _: None,
    ) -> None:
        self._engine = address.writing_engine()
        self._told = told
        self._note = note
        self._opened: _Opened | None = None
        self._last = 0
        self._missed: tuple[StoreChange, ...] = ()
        self._is_marked = False
        self.total_changes = 0

    @property
    def sql(self) -> Connection:
        """What statements run on."""
        return (self._opened or self._open()).sql

    def begin(self) -> None:
        """Begin a transaction, after all those of other replicas that came before."""
        try:
            self._take_turn()
        except (psycopg.Error, DBAPIError):
            if self._opened is None or not self._opened.driver.broken:
                raise
            # It was lost since the last transaction: nothing is lost with it.
            self.close()
            self._take_turn()

    def commit(self, changes: Changes) -> Sequence[StoreChange]:
        """Commit; return what other replicas changed since this one was told, and the change."""
        hint = changes.hint(self._last + 1)
        if hint is not None:
            self._record(hint)
        try:
            ended = self._driver.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if self._driver.broken:
                raise UncertainCommitError from error
            raise
        if ended != "COMMIT":  # PostgreSQL undoes a transaction that failed, and calls it no error
            raise errors.InFailedSqlTransaction(f"it ended in a {ended}")
        self.total_changes += 1
        return self._missed if hint is None else (*self._missed, hint)

    def roll_back(self) -> None:
        """Undo all of the transaction, if there still is one."""
        if self._opened is None:
            return
        with suppress(psycopg.Error):
            self._opened.driver.execute("ROLLBACK")
        # What failed may fail again on it, as on a primary that has become a standby.
        self.close()

    def set_mark(self) -> None:
        """Remember what was done so far; a transaction begins with a mark."""
        if not self._is_marked:
            self._driver.execute(_MOVE_MARK, prepare=False)
        self._is_marked = False

    def require_sound(self) -> None:
        """Raise if a statement has failed since the mark, and the work took no notice."""
        if self._driver.info.transaction_status == TransactionStatus.INERROR:
            raise errors.InFailedSqlTransaction("a statement failed, and the work ignored it")

    def undo(self) -> None:
        """Take back what was done since the mark."""
        self._driver.execute("ROLLBACK TO work")

    def outage(self, error: BaseException) -> str | None:
        """Say what is wrong with the database or the way to it, if that is what *error* tells."""
        return outage(error)

    def close(self) -> None:
        """Close the connection; the next transaction opens another."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.sql.invalidate()
            opened.sql.close()
            opened.driver.close()

    @property
    def _driver(self) -> psycopg.Connection[Any]:
        # Not through SQLAlchemy each time: of a connection that was lost it would open another.
        return (self._opened or self._open()).driver

    def _open(self) -> "_Opened":
        sql = self._engine.connect()
        driver = sql.connection.driver_connection
        if not isinstance(driver, psycopg.Connection):
            raise TypeError(driver)
        sql.begin()
        driver.execute(_WRITER_LIMITS)
        self._opened = _Opened(sql, driver)
        return self._opened

    def _take_turn(self) -> None:
        answers = self._driver.execute(_TAKE_TURN, prepare=False)
        answers.nextset()
        row = answers.fetchone()
        if row is None:  # nobody would wait for anybody
            raise errors.UndefinedTable("write_lock is empty")
        self._last = row[0]
        self._is_marked = True
        told = self._told()
        self._missed = () if told == self._last else read_changes(self._driver, told, self._last)
        for change in self._missed:
            self._note(change)

    def _record(self, hint: StoreChange) -> None:
        values = {
            "number": hint.sequence,
            "hint": json.dumps(HintColumn.write(hint)),
            "kept": CHANGES_KEPT,
            "lock": LOCK_ROW,
            "channel": CHANNEL,
        }
        self._driver.execute(_RECORD_CHANGE, values)
