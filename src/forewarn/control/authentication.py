"""Who is calling: a bearer token on everything but what is open, looked at before the body is."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.connections.forwarding import FORWARDING
from forewarn.connections.origins import check_origin, is_loopback
from forewarn.connections.streams import wait_idly
from forewarn.control.problems import UnauthorizedError, is_arm_path, problem_of, respond
from forewarn.desk.refusals import EXCESS_SECONDS, Refusals
from forewarn.domain.access import AccessError, Principal, TokenExpiredError, TokenRevokedError
from forewarn.operations.access import hash_secret
from forewarn.protocol.errors import ForewarnError

API_PREFIX: Final = "/api/v1"
OPENAPI_PATH: Final = "/api/openapi.json"
METRICS_PATH: Final = "/metrics"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/readyz/write", OPENAPI_PATH})
"""What needs no token. Everything else does, whether there is anything at that path or not."""
_KIB: Final = 1024
LARGEST_BODY: Final = 32 * 1024 * _KIB
"""A hundred thousand virtual machines fit, also with everything that can be said of them."""
LARGEST_BODIES: Final[Mapping[str, int]] = {
    "fleet": LARGEST_BODY,
    **dict.fromkeys(("maintenances", "events", "scenario-runs"), 1024 * _KIB),
}
"""By the first part of the path below the prefix."""
LARGEST_OTHER_BODY: Final = 256 * _KIB


class OriginCheck:
    """ASGI middleware that refuses browsers who were sent here under somebody else's name."""

    def __init__(self, app: ASGIApp, names: Iterable[str], own_host: str = "") -> None:
        self._app = app
        self._own_host = own_host.lower()
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421 or 403."""
        try:
            if scope["type"] == "http":
                check_origin(scope, self._names, self._own_host)
        except ForewarnError as refusal:
            await _refuse(refusal, scope, receive, send)
            return
        await self._app(scope, receive, send)


class Authentication:
    """ASGI middleware that lets only callers with a token pass, and tells who it is."""

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Callable[[str], Principal | None],
        refusals: Refusals,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `state.principal` and `state.token_hash`, or answer 401.

        After many wrong tokens from an address, the answer to the next wrong one is late; after
        many requests beyond its limits, so is everything with that token.
        What takes long can have `state.identify` look again at whether the token has ended.
        """
        if scope["type"] != "http" or not _needs_token(scope):
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        token = _bearer_token(Headers(scope=scope))
        hashed = hash_secret(token)
        if self._refusals.is_excessive(hashed) and not await wait_idly(scope, EXCESS_SECONDS):
            return  # nobody waits for the answer any more
        try:
            principal = await self._identify(token)
        except ForewarnError as refusal:
            if isinstance(refusal, TokenExpiredError | TokenRevokedError):
                state["who"] = refusal.name
            is_wrong = token and isinstance(refusal, UnauthorizedError | AccessError)
            if is_wrong and self._refusals.is_guessing(scope["client"]):
                await wait_idly(scope, EXCESS_SECONDS)
            await _refuse(refusal, scope, receive, send)
            return
        state["principal"], state["who"] = principal, principal.name
        state["token_hash"] = hashed
        state["identify"] = partial(self._identify, token)
        await self._app(scope, _limited(scope, receive), send)

    async def _identify(self, token: str) -> Principal:
        if not token:
            raise UnauthorizedError(given=False)
        principal = await run_in_threadpool(self._authenticate, token)
        if principal is None:
            raise UnauthorizedError(given=True)
        return principal


async def _refuse(refusal: ForewarnError, scope: Scope, receive: Receive, send: Send) -> None:
    problem = scope.setdefault("state", {})["problem"] = problem_of(refusal)
    await respond(problem, scope["path"])(scope, receive, send)


def is_of_api(path: str) -> bool:
    """Tell whether the control API answers at *path*; everything else is the console's."""
    is_below = path.startswith("/api/") or is_arm_path(path)
    return is_below or path in OPEN_PATHS or path == METRICS_PATH


def is_protected(path: str) -> bool:
    """Tell whether what is at *path* needs a token."""
    return path not in OPEN_PATHS


def _needs_token(scope: Scope) -> bool:
    if scope["path"] != METRICS_PATH:
        return is_protected(scope["path"])
    # Who is on the machine itself is nobody from outside; for whom a proxy there asks may be.
    is_local = scope["client"] is not None and is_loopback(scope["client"][0])
    return not is_local or not FORWARDING.isdisjoint(name for name, _ in scope["headers"])


def _bearer_token(headers: Headers) -> str:
    """Return the token of a request, empty if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    # Tokens are ASCII; anything else in a header may be in any encoding.
    return token if scheme.lower() == "bearer" and token.isascii() else ""


def _limited(scope: Scope, receive: Receive) -> Receive:
    noun = scope["path"].removeprefix(f"{API_PREFIX}/").partition("/")[0]
    most = LARGEST_BODIES.get(noun, LARGEST_OTHER_BODY)
    seen = 0

    async def receive_some() -> Message:
        nonlocal seen
        if int(Headers(scope=scope).get("content-length", "0")) <= most:
            message = await receive()
            seen += len(message.get("body", b""))
            if seen <= most:
                return message
        size = f"{most // _KIB} KiB" if most < 1024 * _KIB else f"{most // 1024 // _KIB} MiB"
        raise HTTPException(413, f"The body is too large; the maximum here is {size}.")

    return receive_some
