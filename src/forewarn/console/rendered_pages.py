"""Pages as they were a moment ago: many browsers that show the same cost one rendering."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final

_KEPT: Final = 64
"""How many pages are kept: those that are looked at."""
_GAP: Final = 0.2
"""How many seconds pass between two renderings of a page at least: a change seldom comes alone."""


@dataclass(frozen=True, slots=True)
class RenderedMain:
    """The part of a page that changes, as it is sent; *digest* tells whether it has changed."""

    digest: str
    body: bytes


class RenderedPages:
    """Renders each page once at a time, so that threads do not keep polls from the interpreter.

    Used on one event loop. Whoever has waited gets their page in a turn of the loop of their own,
    so that polls come in between.
    """

    def __init__(self, *, gap: float = _GAP) -> None:
        self._gap: Final = gap
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    async def find(
        self,
        key: Hashable,
        stamp: Callable[[], Hashable],
        make: Callable[[], Awaitable[RenderedMain]],
    ) -> RenderedMain:
        """Return the page of *key* as it is under the present *stamp*; *make* it if need be.

        A page that is rendered after it was asked for will do, whatever has changed since.
        """
        asked, kept = monotonic(), self._place(key)
        if kept.is_good(stamp()):
            return kept.result()
        async with kept.turn:
            is_since = kept.began >= asked and kept.outcome is not None
            if not is_since and not kept.is_good(stamp()):
                await asyncio.sleep(kept.began + self._gap - monotonic())
                await kept.render(stamp(), make)
            return kept.result()

    def _place(self, key: Hashable) -> "_Kept":
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return kept


@dataclass(slots=True)
class _Kept:
    """One page as it was when its last rendering *began*.

    The outcome is the page, or why there is none; nothing if whoever had it rendered has left.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    began: float = -inf
    stamp: Hashable = None
    outcome: RenderedMain | Exception | None = None

    def is_good(self, stamp: Hashable) -> bool:
        return isinstance(self.outcome, RenderedMain) and self.stamp == stamp

    async def render(self, stamp: Hashable, make: Callable[[], Awaitable[RenderedMain]]) -> None:
        self.began, self.stamp, self.outcome = monotonic(), stamp, None
        try:
            self.outcome = await make()
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            self.outcome = error

    def result(self) -> RenderedMain:
        if isinstance(self.outcome, RenderedMain):
            return self.outcome
        raise self.outcome or asyncio.CancelledError
