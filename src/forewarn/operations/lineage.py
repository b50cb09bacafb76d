"""Whether the records of tasks in a state directory belong to the database, and are no older.

Each start gives both the next generation, and so does each removal of records. Records that are
missing, belong to another database or lie behind cannot tell what was begun, and neither can those
that were removed of what the database has in flight. Then the open tasks of the node are unknown.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from forewarn.operations.restoring import RESTORED_AT
from forewarn.ports.store import Reading, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """To which database records belong, and how often that was renewed: at every start, at least.

    Records of what is over were last removed in the generation *removed_in*. A database from before
    may have such things in flight again.
    """

    database: str
    generation: int
    removed_in: int = 0

    def encode(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))


def read_lineage(text: str | None) -> Lineage | None:
    """Return what `encode` wrote; None if there is nothing, or something else."""
    try:
        known = json.loads(text or "")
        return Lineage(
            database=str(known["database"]),
            generation=int(known["generation"]),
            removed_in=int(known.get("removed_in", 0)),
        )
    except (ValueError, TypeError, KeyError):
        return None


def continue_lineage(
    reading: Reading, records: str, found: Lineage | None, new_id: str
) -> tuple[Lineage, bool]:
    """Return the next generation of *records*, and whether those that were *found* are complete."""
    known = read_lineage(reading.setting(_lineage(records)))
    if known is None:
        is_complete = not found.removed_in if found else not _is_restored(reading)
        known = found or Lineage(database=new_id, generation=0)
    else:
        is_complete = _continues(found, known)
    newest = max(known.generation, found.generation if found else 0)
    removed_in = found.removed_in if found else 0
    following = Lineage(database=known.database, generation=newest + 1, removed_in=removed_in)
    return following, is_complete


def record_lineage(tx: Transaction, records: str, lineage: Lineage) -> None:
    """Remember the generation of *records*."""
    tx.put_setting(_lineage(records), lineage.encode())


def is_continued(reading: Reading, records: str, found: Lineage | None) -> bool:
    """Tell whether the *records* of a server that runs are those it was last started with."""
    known = read_lineage(reading.setting(_lineage(records)))
    return known is None or _continues(found, known)


def _continues(found: Lineage | None, known: Lineage) -> bool:
    if found is None or found.database != known.database:
        return False
    return found.generation >= known.generation >= found.removed_in


def _is_restored(reading: Reading) -> bool:
    """Tell whether anything under way is older than the last start on a backup."""
    restored_at = reading.setting(RESTORED_AT)
    events = (event.created_at for event in reading.events_in_flight())
    operations = (each.created_at for each in reading.operations_under_way())
    return restored_at is not None and any(
        made_at <= datetime.fromisoformat(restored_at) for made_at in (*events, *operations)
    )


def _lineage(records: str) -> str:
    return f"lineage of {records}"
