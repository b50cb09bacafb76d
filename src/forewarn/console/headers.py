"""What every answer of the console says to browsers, and which browsers are refused."""

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.connections.origins import HostRefusedError, check_origin
from forewarn.protocol.errors import ForewarnError

HEADERS: Final = {
    # Scripts and styles are files of ours. What somebody smuggles into a page does nothing.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Without one, browsers would not say either that a form is ours.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class SafeHeaders:
    """ASGI middleware that refuses foreign pages, and tells browsers to trust only ours."""

    def __init__(self, app: ASGIApp, names: Iterable[str], own_host: str) -> None:
        self._app = app
        self._own_host = own_host.lower()
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421 or 403."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app = self._app
        try:
            check_origin(scope, self._names, self._own_host)
        except ForewarnError as refusal:
            status = 421 if isinstance(refusal, HostRefusedError) else 403
            app = PlainTextResponse(f"{refusal}\n", status)
        await app(scope, receive, send_safely)
