"""The changes that replicas on PostgreSQL tell each other of, by number."""

from dataclasses import replace
from typing import Any, Final

import psycopg
import structlog

from forewarn.ports.changes import StoreChange
from forewarn.storage.changes import read_hint
from forewarn.storage.tables import LOCK_ROW

CHANNEL: Final = "forewarn_changes"
CHANGES_KEPT: Final = 1000
"""How many changes a replica may be behind before it has to read everything."""

_LAST_CHANGE: Final = "SELECT last_change FROM write_lock WHERE name = %s"
# Others may commit more between two statements.
_CHANGES_BETWEEN: Final = """
SELECT number, hint FROM changes WHERE number > %s AND number <= %s ORDER BY number
"""
EVERYTHING: Final = StoreChange(
    has_work=True, has_ledger_grown=True, has_outbox_grown=True, has_tasks=True, is_gap=True
)

_log = structlog.get_logger(__name__)


def last_change(driver: psycopg.Connection[Any]) -> int:
    """Return the number of the last change, over all replicas."""
    row = driver.execute(_LAST_CHANGE, [LOCK_ROW]).fetchone()
    return int(row[0]) if row else 0


def read_changes(driver: psycopg.Connection[Any], told: int, last: int) -> tuple[StoreChange, ...]:
    """Return the changes after *told*, up to the *last*.

    It is a gap if some are not kept any more, if this release cannot read them, or if the database
    was replaced by an older one.
    """
    if last < told:
        advice = "If it was restored from a backup, stop all replicas and run: " + _MARK
        _log.error("database_older_than_before", last_change=last, told=told, advice=advice)
    rows = driver.execute(_CHANGES_BETWEEN, [told, last]).fetchall()
    changes = tuple(read_hint(hint) for _, hint in rows)
    is_whole = last >= told and [number for number, _ in rows] == [*range(told + 1, last + 1)]
    if not is_whole or None in changes:
        return (replace(EVERYTHING, sequence=last),)
    return tuple(change for change in changes if change)


_MARK: Final = "forewarn db mark-restored"
