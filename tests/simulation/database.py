"""A database that behaves to its clients as PostgreSQL does, on an SQLite in memory.

Whoever writes has the database to himself until he commits. Commits are numbered, and others are
notified of them late, twice or never; then they look for themselves. A connection can be lost
before a commit, or after it, and whoever had it does not know which. The lease ends by the clock
of the database.

A replica that is well renews its lease and reports every second. That is not simulated second by
second: what its rows say is worked out when somebody looks.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, NullPool, StaticPool, create_engine
from tests.simulation.world import BEGINNING, SECOND, Process, World, to_moment

from forewarn.domain.finding import Finding
from forewarn.ports.changes import StoreChange
from forewarn.ports.replicas import KnownReplica, ReplicaIdentity, RollCall
from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.changes import ChangeListeners
from forewarn.storage.columns import HintColumn
from forewarn.storage.connections import OpenedFile, SqliteConnection, SqliteSession, outage
from forewarn.storage.errors import StoreClosedError
from forewarn.storage.postgres_changes import last_change, read_changes
from forewarn.storage.reading import LEASE
from forewarn.storage.schema import create_schema
from forewarn.storage.store import SqlStore
from forewarn.storage.tables import LOCK_ROW
from forewarn.storage.topology_cache import TopologyCache
from forewarn.storage.transaction import Changes
from forewarn.storage.writer import UncertainCommitError, Writer

T = TypeVar("T")

LEASE_LASTS: Final = 3 * SECOND
EPOCH_OF_UNIX: Final = int(BEGINNING.timestamp()) * SECOND


class AwayError(Exception):
    """The database cannot be reached."""


class _Cursor:
    """Answers as psycopg does: placeholders are %s, and JSON is read."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def execute(self, statement: str, values: Sequence[object] = ()) -> "_Cursor":
        self._found = self._driver.execute(statement.replace("%s", "?"), values)
        return self

    def fetchone(self) -> Any:
        return self._found.fetchone()

    def fetchall(self) -> list[Any]:
        return [
            tuple(json.loads(each) if isinstance(each, str) else each for each in row)
            for row in self._found.fetchall()
        ]


class _NoFile(OpenedFile):
    """There is no file that could be moved away."""

    def __init__(self) -> None:
        pass

    def check(self) -> None:
        pass


@cache
def _template() -> sqlite3.Connection:
    """Return a database with all its tables, to copy."""
    driver = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    engine = create_engine(
        "sqlite://", creator=lambda: driver, poolclass=StaticPool, isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        create_schema(connection)
    driver.execute("DELETE FROM write_lock")
    driver.execute("INSERT INTO write_lock (name, last_change) VALUES (?, 0)", [LOCK_ROW])
    return driver


_opened: list[sqlite3.Connection] = []
# One for all databases, so that they share the statements it has compiled.
_ENGINE: Final = create_engine(
    "sqlite://",
    creator=lambda: _opened[-1],
    poolclass=NullPool,
    isolation_level="AUTOCOMMIT",
)


class Database:
    """What all replicas share."""

    def __init__(self, world: World, *, changes_kept: int = 1000) -> None:
        self.world = world
        self.changes_kept = changes_kept
        self.driver = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _template().backup(self.driver)
        self.driver.execute("PRAGMA foreign_keys=ON")
        _opened.append(self.driver)
        sql = _ENGINE.connect()
        _opened.clear()
        sql.begin()
        self.connection = SqliteConnection(sql, self.driver)
        self.is_away = False
        self.clients: list[SimulatedStore] = []
        self.replicas: dict[str, tuple[datetime, SimulatedReplicas, SimulatedStore]] = {}
        """By their ids: since when each is known."""
        self.committed: Callable[[Process, Changes], None] = lambda *_: None
        """Called when a transaction is about to be committed, before anybody else can see it."""
        self.begun: Callable[[], None] = lambda: None
        self.done: Callable[[], None] = lambda: None
        """Called when it is committed."""

    def reach(self, process: Process) -> None:
        """Fail if *process* cannot reach the database now."""
        if self.is_away or process.is_cut_off:
            raise AwayError("it is not available (no route to host)")

    def is_reachable(self, process: Process) -> bool:
        return process.is_well and not self.is_away

    def last_change(self) -> int:
        return last_change(_Cursor(self.driver))  # type: ignore[arg-type]

    def read_changes(self, told: int, last: int) -> tuple[StoreChange, ...]:
        return read_changes(_Cursor(self.driver), told, last)  # type: ignore[arg-type]

    def go_away(self) -> None:
        """Be unreachable for everybody."""
        for each in self.clients:
            each.note_contact()
        self.is_away = True

    def come_back(self) -> None:
        for each in self.clients:
            each.note_contact()
        self.is_away = False

    def hear(self) -> None:
        """Write down when each owner of tasks was heard of last."""
        for each in self.clients:
            each.report()

    def columns_now(self) -> int:
        return EPOCH_OF_UNIX + self.world.now


class _Session(SqliteSession):
    """The writer's connection of one replica."""

    def __init__(self, store: "SimulatedStore") -> None:
        self._store = store
        self._database = store.database
        super().__init__(store.database.connection, _NoFile())
        self._missed: tuple[StoreChange, ...] = ()

    def begin(self) -> None:
        database, process = self._database, self._store.process
        database.world.point(process, "begin")
        database.reach(process)
        database.hear()
        super().begin()
        database.begun()
        self._last = database.last_change()
        told = self._store.last_told
        self._missed = () if told == self._last else database.read_changes(told, self._last)
        for change in self._missed:
            self._store.cache.note(change)

    def commit(self, changes: Changes) -> Sequence[StoreChange]:
        database, process, world = self._database, self._store.process, self._database.world
        hint = changes.hint(self._last + 1)
        if hint is not None:
            self._record(hint)
        database.committed(process, changes)
        is_lost = world.faults.happens(world.rates.uncertain)
        if is_lost:
            is_done = world.faults.happens(0.5)
            world.injected[f"connection lost {'after' if is_done else 'before'} commit"] += 1
            world.note(
                process.name, f"loses its connection, {'after' if is_done else 'before'} commit"
            )
            self._driver.execute("COMMIT" if is_done else "ROLLBACK")
            if is_done:
                database.done()
            if is_done and hint is not None:
                self._store.notify_others(also_itself=True)
            raise UncertainCommitError from AwayError("it is not available (connection lost)")
        try:
            world.crash_point(process, "commit")
        except BaseException:
            self._driver.execute("ROLLBACK")
            raise
        self._driver.execute("COMMIT")
        database.done()
        if hint is not None:
            self._store.notify_others()
        world.point(process, "committed")
        return self._missed if hint is None else (*self._missed, hint)

    def _record(self, hint: StoreChange) -> None:
        number = hint.sequence
        self._driver.execute(
            "INSERT INTO changes (number, hint, changed_at) VALUES (?, ?, ?)",
            [number, json.dumps(HintColumn.write(hint)), self._database.columns_now()],
        )
        self._driver.execute(
            "DELETE FROM changes WHERE number <= ?", [number - self._database.changes_kept]
        )
        self._driver.execute("UPDATE write_lock SET last_change = ?", [number])

    def outage(self, error: BaseException) -> str | None:
        cause = error.__cause__ if isinstance(error, UncertainCommitError) else error
        return str(cause) if isinstance(cause, AwayError) else outage(error)


class SimulatedStore(SqlStore):
    """The Store port of one replica, which is *process*, whose tasks belong to *node*."""

    def __init__(self, database: Database, process: Process, *, node: str = "") -> None:
        self.database = database
        self.process = process
        self.node = node
        self.generation = 0
        self.holder = ""
        self.leads_under: Callable[[], int] = lambda: 0
        self.cache = self._cache = TopologyCache()
        self._listeners = ChangeListeners(database.last_change())
        self._listeners.add(self._cache.note)
        self._phase = database.world.timing.below(SECOND)
        """By how much the last report is older than now."""
        self._heard_at = database.world.now
        """When it was heard of last, if it is not well."""
        self._written_at = 0
        self._is_closed = False
        self._following = 0
        self._writer = Writer(
            "the database",
            _Session(self),
            self._cache,
            self._listeners,
            load=self.load_topology,
            is_threaded=False,
        )
        database.clients.append(self)
        process.changed = self.note_contact

    @property
    def last_told(self) -> int:
        """The number of the last change that listeners here were told of."""
        return self._listeners.last

    def is_writable(self) -> bool:
        return self._writer.is_writable and not self._is_closed

    def close(self) -> None:
        self._writer.close()
        self.leave()

    def leave(self) -> None:
        """Have nothing more to do with the database."""
        self._is_closed = True
        if self in self.database.clients:
            self.database.clients.remove(self)

    def query(self, look: Callable[[Connection], T]) -> T:
        """Return what *look* sees in one consistent snapshot, in words of the database."""
        if self._is_closed:
            raise StoreClosedError
        self.database.world.point(self.process, "read")
        try:
            self.database.reach(self.process)
        except AwayError as error:
            raise StoreUnavailableError(f"the database cannot be read now: {error}.") from error
        self.database.hear()
        return look(self.database.connection.sql)

    # What it hears of the others.

    def notify_others(self, *, also_itself: bool = False) -> None:
        """Have the others notified of a commit, sooner or later, perhaps twice."""
        for each in tuple(self.database.clients):
            if each is not self or also_itself:
                each.be_notified()

    def be_notified(self) -> None:
        world = self.database.world
        delay = world.timing.between(200, 5_000)
        if world.faults.happens(world.rates.lost_notification):
            world.injected["notification lost"] += 1
            delay = world.timing.between(200_000, SECOND)
        elif world.faults.happens(world.rates.doubled_notification):
            world.injected["notification doubled"] += 1
            world.later(world.timing.between(200, 500_000), self.follow, self.process)
        elif self._following:
            return  # it looks soon, and finds this, too
        self._following += 1
        world.later(delay, self._follow_once, self.process)

    def _follow_once(self) -> None:
        self._following -= 1
        self.follow()

    def follow(self) -> None:
        """Tell the listeners what others have committed; as storage/follower.py does."""
        if self._is_closed:
            return
        if not self.database.is_reachable(self.process):
            if not self._following:
                self._following += 1
                self.database.world.later(SECOND, self._follow_once, self.process)
            return
        told = self._listeners.last
        last = self.database.last_change()
        if last != told:
            self._listeners.tell(self.database.read_changes(told, last))

    # What others hear of it.

    def note_contact(self) -> None:
        """Fix when it was heard of last: it is about to become well, or not to be."""
        self._heard_at = self.heard_at

    @property
    def heard_at(self) -> int:
        """When it last renewed what it has, which it does every second while it is well."""
        if not self.database.is_reachable(self.process):
            return self._heard_at
        return max(self._heard_at, self.database.world.now - self._phase)

    def report(self) -> None:
        """Write down when its owner was heard of."""
        heard_at = self.heard_at
        if heard_at - self._written_at < SECOND or not self.generation:
            return
        self._written_at = heard_at
        self.database.driver.execute(
            "UPDATE owners SET heard_at = ? WHERE node = ? AND generation = ?",
            [EPOCH_OF_UNIX + heard_at, self.node, self.generation],
        )


def read_lease(database: Database) -> tuple[int, str, int]:
    """Return the epoch of the lease, who holds it, and until when."""
    row = database.driver.execute(
        "SELECT epoch, holder, coalesce(expires_at, 0) FROM leases WHERE name = ?", [LEASE]
    ).fetchone()
    if row is None:
        return 0, "", 0
    epoch, holder, expires_at = row
    for each in database.clients:
        # A holder that is well has renewed it within the last second.
        if expires_at and each.holder == holder and each.leads_under() == epoch:
            expires_at = max(expires_at, EPOCH_OF_UNIX + each.heard_at + LEASE_LASTS)
    return epoch, holder, expires_at


class SimulatedLeadership:
    """The Leadership port on a row, by the clock of the database; who is well renews it."""

    def __init__(self, store: SimulatedStore, holder: str) -> None:
        self._store = store
        self._database = store.database
        self._holder = holder
        self.gained: Callable[[int], None] = lambda _: None

    def clock_offset(self) -> timedelta:
        self._reach()
        return timedelta(microseconds=self._store.process.skew)

    def campaign(self) -> int | None:
        self._reach()
        epoch, _, expires_at = read_lease(self._database)
        if expires_at > self._database.columns_now():
            return None
        self._put(epoch + 1, self._holder, self._database.columns_now() + LEASE_LASTS)
        self.gained(epoch + 1)
        return epoch + 1

    def renew(self, epoch: int) -> bool:
        self._reach()
        found, holder, _ = read_lease(self._database)
        if (found, holder) != (epoch, self._holder):
            return False
        self._put(epoch, holder, self._database.columns_now() + LEASE_LASTS)
        return True

    def resign(self, epoch: int) -> None:
        with contextlib.suppress(StoreUnavailableError):
            self._reach()
            found, holder, _ = read_lease(self._database)
            if (found, holder) == (epoch, self._holder):
                self._put(epoch, holder, 0)

    def close(self) -> None:
        pass

    def _reach(self) -> None:
        self._database.world.point(self._store.process, "lease")
        try:
            self._database.reach(self._store.process)
        except AwayError as error:
            raise StoreUnavailableError(f"the database cannot be used now: {error}.") from error

    def _put(self, epoch: int, holder: str, expires_at: int) -> None:
        self._database.driver.execute(
            "INSERT INTO leases (name, epoch, holder, expires_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, "
            "expires_at = excluded.expires_at",
            [LEASE, epoch, holder, expires_at],
        )


class SimulatedReplicas:
    """The Replicas port: who has reported, and when each was heard of last."""

    def __init__(self, store: SimulatedStore, itself: ReplicaIdentity) -> None:
        self.itself = itself
        self.generation = 0
        self.examine: Callable[[], Iterable[Finding]] = tuple
        self._store = store
        self._database = store.database

    def report(self) -> None:
        """Be known from now on; later reports are worked out when somebody looks."""
        known = self._database.replicas
        known.setdefault(self.itself.replica_id, (self._database.world.moment, self, self._store))

    def now(self) -> datetime:
        return self._database.world.moment

    def leave(self) -> None:
        self._database.replicas.pop(self.itself.replica_id, None)

    def call_roll(self) -> RollCall:
        """Fail as any look at the database does."""
        holder, epoch = self._store.query(lambda _: self._find_leader())
        found = [
            KnownReplica(
                identity=replica.itself,
                started_at=started_at,
                seen_at=to_moment(store.heard_at),
                is_leader=replica.itself.replica_id == holder,
                findings=tuple(replica.examine()),
            )
            for started_at, replica, store in self._database.replicas.values()
        ]
        return RollCall(at=self.now(), epoch=epoch, replicas=tuple(found))

    def _find_leader(self) -> tuple[str, int]:
        epoch, holder, expires_at = read_lease(self._database)
        return holder if expires_at > self._database.columns_now() else "", epoch

    def is_following(self) -> bool:
        return self._database.is_reachable(self._store.process)
