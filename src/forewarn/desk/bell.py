"""A bell that wakes waiting coroutines on one event loop, and can be rung on any thread."""

import asyncio
from contextlib import suppress


class Bell:
    """Wakes all waiting coroutines; after `stop`, permanently."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self.is_stopped = False
        """Whether there will be no more news."""

    def ring(self) -> None:
        """Wake all waiting coroutines; called on any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Wake all waiting coroutines for the last time; called on any thread."""
        self.is_stopped = True
        self.ring()

    def listen(self) -> asyncio.Event:
        """Return what is set when the bell rings next.

        Take it before you read the current state, and you miss no change.
        """
        self._loop = asyncio.get_running_loop()
        return self._rung

    def _wake(self) -> None:
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()


async def has_rung(rung: asyncio.Event, seconds: float) -> bool:
    """Wait for what `Bell.listen` returned, *seconds* at most; tell whether it rang."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await rung.wait()
    return rung.is_set()
