"""The log lines about events: one for each change, written once it is committed.

They are read from the ledger, where every change ends up whoever made it, and never before its
commit. What was committed before the server started is not logged again.
"""

from typing import Final

import structlog

from forewarn.domain.event import Happening, Outcome
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import LedgerLine
from forewarn.ports.store import Store
from forewarn.rounds import Rounds

log = structlog.get_logger()

_PAGE: Final = 256


class EventLog:
    """Follows the ledger of *store*; `note` is to be called on each change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = store.read(lambda reading: reading.last_sequence())
        self.rounds: Final = Rounds("event_log", self._catch_up, is_thorough=True)

    def note(self, change: StoreChange) -> None:
        """Look again, if the ledger has grown."""
        if change.has_ledger_grown:
            self.rounds.wake()

    def _catch_up(self) -> None:
        while lines := self._store.read(
            lambda reading: reading.ledger_after(self._last, limit=_PAGE)
        ):
            for line in lines:
                _write(line)
            self._last = lines[-1].sequence


def _write(line: LedgerLine) -> None:
    outcome = line.outcome if line.what is Happening.COMPLETED else None
    is_bad = outcome is Outcome.FAILED or line.what is Happening.OVERDUE
    (log.warning if is_bad else log.info)(
        "event_changed",
        what=line.what.value,
        event_id=line.event_id,
        event_type=line.event_type.value,
        scope_id=line.scope_id,
        resources=list(line.resources),
        host=line.host,
        maintenance_id=line.maintenance_id,
        outcome=outcome and outcome.value,
        who=line.who,
        detail=line.detail,
        at=line.at.isoformat(),
    )
