"""Answers that last: watches of events, live pages, and feeds of relays.

Each has a connection for as long as it lasts. So a token has few of them, and all connections
together leave some to short requests (`Crowd.begin_stream`). Used on one event loop.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from forewarn.connections.limits import StreamLimitError


class Streams:
    """The open streams, by token: so many *of_token*.

    If the *newest_wins*, one that has no room takes the place of the oldest, which may be dead.
    """

    def __init__(self, of_token: int, *, newest_wins: bool = False) -> None:
        self._of_token = of_token
        self._newest_wins = newest_wins
        # Of each token, how to drop each of its streams.
        self._open: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    @contextmanager
    def place(self, token: str, scope: Scope) -> Iterator[None]:
        """Hold a place for a stream of *token*, or refuse it with StreamLimitError."""
        drop = _of_connection(scope, "drop", lambda: None)
        try:
            self._begin(token, _of_connection(scope, "begin_stream", lambda: None))
            self._open[token].append(drop)
            yield
        finally:
            self._end(token, drop)

    def _begin(self, token: str, begin: Callable[[], None]) -> None:
        own, refusal = self._open[token], StreamLimitError("A token", self._of_token)
        if len(own) < self._of_token:
            try:
                return begin()
            except StreamLimitError as error:
                refusal = error
        if not self._newest_wins or not own:
            raise refusal
        own.pop(0)()
        return self._begin(token, begin)

    def _end(self, token: str, drop: Callable[[], None]) -> None:
        own = self._open[token]
        if drop in own:
            own.remove(drop)
        if not own:
            del self._open[token]


class LimitedStream(StreamingResponse):
    """An answer that lasts, in a place of *token* among *streams*."""

    def __init__(
        self, lines: AsyncIterable[bytes], *, media_type: str, streams: Streams, token: str
    ) -> None:
        super().__init__(
            lines,
            media_type=media_type,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._place = partial(streams.place, token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; refused with StreamLimitError if there is no place."""
        with self._place(scope):
            await super().__call__(scope, receive, send)


async def wait_idly(scope: Scope, seconds: float) -> bool:
    """Wait, as a connection that is idle and may be dropped; tell whether it is still there."""
    give_way = _of_connection(scope, "give_way", lambda _: None)
    lost: asyncio.Event = _of_connection(scope, "lost", asyncio.Event())
    give_way(True)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await lost.wait()
    give_way(False)
    return not lost.is_set()


def _of_connection(scope: Scope, name: str, default: Any) -> Any:
    """Return what the connection of a request can do; *default* if it is none of ours."""
    return scope.get("extensions", {}).get("connection", {}).get(name, default)
