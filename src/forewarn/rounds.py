"""The loop of a part with a thread of its own: round after round, until it is stopped.

While the store is unavailable the part waits, and logs when that begins, changes and ends. A part
of the Leader ends with its lease. The supervisor handles any other exception.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import structlog

from forewarn.ports.store import LeaseLostError, StoreError, StoreUnavailableError

log = structlog.get_logger()

T = TypeVar("T")

_PAUSE_AFTER_FAILURE: Final = 1.0


class Rounds:
    """The rounds of *part*, as the log calls it; `wake` and `stop` are called on any thread.

    *work* runs every so many seconds, or sooner if it returns a number of seconds. With
    *is_thorough*, it runs once more after `stop`.
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

    @property
    def is_awake(self) -> bool:
        """Whether somebody has woken it since the last round began."""
        return self._awake.is_set()

    def begins(self) -> bool:
        """Tell whether another round is to begin; from now on, whoever wakes it means the next."""
        self._awake.clear()  # before the look: whoever stops it from now on wakes it, too
        return not self.is_stopping

    def turn(self) -> float:
        """Do one round; return in how many seconds the next is due, unless it is woken."""
        wait: float | None = _PAUSE_AFTER_FAILURE
        with self._holding_back_outages():
            wait = self._work()
        return self._every if wait is None else min(wait, self._every)

    def run(self) -> None:
        """Do rounds until stopped or the lease is lost."""
        try:
            while self.begins():
                self._awake.wait(self.turn())
            if self._is_thorough:
                with self._holding_back_outages():
                    self._work()
        except StoreError as error:
            # A part that took too long to stop is left behind, and finds the store closed.
            if not (self.is_stopping or isinstance(error, LeaseLostError)):
                raise

    def insist(self, work: Callable[[], T]) -> T | None:
        """Do *work* within a round, however long the store is unavailable; None if stopped."""
        while True:
            with self._holding_back_outages():
                return work()
            if self.pause(_PAUSE_AFTER_FAILURE):
                return None

    def pause(self, seconds: float) -> bool:
        """Let others go first within a round; tell whether it is to be the last."""
        return self._stopping.wait(seconds)

    @contextmanager
    def _holding_back_outages(self) -> Iterator[None]:
        """Wait while the store is unavailable, and log it when that is news."""
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
