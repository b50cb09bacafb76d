"""The log lines about events: one for each change, written once it is committed.

They are read from the ledger, where every change ends up whoever made it, and never before its
commit. What was committed before the server started is not logged again. Where replicas share a
ledger, the leader logs for all of them. A new one begins with what it has learned shortly before,
because the last may have died with it: then a line can come twice, with the same sequence.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from forewarn.domain.event import Happening, Outcome
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import LedgerLine
from forewarn.ports.store import Store
from forewarn.rounds import Rounds

log = structlog.get_logger()

_PAGE: Final = 256
_HELD_SECONDS: Final = 10.0
"""For so long a line is held that another replica should log: longer than a takeover takes."""
_LOOK_SECONDS: Final = 1.0


class EventLog:
    """Follows the ledger of *store*; `note` is to be called on each change.

    It logs while this replica *leads*. One that stops has resigned before, and still logs what it
    may have done until then.
    """

    def __init__(self, store: Store, *, leads: Callable[[], bool] = lambda: True) -> None:
        self._store = store
        self._leads = leads
        self._led_at = -math.inf
        self._held: deque[tuple[float, LedgerLine]] = deque()
        self._last = store.read(lambda reading: reading.last_sequence())
        self.rounds: Final = Rounds("event_log", self._catch_up, is_thorough=True)

    def note(self, change: StoreChange) -> None:
        """Look again, if the ledger has grown."""
        if change.has_ledger_grown:
            self.rounds.wake()

    def _catch_up(self) -> float | None:
        self._pass_on()
        while lines := self._store.read(
            lambda reading: reading.ledger_after(self._last, limit=_PAGE)
        ):
            now = time.monotonic()
            self._held.extend((now, line) for line in lines)
            self._last = lines[-1].sequence
            self._pass_on()
        return _LOOK_SECONDS if self._held else None

    def _pass_on(self) -> None:
        """Log what is held, if that is for this replica to do, and forget what is old."""
        now, is_ours = time.monotonic(), self._leads()
        if is_ours:
            self._led_at = now
        elif self.rounds.is_stopping:
            is_ours = now - self._led_at < _HELD_SECONDS
        while self._held and (is_ours or now - self._held[0][0] > _HELD_SECONDS):
            learned_at, line = self._held.popleft()
            if now - learned_at <= _HELD_SECONDS:
                _write(line)


def _write(line: LedgerLine) -> None:
    outcome = line.outcome if line.what is Happening.COMPLETED else None
    is_bad = outcome is Outcome.FAILED or line.what is Happening.OVERDUE
    (log.warning if is_bad else log.info)(
        "event_changed",
        what=line.what.value,
        sequence=line.sequence,
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
