"""/live: server-sent events that tell a page to ask for itself anew."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from forewarn.connections.streams import LimitedStream
from forewarn.console.assets import assets_version
from forewarn.console.cookies import session_of
from forewarn.console.site import Site
from forewarn.ports.store import StoreError


async def show_live(site: Site, request: Request) -> Response:
    """Stream that something has changed, as long as the session lasts."""
    secret = session_of(request)
    try:
        principal = await site.find_visitor(secret, is_use=False)
    except StoreError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    if principal is None:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if request.method != "GET":
        return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED)
    return LimitedStream(
        stream(site, secret),
        media_type="text/event-stream",
        streams=site.services.streams,
        token=principal.name,
    )


def refuse_stream(_request: Request, refusal: Exception) -> Response:
    """Say why there is no stream; the page still asks for itself anew now and then."""
    return PlainTextResponse(f"{refusal}\n", HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": "10"})


async def stream(site: Site, secret: str) -> AsyncGenerator[bytes]:
    """Yield the server-sent events of the session that has *secret*, until it has ended."""
    yield f"event: hello\ndata: {assets_version()}\n\n".encode()
    async for version in site.pulse.beats():
        # While the store is away pages cannot change, and browsers need not come back for it.
        with suppress(StoreError):
            if await site.find_visitor(secret, is_use=False) is None:
                return
        yield f"data: {version}\n\n".encode()
