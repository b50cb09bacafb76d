"""Verbs that take long: a few at once, so that others have threads left."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Final

from forewarn.protocol.errors import ForewarnError

AT_ONCE: Final = 4
"""A test may wait two minutes for its answer, and all other verbs share forty threads."""


class BusyError(ForewarnError):
    """Too many slow verbs are under way."""

    def __init__(self) -> None:
        super().__init__(
            f"The server is busy with {AT_ONCE} tests of gates or notification targets, or files "
            "of holidays. Try again later."
        )


class SlowVerbs:
    """Lets a few in, and refuses the others at once."""

    def __init__(self) -> None:
        self._places = BoundedSemaphore(AT_ONCE)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place, or refuse with BusyError."""
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            yield
        finally:
            self._places.release()
