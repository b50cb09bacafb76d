"""The store in a PostgreSQL database that any number of replicas share."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.changes import ChangeListeners
from forewarn.storage.errors import DatabaseUnusableError, StoreClosedError
from forewarn.storage.follower import ChangeFollower
from forewarn.storage.postgres_changes import last_change
from forewarn.storage.postgres_outages import outage, will_pass
from forewarn.storage.postgres_session import (
    PostgresAddress,
    PostgresSession,
)
from forewarn.storage.schema import prepare_database
from forewarn.storage.store import SqlStore
from forewarn.storage.topology_cache import TopologyCache
from forewarn.storage.writer import Writer

T = TypeVar("T")

_LOST_SECONDS: Final = 5.0
"""A database that has not answered for so long, and should have, cannot be used."""


def open_postgres(url: str, *, migrate: bool = True, node: str = "") -> "PostgresStore":
    """Open the store in a database; create or upgrade its schema if *migrate*.

    Whatever is wrong with it is refused with a DatabaseError. While it is away, or starting, that
    is a StoreUnavailableError: it may be worth the wait.
    """
    address = PostgresAddress(url)
    engine = address.writing_engine()
    try:
        prepare_database(engine, migrate=migrate)
        return PostgresStore(address, node=node)
    except (psycopg.Error, DBAPIError) as error:
        reason = outage(error)
        if reason is None:
            raise
        if not will_pass(error):
            raise DatabaseUnusableError(address.place, reason) from error
        raise StoreUnavailableError(f"{address} cannot be used now: {reason}.") from error
    finally:
        engine.dispose()


class PostgresStore(SqlStore):
    """The Store port on a database that has the schema already; `open_postgres` sees to that.

    *node* is where this replica keeps its files, by a name of its own.
    """

    def __init__(self, address: PostgresAddress, *, node: str = "") -> None:
        with address.connect() as connection:
            self._listeners = ChangeListeners(last_change(connection))
        self.address = address
        self.node = node
        self._reading = address.reading_engine()
        # Listeners also read when all others are busy: whoever writes waits for them.
        self._listening = address.reading_engine(size=1, most=2)
        self._cache = TopologyCache()
        self._is_closed = False
        self._contact: float | None = None
        self._listeners.add(self._cache.note)
        self._session = PostgresSession(
            address, told=lambda: self._listeners.last, note=self._cache.note
        )
        self._writer = Writer(
            str(address),
            self._session,
            self._cache,
            self._listeners,
            load=self.load_topology,
        )
        self._follower = ChangeFollower(address, self._listeners)

    def is_writable(self) -> bool:
        """Tell whether the database could be used when it was last tried, and lately."""
        contact = self._contact
        is_lost = contact is not None and time.monotonic() - contact > _LOST_SECONDS
        return self._writer.is_writable and not is_lost

    def note_contact(self, problem: str | None) -> None:
        """Note that the database was there just now, or what was wrong; from then on regularly."""
        if problem is not None:
            self._writer.note_writable(problem)
            return
        self._contact = time.monotonic()
        if not self._writer.is_writable:
            self._writer.submit(lambda _: None)

    @property
    def last_told(self) -> int:
        """The number of the last change that listeners here were told of."""
        return self._listeners.last

    @property
    def is_following(self) -> bool:
        """Whether changes of other replicas are heard of."""
        return self._follower.is_following

    def close(self) -> None:
        """Finish what was submitted, then close the connections."""
        if self._is_closed:
            return
        self._writer.close()
        self._is_closed = True
        self._follower.close()
        self._session.close()
        self._reading.dispose()
        self._listening.dispose()

    def query(self, look: Callable[[Connection], T]) -> T:
        """Return what *look* sees in one consistent snapshot, in words of the database."""
        if self._is_closed:
            raise StoreClosedError
        try:
            try:
                return self._look_once(look)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # The connection had been idle, and the database is another since.
                return self._look_once(look)
        except (psycopg.Error, DBAPIError, PoolTimeoutError) as error:
            reason = outage(error)
            if reason is None:
                raise
            sentence = f"{self.address} cannot be read now: {reason}."
            raise StoreUnavailableError(sentence) from error

    def _look_once(self, look: Callable[[Connection], T]) -> T:
        is_listener = self._writer.is_current_thread()
        engine = self._listening if is_listener else self._reading
        with engine.connect() as connection:
            return look(connection)
