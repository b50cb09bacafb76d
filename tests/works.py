"""What a test does with a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import Event as Signal
from threading import Thread
from typing import Final

from forewarn.ports.store import Store, Transaction

TIMEOUT: Final = 45.0


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


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """Write while the block runs; at no moment do the settings *a* and *b* differ."""
    stopping = Signal()

    def write() -> None:
        for number in count():
            store.write(partial(put_both, text=str(number)))
            if stopping.is_set():
                return

    def put_both(tx: Transaction, text: str) -> None:
        tx.put_setting("a", text)
        tx.put_setting("b", text)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(TIMEOUT)
