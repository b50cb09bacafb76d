"""Requests to a server and what comes back; what speaks HTTP is loaded when one is sent."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator, Mapping

    from forewarn.transport.connection import StreamedReply

_NEXT: Final = re.compile(r'<([^>]*)>; *rel="?next"?')


class TransportError(Exception):
    """No reply has come, or not all of it."""


class ServerUrlError(TransportError):
    """There can be no server at such a URL."""


class UnconnectedError(TransportError):
    """There is no connection, so nothing was sent."""


class UntrustedError(UnconnectedError):
    """The server shows a certificate that is not trusted."""


class ExpiredError(UntrustedError):
    """The certificate of the server has expired."""


class MisnamedError(UnconnectedError):
    """The server shows a certificate for other addresses."""


class HungUpError(UnconnectedError):
    """The connection ended before TLS was established, so nothing was sent."""


class PlainServerError(UnconnectedError):
    """The server does not speak TLS."""


class LateReplyError(TransportError):
    """The reply has not come in time."""


class BrokenReplyError(TransportError):
    """The connection broke after something was sent."""


class LargeReplyError(TransportError):
    """The reply is larger than what may be read of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """What is asked, and for how many seconds each part of the reply is waited for."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    patience: float | None
    within: float | None = None
    """For how many seconds all of the reply is waited for, if that has an end."""
    trust: ssl.SSLContext | None = None
    """The certificates that are trusted; by default those of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReply:
    """What came back; the names of *headers* are in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked for."""
        return is_success(self.status)

    @property
    def text(self) -> str:
        """The content, which is text."""
        return self.content.decode(errors="replace")

    @property
    def next_page(self) -> list[tuple[str, str]] | None:
        """What to ask for the next page of a list, unless this is the last."""
        found = _NEXT.search(self.headers.get("link", ""))
        return None if found is None else parse_qsl(urlsplit(found[1]).query)

    def json(self) -> Any:
        """Return what the content says; a ValueError if it is not JSON."""
        return json.loads(self.content)


def is_success(status: int) -> bool:
    """Tell whether *status* is that of a server that does what it was asked for."""
    return 200 <= status < 300


def send(request: ServerRequest, largest: int | None = None) -> ServerReply:
    """Return the reply to *request*, unless it has more bytes than *largest*."""
    with opened(request) as reply:
        return reply.read(largest)


@contextmanager
def opened(request: ServerRequest) -> Generator[StreamedReply]:
    """Send *request*, and give the reply as soon as it begins."""
    from forewarn.transport.connection import connected

    with connected(request) as reply:
        yield reply
