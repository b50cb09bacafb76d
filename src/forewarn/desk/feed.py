"""The ledger as it grows, for any number of watchers.

The ledger is the source of truth, and a watcher holds nothing but its place in it. So one that
reads slowly costs no memory, and one that comes back with the number of the last line it has seen
misses nothing and sees nothing twice, also after a restart. Those who have seen everything are at
the same place, and share one look at the store for each time it grows.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, TypeAlias

from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import LedgerLine
from forewarn.ports.store import Store, StoreError

HEART_BEAT: Final = 15.0
"""How many seconds a watcher hears nothing at most."""

_PAGE: Final = 256

Growth: TypeAlias = tuple[int, tuple[LedgerLine, ...]]
"""A place in the ledger, and the lines that lead to it: none if this is only a heart-beat."""


@dataclass(frozen=True, slots=True)
class _Page:
    after: int
    version: int
    lines: tuple[LedgerLine, ...]


class Feed:
    """Tells watchers on one event loop what is new; `note` is to be called on each change."""

    def __init__(self, store: Store, *, heart_beat: float = HEART_BEAT) -> None:
        self._store = store
        self._heart_beat: Final = heart_beat
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._version = 0
        self._page: _Page | None = None
        self._is_stopping = False
        self.watchers = 0
        """How many there are."""

    def note(self, change: StoreChange) -> None:
        """Wake the watchers if there is something for them; called on any thread."""
        if change.has_ledger_grown:
            self._version = change.sequence
            self._wake_soon()

    def stop(self) -> None:
        """End every watch, and whichever begins from now on; called on any thread."""
        self._is_stopping = True
        self._wake_soon()

    async def watch(self, after: int) -> AsyncGenerator[Growth]:
        """Yield what follows the line *after*, and heart-beats, the first of them at once."""
        self._loop = asyncio.get_running_loop()
        self.watchers += 1
        try:
            yield after, ()
            while not self._is_stopping:
                news = self._news
                lines = await self._lines_after(after)
                if lines:
                    after = lines[-1].sequence
                    yield after, lines
                elif not await self._has_come(news):
                    yield after, ()
        except StoreError:
            return  # whoever watches comes back, and so may the store
        finally:
            self.watchers -= 1

    async def _lines_after(self, after: int) -> tuple[LedgerLine, ...]:
        async with self._looking:
            version, page = self._version, self._page
            if page is None or (page.after, page.version) != (after, version):
                lines = await asyncio.to_thread(
                    self._store.read, lambda reading: reading.ledger_after(after, limit=_PAGE)
                )
                self._page = page = _Page(after, version, lines)
            return page.lines

    async def _has_come(self, news: asyncio.Event) -> bool:
        try:
            await asyncio.wait_for(news.wait(), self._heart_beat)
        except TimeoutError:
            return False
        return True

    def _wake_soon(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
