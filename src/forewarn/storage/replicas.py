"""The replicas that share a PostgreSQL database: each has a row, and renews it every second."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, func, literal_column, select, true

from forewarn.domain.finding import Finding, read_finding
from forewarn.domain.task import SILENT_AFTER
from forewarn.ports.replicas import KnownReplica, ReplicaIdentity, RollCall, name_replica
from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.columns import MomentColumn, from_microseconds
from forewarn.storage.postgres import PostgresStore
from forewarn.storage.postgres_session import DATABASE_NOW, StandingConnection
from forewarn.storage.reading import LEASE
from forewarn.storage.tables import changes, leases, replicas

_FORGET_SECONDS: Final = 3600.0
"""A replica that was not heard of for so long is forgotten.

One that was killed is forgotten as soon as it is silent, if another serves with its files.
"""

# Nobody waits for it: a row is written by its own replica only, until it is forgotten.
_REPORT: Final = f"""
WITH forgotten AS (
    DELETE FROM replicas
    WHERE replica_id <> %(replica_id)s
      AND (seen_at < {DATABASE_NOW} - %(forget)s * 1000000
        OR seen_at < {DATABASE_NOW} - {SILENT_AFTER.seconds} * 1000000
          AND starts_with(replica_id, %(predecessors)s))
  ),
  heard AS (
    UPDATE owners SET heard_at = {DATABASE_NOW}
    WHERE node = %(node)s AND generation = %(generation)s
  )
INSERT INTO replicas
  (replica_id, name, address, version, settings, started_at, seen_at, last_change, findings)
VALUES
  (%(replica_id)s, %(name)s, %(address)s, %(version)s, %(settings)s::JSON,
   {DATABASE_NOW}, {DATABASE_NOW}, %(last_change)s, %(findings)s::JSON)
ON CONFLICT (replica_id) DO UPDATE
SET seen_at = excluded.seen_at, last_change = excluded.last_change, findings = excluded.findings
RETURNING seen_at
"""  # noqa: S608
_LEAVE: Final = "DELETE FROM replicas WHERE replica_id = %(replica_id)s"

_NOW: Final = literal_column(DATABASE_NOW, MomentColumn)
_LEASE: Final = select(
    leases.c.epoch, leases.c.holder, (leases.c.expires_at > _NOW).label("is_held")
).where(leases.c.name == LEASE)
_MISSED: Final = (
    select(func.max(changes.c.number).label("last"), func.min(changes.c.changed_at).label("since"))
    .where(changes.c.number > replicas.c.last_change, changes.c.changed_at <= replicas.c.seen_at)
    .lateral("missed")
)
_REPLICAS: Final = (
    select(replicas, _MISSED.c.last, _MISSED.c.since)
    .join(_MISSED, true())
    .order_by(replicas.c.name, replicas.c.address, replicas.c.replica_id)
)


def _elapsed_seconds() -> float:
    """Return seconds that no operator sets; on Linux, with the time for which the machine slept."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class DatabaseReplicas:
    """The Replicas port; *store* knows which changes this one, *itself*, was told of.

    What it learns on the way about the database, it tells the store: one with nothing to write
    would not find out whether it could.
    """

    def __init__(
        self, store: PostgresStore, itself: ReplicaIdentity, *, forget: float = _FORGET_SECONDS
    ) -> None:
        self.itself = itself
        self.generation = 0
        self.examine: Callable[[], Iterable[Finding]] = tuple
        self._store = store
        self._connection = StandingConnection(store.address)
        self._last_seen = from_microseconds(0), 0.0
        self._values = {
            "replica_id": itself.replica_id,
            "name": itself.name,
            "address": itself.address,
            "version": itself.version,
            "settings": json.dumps(dict(itself.settings)),
            "forget": forget,
            "node": store.node,
            "predecessors": name_replica(store.node, ""),
        }

    def report(self) -> None:
        """Say that this replica is there, and which changes it knows."""
        news = {
            "generation": self.generation,
            "last_change": self._store.last_told,
            "findings": json.dumps([asdict(each) for each in self.examine()]),
        }
        try:
            ((seen_at,),) = self._connection.run(_REPORT, {**self._values, **news})
        except StoreUnavailableError as error:
            self._store.note_contact(str(error))
            raise
        self._last_seen = from_microseconds(seen_at), _elapsed_seconds()
        self._store.note_contact(None)

    def now(self) -> datetime:
        """Return the time of the database, counted on since the last report."""
        seen_at, at = self._last_seen
        return seen_at + timedelta(seconds=_elapsed_seconds() - at)

    def leave(self) -> None:
        """Say that this replica ends; those who cannot be told find out by themselves."""
        with suppress(StoreUnavailableError):
            self._connection.run(_LEAVE, self._values)
        self._connection.close()

    def call_roll(self) -> RollCall:
        """Return all that are there, in one snapshot; this one as it is now."""
        roll, ours = self._store.query(_call_roll), self.itself.replica_id
        replicas = (
            replace(each, findings=tuple(self.examine()))
            if each.identity.replica_id == ours
            else each
            for each in roll.replicas
        )
        return replace(roll, replicas=tuple(replicas))

    def is_following(self) -> bool:
        """Tell whether this replica hears what the others change."""
        return self._store.is_following


def _call_roll(connection: Connection) -> RollCall:
    lease = connection.execute(_LEASE).one_or_none()
    leader = lease.holder if lease is not None and lease.is_held else None
    rows = connection.execute(_REPLICAS).all()
    return RollCall(
        at=connection.execute(select(_NOW)).scalar_one(),
        epoch=lease.epoch if lease is not None else 0,
        replicas=tuple(_known(row, is_leader=row.replica_id == leader) for row in rows),
    )


def _known(row: Row[Any], *, is_leader: bool) -> KnownReplica:
    identity = ReplicaIdentity(
        replica_id=row.replica_id,
        name=row.name,
        address=row.address,
        version=row.version,
        settings=row.settings,
    )
    return KnownReplica(
        identity=identity,
        started_at=row.started_at,
        seen_at=row.seen_at,
        is_leader=is_leader,
        changes_behind=0 if row.last is None else row.last - row.last_change,
        lag=timedelta(0) if row.since is None else row.seen_at - row.since,
        findings=tuple(map(read_finding, row.findings)),
    )
