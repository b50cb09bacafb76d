"""How a part with a thread of its own goes on: round after round, until it is stopped.

While the store is away the part waits, and the log says so: once, and again when it is over.
A part of the Leader ends with its lease. Anything else that goes wrong is for those above.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import structlog

from forewarn.ports.store import LeaseLostError, StoreUnavailableError

log = structlog.get_logger()

T = TypeVar("T")

_PAUSE_AFTER_FAILURE: Final = 1.0


class Rounds:
    """The rounds of *part*, as the log calls it; `wake` and `stop` are called on any thread.

    *work* is done every so many seconds, or sooner if it returns a number of seconds. What
    *is_thorough* does it once more after it was stopped.
    """

    def __init__(
        self,
        part: str,
        work: Callable[[], float | None],
        *,
        every: float = 60.0,
        is_thorough: bool = False,
        **about: str,
    ) -> None:
        self._work = work
        self._every = every
        self._is_thorough = is_thorough
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

    def run(self) -> None:
        """Go on until stopped or the lease is lost."""
        with suppress(LeaseLostError):
            while not self._ends():
                wait: float | None = _PAUSE_AFTER_FAILURE
                with self._patience():
                    wait = self._work()
                self._awake.wait(self._every if wait is None else min(wait, self._every))
            if self._is_thorough:
                with self._patience():
                    self._work()

    def insist(self, work: Callable[[], T]) -> T | None:
        """Do *work* within a round, however long the store is away; None if stopped first."""
        while True:
            with self._patience():
                return work()
            if self.pause(_PAUSE_AFTER_FAILURE):
                return None

    def pause(self, seconds: float) -> bool:
        """Let others go first within a round; tell whether it is to be the last."""
        return self._stopping.wait(seconds)

    def _ends(self) -> bool:
        self._awake.clear()  # before the look: whoever stops it from now on wakes it, too
        return self.is_stopping

    @contextmanager
    def _patience(self) -> Iterator[None]:
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
