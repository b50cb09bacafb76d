"""That something has changed, for browsers that show it: a number that grows, and a stream of it.

A page is told only that there is news, and asks for itself anew. So nothing is lost by a stream
that breaks, and a page that nobody looks at costs nothing: its browser closes the stream.
"""

import asyncio
from collections.abc import AsyncGenerator
from random import random
from typing import Final

from forewarn.desk.bell import Bell, has_rung
from forewarn.ports.changes import StoreChange

HEART_BEAT: Final = 15.0
"""After how many seconds a page asks for itself anew though nothing has changed.

Polls, replicas and whatever only time changes are no news of the store.
"""
GAP: Final = 0.2
"""How many seconds pass between two beats at least, whatever happens in between."""
_SPREAD: Final = 0.15
"""Within how many seconds all pages are told: many at once would keep a poll waiting."""


class Pulse:
    """Counts changes of the store, and tells pages on one event loop; `note` on any thread."""

    def __init__(self, *, heart_beat: float = HEART_BEAT) -> None:
        self._heart_beat: Final = heart_beat
        self._bell = Bell()
        self.version = 0
        """How many changes there were."""

    def note(self, _change: StoreChange) -> None:
        """Record a change of the store."""
        self.touch()

    def touch(self) -> None:
        """Have every page ask for itself anew: also tokens, the audit and faults are on some.

        The store has no `StoreChange` for these. Called on any thread.
        """
        self.version += 1
        self._bell.ring()

    def stop(self) -> None:
        """End every stream, and whichever begins from now on; called on any thread."""
        self._bell.stop()

    async def beats(self) -> AsyncGenerator[int]:
        """Yield the version: now, whenever it has changed, and every fifteen seconds."""
        while not self._bell.is_stopped:
            rung = self._bell.listen()
            yield self.version
            if await has_rung(rung, self._heart_beat):
                await asyncio.sleep(GAP + random() * _SPREAD)  # noqa: S311 - no secret
