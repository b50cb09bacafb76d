"""History that is old enough to go, and the line of the audit that says what went.

Ledger and audit are append-only; this is the one exception, and the database makes it only for what
is older than the retention that it has stored.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.phrases import say_moment
from forewarn.operations.context import Context
from forewarn.operations.pausing import find_pause
from forewarn.operations.recording import record_audit
from forewarn.ports.entries import History
from forewarn.ports.store import HISTORY_RETENTION, Reading, Transaction
from forewarn.wording.durations import format_duration

_MARGIN: Final = timedelta(hours=1)
"""How much longer history is kept, as the clock of the database may be behind that of a server."""


def settle_retention(
    tx: Transaction, context: Context, retention: timedelta | None
) -> datetime | None:
    """Store how long history is kept, and return the moment before which it may go, if any.

    A paused server forgets nothing: an operator may be looking at a restored database.
    """
    if find_pause(tx) is not None:
        return None
    known = tx.setting(HISTORY_RETENTION) or ""
    stored = "" if retention is None else str(int(retention.total_seconds()))
    if stored != known:
        tx.put_setting(HISTORY_RETENTION, stored)
        detail = f"from {_say(known)} to {_say(stored)}"
        record_audit(tx, context, "history retention", "history", detail=detail)
    return None if retention is None else context.now - retention - _MARGIN


def find_old(reading: Reading, kind: History, before: datetime, *, limit: int) -> tuple[int, ...]:
    """Return rows of *kind* that may go, unless the server is paused by now."""
    return () if find_pause(reading) else reading.old_history(kind, before, limit=limit)


def prune(
    context: Callable[[], Context],
    kind: History,
    before: datetime,
    rows: Sequence[int],
    tx: Transaction,
) -> None:
    """Remove *rows*, and write down how many went of each table, and from when they were."""
    if gone := tx.prune_history(kind, rows, before=before):
        counts = Counter(table for table, _ in gone).items()
        said = ", ".join(f"{number} {table}" for table, number in counts)
        moments = [moment for _, moment in gone]
        span = f"{say_moment(min(moments))} to {say_moment(max(moments))}"
        record_audit(tx, context(), "history prune", kind, detail=f"{span}: {said}")


def _say(seconds: str) -> str:
    return format_duration(timedelta(seconds=int(seconds))) if seconds else "forever"
