"""From when on a change was really served, which is some time after it was recorded."""

import threading
from typing import Final

from forewarn.ports.changes import StoreChange
from forewarn.ports.clock import Clock
from forewarn.ports.entries import Showing
from forewarn.ports.store import Store
from forewarn.rounds import Rounds


class Showings:
    """Notes when the board has put up a change, and writes it down."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changing = threading.Lock()
        self._pending: tuple[Showing, ...] = ()
        self.rounds: Final = Rounds("showings", self.commit, every=1, is_thorough=True)

    def note(self, change: StoreChange) -> None:
        """Remember that *change* is served from now on."""
        shown_at = self._clock.now()
        if change.recorded_at is not None and change.recorded_at < shown_at:
            with self._changing:
                made = Showing(recorded_at=change.recorded_at, shown_at=shown_at)
                self._pending = (*self._pending, made)

    def pending(self) -> tuple[Showing, ...]:
        """Return what is not written down yet."""
        return self._pending

    def commit(self) -> None:
        """Write down what was noted; what cannot be written stays for the next round."""
        written = self._pending
        if not written:
            return
        self._store.write(lambda tx: tx.put_showings(written))
        with self._changing:
            self._pending = self._pending[len(written) :]
