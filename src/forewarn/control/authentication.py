"""Who is calling: a bearer token on everything under the API, looked at before the body is."""

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.control.problems import UnauthorizedError, is_arm_path, problem_of, respond

API_PREFIX: Final = "/api/v1"
LARGEST_BODY: Final = 16 * 1024 * 1024
"""A fleet file of a hundred thousand virtual machines fits."""


class Authentication:
    """ASGI middleware that lets only callers with a token reach the API, and tells who it is."""

    def __init__(self, app: ASGIApp, authenticate: Callable[[str], str | None]) -> None:
        self._app = app
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `state.who`, or answer 401."""
        if scope["type"] != "http" or not _is_protected(scope["path"]):
            await self._app(scope, receive, send)
            return
        token = _bearer_token(Headers(scope=scope))
        who = None if token is None else self._authenticate(token)
        if who is None:
            refusal = UnauthorizedError(given=token is not None)
            await respond(problem_of(refusal), scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["who"] = who
        await self._app(scope, _limited(receive), send)


def _is_protected(path: str) -> bool:
    return path == API_PREFIX or path.startswith(f"{API_PREFIX}/") or is_arm_path(path)


def _bearer_token(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    # Tokens are ASCII; comparing anything else in constant time would raise.
    return token if scheme.lower() == "bearer" and token and token.isascii() else None


def _limited(receive: Receive) -> Receive:
    seen = 0

    async def receive_some() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise HTTPException(413, f"A body may have {LARGEST_BODY} bytes, this one has more.")
        return message

    return receive_some
