"""Bodies of requests: from whom they are read, what may be in them, and when they are worked on.

FastAPI reads a body before it looks at anything else. Here a role is checked before the body is
read, a body is measured before anything is built from it, and large ones are worked on one at a
time.
"""

import json
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from forewarn.connections.limits import LARGE_BODY, Streams
from forewarn.control.fastapi_parts import needed_roles
from forewarn.domain.access import Principal
from forewarn.domain.roles import Role

DEEPEST: Final = 32
MOST_PARTS: Final = 1000
"""Lists, objects and keys; what is refused may take a line of errors for each."""
MOST_ELEMENTS: Final = 10_000
"""As many names are parsed and checked in less than a millisecond, while all others wait."""
_SLICE: Final = 16 * 1024
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _STEPS)


class BodyRoute(APIRoute):
    """A route that checks the role before it reads a body, and takes large bodies in turn."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        roles = [Role(name) for name in needed_roles(self)]

        async def handle_measured(request: Request) -> Response:
            principal: Principal = request.state.principal
            for role in roles:
                principal.require(role)
            if self.body_field is None:
                return await handle(request)
            request = _MeasuredRequest(request.scope, request.receive)
            large_bodies: Streams = request.app.state.services.large_bodies
            with large_bodies.place_of_body(principal.name, request.headers):
                body = await request.body()
                if len(body) <= LARGE_BODY:
                    measure(body)
                    return await handle(request)
                async with request.app.state.turn_of_large_body:
                    await run_in_threadpool(measure, body)
                    return await handle(request)

        return handle_measured


class _MeasuredRequest(Request):
    """A request whose JSON is read as it was measured: in UTF-8, and on a thread if it is large."""

    async def json(self) -> Any:
        text = (await self.body()).decode("utf-8-sig")
        if len(text) <= LARGE_BODY:
            return json.loads(text)
        return await run_in_threadpool(json.loads, text)


def measure(
    body: bytes, *, most_parts: int = MOST_PARTS, most_elements: int = MOST_ELEMENTS
) -> None:
    """Refuse JSON that nests too deep, or has too many parts or elements.

    It is looked at piece by piece, because a call into C holds everybody up until it returns.
    """
    rest, is_text, depth, deepest, parts, elements = b"", False, 0, 0, 0, 0
    for start in range(0, len(body), _SLICE):
        piece = rest + body[start : start + _SLICE]
        cut = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2  # never within an escape
        piece, rest = piece[:cut], piece[cut:]
        texts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        bare = b"".join(texts[is_text::2])
        is_text ^= len(texts) % 2 == 0
        brackets = bare.translate(None, _NO_BRACKETS)
        *depths, depth = accumulate(map(_STEPS.__getitem__, brackets), initial=depth)
        deepest = max(deepest, depth, *depths)
        parts += sum(map(bare.count, (b"[", b"{", b":")))
        elements += bare.count(b",")
        for found, most, what in (
            (deepest, DEEPEST, "levels of lists and objects"),
            (parts, most_parts, "lists, objects and keys"),
            (elements, most_elements, "elements"),
        ):
            if found > most:
                message = f"it has more than {most:,} {what}"
                raise RequestValidationError([{"loc": ("body",), "msg": message}])
