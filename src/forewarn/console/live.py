"""/live: server-sent events that tell a page to ask for itself anew."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from forewarn.console.assets import assets_version
from forewarn.console.cookies import session_of
from forewarn.console.site import Site
from forewarn.domain.access import Principal
from forewarn.ports.store import StoreError

_CHECK_SECONDS: Final = 10.0
"""How many seconds at least pass between two checks of whether the session has ended."""


async def show_live(site: Site, request: Request) -> Response:
    """Stream that something has changed, as long as the session lasts."""
    secret = session_of(request)
    try:
        principal = await _find(site, secret)
    except StoreError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    if principal is None:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    return StreamingResponse(
        _stream(site, secret),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(site: Site, secret: str) -> AsyncGenerator[bytes]:
    yield f"event: hello\ndata: {assets_version()}\n\n".encode()
    checked = monotonic()
    async for version in site.pulse.beats():
        if monotonic() - checked > _CHECK_SECONDS:
            # While the store is away pages cannot change, and browsers need not come back for it.
            with suppress(StoreError):
                if await _find(site, secret) is None:
                    return
            checked = monotonic()
        yield f"data: {version}\n\n".encode()


async def _find(site: Site, secret: str) -> Principal | None:
    return await site.on_thread(partial(site.sessions.find, secret, is_use=False))
