"""How a part with a thread of its own goes on: round after round, until it is stopped.

While the store is away the part waits, and the log says so: once, and again when it is over.
Whatever else a round dies of ends it, for those above to deal with.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import structlog

from forewarn.ports.store import StoreUnavailableError

log = structlog.get_logger()

T = TypeVar("T")

_LONGEST_WAIT: Final = 60.0
_PAUSE_AFTER_FAILURE: Final = 1.0


class Rounds:
    """The rounds of *part*, as the log calls it; `wake` and `stop` are called on any thread."""

    def __init__(self, part: str, **about: str) -> None:
        self._waits, self._recovered = f"{part}_waits_for_store", f"{part}_recovered"
        self._about = about
        self._trouble = ""
        self._awake = threading.Event()
        self._stopping = threading.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wake(self) -> None:
        """Have the next round begin at once."""
        self._awake.set()

    def stop(self) -> None:
        """Let the round under way be the last."""
        self._stopping.set()
        self._awake.set()

    def run(self, work: Callable[[], float]) -> None:
        """Do *work* until stopped; it returns for how many seconds there is nothing to do."""
        while not self.is_stopping:
            self._awake.clear()
            wait = _PAUSE_AFTER_FAILURE
            with self.patience():
                wait = work()
            self._awake.wait(min(wait, _LONGEST_WAIT))

    def insist(self, work: Callable[[], T]) -> T | None:
        """Do *work* within a round, however long the store is away; None if stopped first."""
        while True:
            with self.patience():
                return work()
            if self._stopping.wait(_PAUSE_AFTER_FAILURE):
                return None

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Hold back that the store is away, and log it when that is news."""
        try:
            yield
        except StoreUnavailableError as error:
            if self._trouble != str(error):
                log.warning(self._waits, **self._about, error=str(error))
            self._trouble = str(error)
        else:
            if self._trouble:
                log.info(self._recovered, **self._about)
            self._trouble = ""
