"""/live: server-sent events that tell a page to ask for itself anew."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from forewarn.console.assets import assets_version
from forewarn.console.cookies import session_of
from forewarn.console.site import Site
from forewarn.ports.store import StoreError

STREAMS_OF_A_SESSION: Final = 12
"""Browsers close the streams of pages that nobody looks at; nobody looks at so many at once."""


class Streams:
    """How many streams are open: so many of a session, and of all, that others find room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def place(self, secret: str) -> Iterator[None]:
        """Hold a place for a stream of the session *secret*."""
        self._open[secret] += 1
        try:
            yield
        finally:
            self._open[secret] -= 1
            if not self._open[secret]:
                del self._open[secret]

    def has_room(self, secret: str) -> bool:
        """Tell whether there is a place for one more."""
        return self._open[secret] < STREAMS_OF_A_SESSION and self._open.total() < self._most


async def show_live(site: Site, streams: Streams, request: Request) -> Response:
    """Stream that something has changed, as long as the session lasts."""
    secret = session_of(request)
    try:
        principal = await site.find_visitor(secret, is_use=False)
    except StoreError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    if principal is None:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if request.method != "GET" or not streams.has_room(secret):
        return Response(status_code=HTTPStatus.TOO_MANY_REQUESTS)
    return StreamingResponse(
        stream(site, streams, secret),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def stream(site: Site, streams: Streams, secret: str) -> AsyncGenerator[bytes]:
    """Yield the server-sent events of the session that has *secret*, until it has ended."""
    with streams.place(secret):
        yield f"event: hello\ndata: {assets_version()}\n\n".encode()
        async for version in site.pulse.beats():
            # While the store is away pages cannot change, and browsers need not come back for it.
            with suppress(StoreError):
                if await site.find_visitor(secret, is_use=False) is None:
                    return
            yield f"data: {version}\n\n".encode()
