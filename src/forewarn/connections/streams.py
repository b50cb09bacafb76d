"""Answers that last: watches of events, live pages, and feeds of relays.

Each has a connection for as long as it lasts. So a token has few of them, and all connections
together leave some to short requests (`Crowd.begin_stream`).
"""

import asyncio
from collections.abc import AsyncIterable
from contextlib import suppress
from functools import partial

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from forewarn.connections.limits import Streams, of_connection


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
    give_way = of_connection(scope, "give_way", lambda _: None)
    lost: asyncio.Event = of_connection(scope, "lost", asyncio.Event())
    give_way(True)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await lost.wait()
    give_way(False)
    return not lost.is_set()
