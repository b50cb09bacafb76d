"""HTTP by the standard library, on a connection for each request.

Libraries for HTTP take longer to import than a command may cost. The proxy variables of the
environment are not looked at: only settings.py reads what commands take from there.
"""

import socket
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from forewarn.transport.requests import (
    BrokenReplyError,
    ExpiredError,
    HungUpError,
    LargeReplyError,
    LateReplyError,
    MisnamedError,
    PlainServerError,
    ServerReply,
    ServerRequest,
    ServerUrlError,
    TransportError,
    UnconnectedError,
    UntrustedError,
    is_success,
)

_CONNECTING: Final = 5.0
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_REFUSALS: Final[Mapping[int, type[TransportError]]] = {
    10: ExpiredError,
    **dict.fromkeys((62, 63, 64), MisnamedError),
}
"""By what OpenSSL says of a certificate that is too old, or for another name or address."""
_HANG_UPS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError)
"""A handshake that the other side ended, as a load balancer does whose server is gone."""


class StreamedReply:
    """A reply that may take long, read as it comes."""

    def __init__(self, response: HTTPResponse, connected: socket.socket) -> None:
        self._response = response
        self._socket = connected

    @property
    def is_success(self) -> bool:
        """Whether the server is doing what it was asked for."""
        return is_success(self._response.status)

    def read(self, largest: int | None = None) -> ServerReply:
        """Return all of it, unless it has more bytes than *largest*."""
        with _told_apart():
            content = self._response.read() if largest is None else self._read_up_to(largest)
        headers = {name.lower(): value for name, value in self._response.getheaders()}
        return ServerReply(status=self._response.status, headers=headers, content=content)

    def _read_up_to(self, largest: int) -> bytes:
        length = self._response.length
        content = self._response.read(largest + 1) if length is None else b""
        if (length or len(content)) > largest:
            raise LargeReplyError
        return content or self._response.read()

    def lines(self) -> Iterator[str]:
        """Yield its lines as they come."""
        for line in self.raw_lines():
            yield line.decode(errors="replace").rstrip("\r\n")

    def raw_lines(self) -> Iterator[bytes]:
        """Yield its lines as they come, each with its end."""
        with _told_apart():
            yield from self._response

    def wait_for(self, seconds: float) -> None:
        """Wait for each part that is still to come for so many *seconds*."""
        self._socket.settimeout(seconds)

    def hang_up(self) -> None:
        """Have whoever reads it find that it has ended; on any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected(request: ServerRequest) -> Generator[StreamedReply]:
    """Send *request* on a connection of its own, and give the reply as soon as it begins."""
    address = _split(request.url)
    with closing(_Connection(address, request)) as connection:
        _connect(connection)
        with _told_apart():
            target = f"{address.path or '/'}{'?' if address.query else ''}{address.query}"
            connection.request(request.method, target, request.body, dict(request.headers))
            response = connection.getresponse()
        with closing(response):
            yield StreamedReply(response, connection.connected)


class _Connection(HTTPConnection):
    """A connection with TLS where the URL says so."""

    def __init__(self, address: SplitResult, request: ServerRequest) -> None:
        try:
            super().__init__(address.hostname or "", address.port or _PORTS[address.scheme])
        except HTTPException as error:
            raise ServerUrlError(str(error)) from error
        self._trust: ssl.SSLContext | None = None
        if address.scheme == "https":
            self._trust = request.trust or ssl.create_default_context()
        self._patience = request.patience
        self.connected: socket.socket
        if request.within is not None:
            self.response_class = _response_until(monotonic() + request.within)

    def connect(self) -> None:
        """Connect, in little time: a server that is there is there at once."""
        patience = _CONNECTING if self._patience is None else min(_CONNECTING, self._patience)
        made = socket.create_connection((self.host, self.port), patience)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._trust is not None:
            made = self._trust.wrap_socket(made, server_hostname=self.host)
        made.settimeout(self._patience)
        self.sock = self.connected = made


def _response_until(deadline: float) -> type[HTTPResponse]:
    class PunctualResponse(HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            self.fp = BufferedReader(_PunctualReader(sock, self.fp.detach(), deadline))

    return PunctualResponse


class _PunctualReader(RawIOBase):
    """What comes on a socket before a deadline, however many parts it comes in."""

    def __init__(self, connected: socket.socket, raw: RawIOBase, deadline: float) -> None:
        self._socket = connected
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _split(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
        is_complete = bool(address.hostname) and address.port != 0
    except ValueError as error:
        raise ServerUrlError(str(error)) from error
    if address.scheme not in _PORTS:
        raise ServerUrlError("it must begin with http:// or https://")
    if not is_complete:
        raise ServerUrlError("it has no host")
    return address


def _connect(connection: _Connection) -> None:
    try:
        connection.connect()
    except UnicodeError as error:
        raise ServerUrlError(str(error)) from error
    except ssl.SSLCertVerificationError as error:
        kind = _REFUSALS.get(error.verify_code, UntrustedError)
        raise kind(error.verify_message) from error
    except _HANG_UPS as error:
        raise HungUpError(str(error)) from error
    except ssl.SSLError as error:
        raise PlainServerError(str(error)) from error
    except OSError as error:
        raise UnconnectedError(str(error)) from error


@contextmanager
def _told_apart() -> Generator[None]:
    try:
        yield
    except TimeoutError as error:
        raise LateReplyError(str(error)) from error
    except (OSError, HTTPException, ValueError) as error:  # a size of a chunk may be no number
        raise BrokenReplyError(str(error) or type(error).__name__) from error
