"""Works of a store that a test does."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Signal
from typing import Final

from forewarn.ports.store import Store, Transaction

TIMEOUT: Final = 10.0


@contextmanager
def held(store: Store) -> Iterator[None]:
    """Keep the writer busy, so that what is submitted inside is committed together."""
    begun, go_on = Signal(), Signal()

    def hold(_tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(TIMEOUT), "nobody released the writer"

    future = store.submit(hold)
    assert begun.wait(TIMEOUT), "the writer did not begin"
    yield
    go_on.set()
    future.result(TIMEOUT)
