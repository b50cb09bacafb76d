"""Who leads where replicas share a database: whoever has the lease, by the clock of the database.

A lease is renewed every second and lasts three. To take it, a replica waits for its turn to write:
so no transaction of the leader before can be committed afterwards.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from forewarn.ports.store import StoreUnavailableError
from forewarn.storage.columns import from_microseconds
from forewarn.storage.postgres_session import DATABASE_NOW, PostgresAddress, StandingConnection
from forewarn.storage.reading import LEASE
from forewarn.storage.tables import LOCK_ROW

_LEASE_SECONDS: Final = 3.0
"""How long a leader is taken for alive that does not say so."""

_NOW: Final = f"SELECT {DATABASE_NOW}"
_END: Final = f"({DATABASE_NOW} + %(seconds)s * 1000000)::BIGINT"
_IS_HELD: Final = f"SELECT 1 FROM leases WHERE name = %(lease)s AND expires_at > {DATABASE_NOW}"  # noqa: S608
_TAKE: Final = f"""
WITH turn AS (SELECT 1 FROM write_lock WHERE name = %(lock)s FOR UPDATE)
INSERT INTO leases AS held (name, epoch, holder, expires_at)
SELECT %(lease)s, 1, %(holder)s, {_END} FROM turn
ON CONFLICT (name) DO UPDATE
SET epoch = held.epoch + 1, holder = excluded.holder, expires_at = excluded.expires_at
WHERE coalesce(held.expires_at, 0) <= {DATABASE_NOW}
RETURNING epoch
"""  # noqa: S608
_IS_OURS: Final = "name = %(lease)s AND epoch = %(epoch)s AND holder = %(holder)s"
_RENEW: Final = f"UPDATE leases SET expires_at = {_END} WHERE {_IS_OURS}"  # noqa: S608
_RESIGN: Final = f"UPDATE leases SET expires_at = 0 WHERE {_IS_OURS}"  # noqa: S608


class DatabaseLeadership:
    """The Leadership port on a row that all replicas want; *holder* is the name of this one.

    Its connection is its own: a lease is renewed however long others write.
    """

    def __init__(
        self,
        address: PostgresAddress,
        holder: str,
        *,
        now: Callable[[], datetime],
        seconds: float = _LEASE_SECONDS,
    ) -> None:
        self._connection = StandingConnection(address)
        self._now = now
        self._values = {"lease": LEASE, "lock": LOCK_ROW, "holder": holder, "seconds": seconds}

    def clock_offset(self) -> timedelta:
        """Return by how much this machine's clock is ahead of the database's, at least.

        The database may have looked at its clock at any moment between question and answer, so a
        slow answer explains a difference. Negative if this machine's clock is behind.
        """
        asked_at, began = self._now(), time.monotonic()
        (at,) = self._run(_NOW).fetchone() or (0,)
        ahead = asked_at - from_microseconds(at)
        latest = ahead + timedelta(seconds=time.monotonic() - began)
        return max(ahead, timedelta(0)) + min(latest, timedelta(0))

    def campaign(self) -> int | None:
        """Return a new epoch if the lease is this replica's now, and none while others hold it."""
        if self._run(_IS_HELD).rowcount:
            return None
        row = self._run(_TAKE).fetchone()
        return int(row[0]) if row else None

    def renew(self, epoch: int) -> bool:
        """Hold on to the lease of *epoch*; tell whether it is still this replica's."""
        return self._run(_RENEW, epoch=epoch).rowcount == 1

    def resign(self, epoch: int) -> None:
        """Let others have the lease of *epoch* at once, if it is still this replica's."""
        # Those who cannot be told wait until it is over.
        with suppress(StoreUnavailableError):
            self._run(_RESIGN, epoch=epoch)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def _run(self, statement: str, **values: object) -> psycopg.Cursor[Any]:
        return self._connection.run(statement, {**self._values, **values})
