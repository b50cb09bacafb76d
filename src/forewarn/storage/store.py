"""What stores on both engines do alike, once their writer and their listeners are there."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from sqlalchemy import Connection, func, select

from forewarn.domain.notification import NotificationStatus
from forewarn.ports.changes import ChangeListener
from forewarn.ports.entries import Figures
from forewarn.ports.metrics import Distribution
from forewarn.ports.store import Reading, Transaction
from forewarn.storage.changes import ChangeListeners
from forewarn.storage.reading import SqlReading
from forewarn.storage.statements import IS_IN_FLIGHT
from forewarn.storage.tables import events, leases, outbox
from forewarn.storage.topology_cache import TopologyCache
from forewarn.storage.writer import Writer

_EVENTS: Final = (
    select(
        events.c.event_type, events.c.event_status, func.count(), func.count(events.c.overdue_at)
    )
    .where(IS_IN_FLIGHT)
    .group_by(events.c.event_type, events.c.event_status)
)
_NOTIFICATIONS: Final = select(outbox.c.status, func.count()).group_by(outbox.c.status)
_OLDEST: Final = (
    select(outbox.c.created_at)
    .where(outbox.c.status == NotificationStatus.WAITING)
    .order_by(outbox.c.created_at)
    .limit(1)
)
_EPOCH: Final = select(func.max(leases.c.epoch))


def count_figures(connection: Connection) -> Figures:
    """Count what *connection* sees."""
    found = connection.execute(_EVENTS).all()
    return Figures(
        events_in_flight={(kind, status): number for kind, status, number, _ in found},
        events_overdue=sum(overdue for *_, overdue in found),
        notifications=dict(connection.execute(_NOTIFICATIONS).all()),
        waiting_since=connection.scalar(_OLDEST),
        epoch=connection.scalar(_EPOCH) or 0,
    )


T = TypeVar("T")


class SqlStore(ABC):
    """The part of the Store port that does not depend on the engine."""

    _writer: Writer
    _listeners: ChangeListeners
    _cache: TopologyCache

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Have *work* done in a transaction; the future is resolved after commit and listeners."""
        return self._writer.submit(work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do *work* in a transaction and return its result, after commit and listeners."""
        return self._writer.write(work)

    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees in one consistent snapshot."""
        return self.query(lambda connection: look(SqlReading(connection, self._cache)))

    def load_topology(self) -> None:
        """Have the topology at hand, however long it takes."""
        self.read(lambda reading: reading.topology())

    def figures(self) -> Figures:
        """Count what there is."""
        return self.query(count_figures)

    @property
    def commits(self) -> Distribution:
        """How many works each commit had."""
        return self._writer.commits

    def listen(self, listener: ChangeListener) -> None:
        """Call *listener* after each commit, by whichever replica, that has a `StoreChange`."""
        self._listeners.add(listener)

    @abstractmethod
    def query(self, look: Callable[[Connection], T]) -> T:
        """Return what *look* sees in one consistent snapshot, in words of the database."""
