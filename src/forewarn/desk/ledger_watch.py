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

from forewarn.desk.bell import Bell, has_rung
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


class LedgerWatch:
    """Tells watchers on one event loop what is new; `note` is to be called on each change."""

    def __init__(self, store: Store, *, heart_beat: float = HEART_BEAT) -> None:
        self._store = store
        self._heart_beat: Final = heart_beat
        self._bell = Bell()
        self._looking = asyncio.Lock()
        self._version = 0
        self._page: _Page | None = None
        self.watchers = 0
        """How many there are."""

    def note(self, change: StoreChange) -> None:
        """Wake the watchers if there is something for them; called on any thread."""
        if change.has_ledger_grown:
            self._version = change.sequence
            self._bell.ring()

    def stop(self) -> None:
        """End every watch, and whichever begins from now on; called on any thread."""
        self._bell.stop()

    async def watch(self, after: int) -> AsyncGenerator[Growth]:
        """Yield what follows the line *after*, and heart-beats, the first of them at once."""
        self.watchers += 1
        try:
            yield after, ()
            while not self._bell.is_stopped:
                news = self._bell.listen()
                lines = await self._lines_after(after)
                if lines:
                    after = lines[-1].sequence
                    yield after, lines
                elif not await has_rung(news, self._heart_beat):
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
