"""What the lives of events say about notice, read from the ledger when somebody asks.

So counting costs those who write nothing, and what is counted was committed.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from threading import Lock
from typing import Final, TypeAlias

from forewarn.domain.event import Happening, Outcome, ScheduledEvent
from forewarn.domain.policy import Policy, approved_at
from forewarn.ports.metrics import Distribution
from forewarn.ports.store import Reading, Store
from forewarn.protocol.vocabulary import EventStatus, EventType

ENDS: Final = (*(outcome.value for outcome in Outcome), EventStatus.CANCELED.lower())
"""How an event can end, as metrics say it."""

_ENDED: Final = frozenset({Happening.COMPLETED, Happening.CANCELED})
_SECONDS: Final = (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400, 604800)
_PAGE: Final = 500

_Deed: TypeAlias = tuple[str, ScheduledEvent, Policy]


class EventLives:
    """Counts what has happened to events since it was made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = store.read(lambda reading: reading.last_sequence())
        self._turn = Lock()
        self.promised = _by_type()
        """From creation to NotBefore, of events that had notice and have started."""
        self.given = _by_type()
        """From creation to the start of the same events."""
        self.approving = _by_type()
        """From creation to the approval that let it start, of those that were approved."""
        self.ended: Counter[tuple[EventType, str]] = Counter()
        """How many ended, and how."""

    def catch_up(self) -> None:
        """Count what was written since the last time."""
        with self._turn:
            while (page := self._store.read(self._read)) is not None:
                self._last, deeds = page
                for what, event, policy in deeds:
                    self._count(what, event, policy)

    def _read(self, reading: Reading) -> tuple[int, list[_Deed]] | None:
        lines = reading.ledger_after(self._last, limit=_PAGE)
        if not lines:
            return None
        scopes = reading.topology().scopes
        deeds: list[_Deed] = []
        for line in lines:
            if line.what is not Happening.STARTED and line.what not in _ENDED:
                continue
            event = reading.event(line.event_id)
            if event is not None:
                scope = scopes.get(event.scope_id)
                deeds.append((line.what, event, scope.policy if scope else Policy()))
        return lines[-1].sequence, deeds

    def _count(self, what: str, event: ScheduledEvent, policy: Policy) -> None:
        kind = event.event_type
        if what in _ENDED:
            self.ended[kind, event.outcome or EventStatus.CANCELED.lower()] += 1
        elif event.is_announced:
            self.promised[kind].observe(_seconds_from_creation(event, event.not_before))
            self.given[kind].observe(_seconds_from_creation(event, event.started_at))
            if at := approved_at(event, policy):
                self.approving[kind].observe(_seconds_from_creation(event, at))


def _by_type() -> Mapping[EventType, Distribution]:
    return {kind: Distribution(_SECONDS) for kind in EventType}


def _seconds_from_creation(event: ScheduledEvent, moment: datetime | None) -> float:
    return 0.0 if moment is None else (moment - event.created_at).total_seconds()
