"""The server that a relay follows, and how it is asked."""

import json
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.errors import ForewarnError
from forewarn.transport.connection import StreamedReply
from forewarn.transport.requests import ServerReply, ServerRequest, TransportError, opened, send

_PREFIX: Final = "/api/v1/front/"
PATIENCE: Final = 7.0
"""How long a reply is waited for: whoever waits for it in turn would not wait much longer."""
_LARGEST: Final = 4 * 1024 * 1024


class UpstreamRefusedError(ForewarnError):
    """The server has answered that it does not do that."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Upstream:
    """Where the server is, and with which *token* it is asked; that may change.

    *trust* is by default what this machine trusts.
    """

    url: str
    token: Callable[[], str]
    trust: ssl.SSLContext | None = None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return what the server answers; UpstreamRefusedError, or StoreUnavailableError."""
        try:
            reply = send(self._request(method, path, body, within=PATIENCE), _LARGEST)
        except TransportError as error:
            raise StoreUnavailableError(f"Cannot connect to the server: {error}.") from error
        if not reply.is_success:
            raise _refusal(reply)
        return _read_json(reply)

    @contextmanager
    def follow(self, place: str) -> Generator[StreamedReply]:
        """Give the feed from *place* on; TransportError if it cannot be had."""
        path = f"feed?after={quote(place, safe=':')}" if place else "feed"
        with opened(self._request("GET", path)) as reply:
            if not reply.is_success:
                raise _refusal(reply.read(_LARGEST))
            yield reply

    def _request(
        self, method: str, path: str, body: object = None, *, within: float | None = None
    ) -> ServerRequest:
        headers = {"Authorization": f"Bearer {self.token()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return ServerRequest(
            method=method,
            url=f"{self.url.rstrip('/')}{_PREFIX}{path}",
            headers=headers,
            body=None if body is None else json.dumps(body).encode("ascii"),
            patience=PATIENCE,
            within=within,
            trust=self.trust,
        )


def _refusal(reply: ServerReply) -> ForewarnError:
    if reply.status >= 500:
        return StoreUnavailableError(f"The server answered {reply.status}.")
    said = _read_json(reply)
    detail = said.get("detail") if isinstance(said, dict) else None
    return UpstreamRefusedError(reply.status, detail or f"The server answered {reply.status}.")


def _read_json(reply: ServerReply) -> Any:
    try:
        return reply.json() if reply.content else None
    except ValueError:
        return None
