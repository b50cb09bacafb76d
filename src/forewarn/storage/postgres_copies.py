"""A PostgreSQL database as what is copied or copied to, and what it says of itself."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import psycopg
from psycopg import sql
from sqlalchemy import URL, Boolean, Connection, Row, Table, text
from sqlalchemy.exc import DBAPIError

from forewarn.domain.task import SILENT_AFTER
from forewarn.operations.restoring import BACKUP_TAKEN_AT
from forewarn.storage.copying import (
    ServerDatabaseState,
    SourceView,
    blamed_on,
    find_rows,
    has_running_scenario,
    mark_as_backup,
    read_settings,
)
from forewarn.storage.errors import CopyRefusedError, DatabaseUnusableError
from forewarn.storage.postgres_outages import outage
from forewarn.storage.postgres_session import (
    DATABASE_NOW,
    PostgresAddress,
    server_version,
    without_nul,
)
from forewarn.storage.schema import check_encoding, create_schema, prepare_database, read_schema

IsolationLevel: TypeAlias = Literal["READ COMMITTED", "REPEATABLE READ"]

# Not the name of a replica, and nothing that anybody waits for.
_ERRAND: Final = """
SET application_name = 'forewarn db';
SET idle_in_transaction_session_timeout = 0;
SET statement_timeout = 0
"""
_SIGNS_OF_LIFE: Final = f"""
WITH clock AS (SELECT {DATABASE_NOW} AS now),
  replica AS (SELECT coalesce(max(seen_at), 0) AS seen_at FROM replicas),
  lease AS (SELECT coalesce(max(expires_at), 0) AS expires_at FROM leases)
SELECT seen_at, expires_at,
  expires_at > now OR seen_at > now - {SILENT_AFTER.seconds} * 1000000 AS is_recent,
  EXISTS (SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'forewarn') AS is_connected
FROM clock, replica, lease
"""  # noqa: S608
_LOOK_AGAIN_SECONDS: Final = 0.5
_KEEP_OUT_WRITERS: Final = "LOCK TABLE write_lock IN EXCLUSIVE MODE"
_CAN_WRITE: Final = """
SELECT current_setting('transaction_read_only') = 'off'
  AND CASE WHEN to_regclass('write_lock') IS NULL
    THEN coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
    ELSE has_table_privilege('write_lock', 'UPDATE') AND has_table_privilege('ledger', 'INSERT')
  END
"""


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database of a server, whether replicas use it or not."""

    address: PostgresAddress

    @property
    def place(self) -> URL:
        """Where it is."""
        return self.address.place

    def explain(self, error: Exception) -> Exception:
        """Return what an error of PostgreSQL means, and any other error as it is."""
        origin = error.orig if isinstance(error, DBAPIError) else error
        if not isinstance(origin, psycopg.Error):
            return error
        reason = outage(origin) or str(origin).partition("\n")[0]
        return DatabaseUnusableError(self.place, reason)

    @contextmanager
    def open(self) -> Iterator[SourceView]:
        """Look at it; while no replica uses it, none can write to it."""
        with self._lock_if_unused() as is_still, self._connect("REPEATABLE READ") as connection:
            yield SourceView(connection=connection, is_still=is_still)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Begin the transaction that makes it."""
        with self._connect("READ COMMITTED") as connection:
            with blamed_on(self):
                self._make_ready(connection)
            yield connection
            with blamed_on(self):
                # The first to look would otherwise believe that every table is small.
                connection.execute(text("ANALYZE"))
                connection.commit()

    def write(self, connection: Connection, table: Table, rows: Sequence[list[Any]]) -> None:
        """Write *rows*, which are as SQLite keeps them."""
        truths = [
            place for place, column in enumerate(table.columns) if isinstance(column.type, Boolean)
        ]
        names = [sql.Identifier(column.name) for column in table.columns]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table.name), sql.SQL(", ").join(names)
        )
        cursor = driver_of(connection).cursor()
        with cursor.copy(statement) as copy:
            for row in rows:
                for place in truths:
                    row[place] = None if row[place] is None else bool(row[place])
                copy.write_row([without_nul(value) for value in row])

    def refuse(self, connection: Connection) -> str | None:
        """Say what of the database of *connection* only a file can be used for."""
        if read_settings(connection).get("clock") == "virtual":
            return "uses the virtual clock, which needs SQLite"
        if has_running_scenario(connection):
            return (
                "has a running scenario, and scenarios need SQLite; stop it with: forewarn "
                "scenario stop"
            )
        return None

    def examine(self) -> ServerDatabaseState:
        """Look at the database, and change nothing."""
        with self._connect("READ COMMITTED") as connection, blamed_on(self):
            info = driver_of(connection).info
            schema = read_schema(connection, self.place)
            told = {} if schema.revision is None else read_settings(connection)
            return ServerDatabaseState(
                version=server_version(info),
                encoding=info.parameter_status("server_encoding") or "",
                can_write=bool(connection.scalar(text(_CAN_WRITE))),
                schema=schema,
                clock=told.get("clock"),
                backup_taken_at=told.get(BACKUP_TAKEN_AT) or None,
            )

    def upgrade(self) -> bool:
        """Create or upgrade its schema; tell whether there was anything to do."""
        with blamed_on(self):
            return prepare_database(self.address.writing_engine(), migrate=True)

    def mark_as_backup(self, at: datetime, *, wait: Callable[[], object] = lambda: None) -> None:
        """Have the next server that starts on it treat it as a backup of *at*.

        A dump of a running service says of its replicas that they are there, wherever it is
        restored. Those that are report again within seconds; *wait* is called before that is
        waited for.
        """
        with self._connect("READ COMMITTED") as connection, blamed_on(self):
            read_schema(connection, self.place).require_own(self.place)
            before = _look_for_life(connection)
            ends = time.monotonic() + SILENT_AFTER.total_seconds()
            is_doubtful = self._lock_and_look(connection, before)
            if is_doubtful:
                wait()
            while is_doubtful and time.monotonic() < ends:
                connection.rollback()
                time.sleep(_LOOK_AGAIN_SECONDS)
                is_doubtful = self._lock_and_look(connection, before)
            mark_as_backup(connection, at)
            connection.commit()

    def _lock_and_look(self, connection: Connection, before: Row[Any]) -> bool:
        """Keep replicas from writing; tell whether there may be any, and refuse if one is found."""
        # PostgreSQL shows who is connected as it was at the first look in a transaction.
        connection.rollback()
        # Before the look: whoever is writing now is seen after it.
        connection.execute(text(_KEEP_OUT_WRITERS))
        now = _look_for_life(connection)
        has_reported = now.seen_at > before.seen_at or now.expires_at > before.expires_at
        if now.is_connected or has_reported:
            raise CopyRefusedError(self.place, "is in use; stop every replica first")
        return bool(now.is_recent)

    @contextmanager
    def _connect(self, isolation_level: IsolationLevel) -> Iterator[Connection]:
        engine = self.address.writing_engine().execution_options(isolation_level=isolation_level)
        with blamed_on(self):
            connection = engine.connect()
        with connection:
            with blamed_on(self):
                driver_of(connection).execute(_ERRAND)
                driver_of(connection).commit()  # or a later rollback would undo it
                check_encoding(connection, self.place)
            yield connection

    @contextmanager
    def _lock_if_unused(self) -> Iterator[bool]:
        """Keep replicas from writing, if there are none and the user has permission to."""
        with self._connect("READ COMMITTED") as connection:
            with blamed_on(self):
                read_schema(connection, self.place).require_own(self.place)
                is_still = self._lock(connection)
                signs = _look_for_life(connection)
                if is_still and (signs.is_recent or signs.is_connected):
                    connection.rollback()
                    is_still = False
            yield is_still

    def _lock(self, connection: Connection) -> bool:
        try:
            connection.execute(text(f"{_KEEP_OUT_WRITERS} NOWAIT"))
        except DBAPIError:
            # Somebody writes after all, or this is a standby, or a user who may only read.
            connection.rollback()
            return False
        return True

    def _make_ready(self, connection: Connection) -> None:
        state = read_schema(connection, self.place)
        if state.revision is None:
            create_schema(connection)
            return
        state.require_own(self.place)
        connection.execute(text(_KEEP_OUT_WRITERS))
        if find_rows(connection) is not None:
            raise CopyRefusedError(self.place, "is not empty; create a new database")


def _look_for_life(connection: Connection) -> Row[Any]:
    return connection.execute(text(_SIGNS_OF_LIFE)).one()


def driver_of(connection: Connection) -> psycopg.Connection[Any]:
    """Return the connection of the driver."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(driver)
    return driver
