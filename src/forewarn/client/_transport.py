"""HTTP on one connection, by the standard library.

A forked process must not share connections with its parent, nor locks that are held.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, IncompleteRead
from time import monotonic
from typing import Any, Final, Protocol
from weakref import WeakSet

from forewarn.client._endpoints import Endpoint
from forewarn.client._messages import NoAnswer, Request, Response

LARGEST_BODY: Final = 4 * 2**20

_KEEP_ALIVE: Final[Mapping[str, int]] = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}
"""In seconds, and how often. A server that lost power says no word to a poll that it had parked,
and an event that its successor announces may be due in half a minute."""

_REASONS: Final[Mapping[type[Exception], str]] = {
    TimeoutError: "it did not answer in time",
    socket.gaierror: "its host name cannot be resolved",
    ConnectionRefusedError: "it refuses connections",
    ConnectionError: "it closed the connection without an answer",
    IncompleteRead: "its answer is truncated or too long",
    HTTPException: "its answer is not HTTP",
}
"""The first that fits: some of these are subclasses of later ones."""


class Transport:
    """One connection to where the last request went, kept alive.

    Requests are sent one at a time. `close` may be called from any thread, ends a request that is
    under way at once, and is for good.
    """

    def __init__(self) -> None:
        # A signal handler that calls `close` may have interrupted whoever holds it.
        self._lock = threading.RLock()
        self._is_closed = False
        self._is_sending = False
        self._connection: _Connection | None = None

    def send(self, request: Request) -> Response | NoAnswer:
        """Return the answer to *request*, or why there is none."""
        connection = self._take_connection(request.endpoint)
        if connection is None:
            return NoAnswer("the client is closed")
        connection.deadline = monotonic() + request.timeout + request.wait
        try:
            return _exchange(connection, request)
        except (OSError, HTTPException) as error:
            connection.close()
            return NoAnswer(_explain(error))
        except BaseException:
            connection.close()  # an answer may still be on its way
            raise
        finally:
            self._put_connection_back(connection)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is None:
                return
            if self._is_sending:
                self._connection.cut()
            else:
                self._connection.close()

    def abandon(self) -> None:
        """Let go of the connection without a word: in a forked child it is the parent's."""
        if self._connection is not None:
            self._connection.abandon()

    def _take_connection(self, endpoint: Endpoint) -> "_Connection | None":
        with self._lock:
            connection = self._connection
            if connection is None or connection.endpoint != endpoint:
                if connection is not None:
                    connection.close()
                connection = self._connection = _Connection(endpoint)
            self._is_sending = True
            if not self._is_closed:  # looked up last: a handler may close it within this block
                return connection
            connection.close()
            return None

    def _put_connection_back(self, connection: "_Connection") -> None:
        with self._lock:
            self._is_sending = False
            if self._is_closed:
                connection.close()


class _Socket(socket.socket):
    """A socket with one deadline for all that is sent and read, and not a time-out for each step.

    Otherwise a server that sends a byte now and then would hold us for ever. What has begun to come
    has *seconds* left: an answer that was waited for may be cut off, too.
    """

    deadline: float = 0
    seconds: float = 0

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        self.settimeout(_time_left(self.deadline))
        received = super().recv_into(*arguments, **options)
        self.deadline = min(self.deadline, monotonic() + self.seconds)
        return received

    def sendall(self, *arguments: Any) -> None:
        self.settimeout(_time_left(self.deadline))
        super().sendall(*arguments)


class _Connection(HTTPConnection):
    """A connection that can be cut from another thread, also while it is being made.

    http.client never looks at the proxy variables of the environment, unlike urllib: a metadata
    server is always asked directly.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint.host, endpoint.port)
        self.endpoint = endpoint
        self.deadline = 0.0
        self.is_cut = False
        self._lock = threading.RLock()  # as in Transport
        self._socket: _Socket | None = None  # `sock` is None while it is being made

    def exchange(self, request: Request) -> Response:
        """Send *request* and read the answer, both before the deadline."""
        if self.sock is None:
            self.connect()
        if self._socket is not None:
            self._socket.deadline = self.deadline
            self._socket.seconds = request.timeout
        target = request.endpoint.prefix + request.path
        self.request(request.method, target, request.body, dict(request.headers))
        try:
            return self._read_response()
        except ValueError as error:  # http.client takes a negative size of a chunk for one
            raise HTTPException(str(error)) from error

    def connect(self) -> None:
        error: OSError = socket.gaierror("no address")
        # As bytes, because a str goes through the codec of international names, which is large.
        host = self.host.encode("ascii")
        found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, address) in enumerate(found):
            made = _Socket(family, kind, protocol)
            try:
                self._let_cut(made)
                # One that is silent leaves as much to each of those that come after it.
                made.settimeout(_time_left(self.deadline) / (len(found) - number))
                made.connect(address)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _keep_alive(made)
            except OSError as failed:
                made.close()
                error = failed
            else:
                self.sock = made
                return
        raise error

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close only our number of the socket, and take no lock: its holder may be no more."""
        if self._socket is not None:
            number = self._socket.detach()
            if number >= 0:
                os.close(number)

    def _read_response(self) -> Response:
        answer = self.getresponse()
        body = answer.read(LARGEST_BODY)
        if answer.length or (not answer.isclosed() and answer.read(1)):
            raise IncompleteRead(body)
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Response(status=answer.status, headers=headers, body=body)

    def _let_cut(self, made: _Socket) -> None:
        with self._lock:
            self._socket = made
            if self.is_cut:
                raise ConnectionAbortedError


def _exchange(connection: _Connection, request: Request) -> Response:
    was_kept_alive = connection.sock is not None
    try:
        return connection.exchange(request)
    except ConnectionError:
        # The server may have closed what it kept for long. Everything we send may come twice: a
        # StartRequest for an event that was approved already is answered like the first.
        if not was_kept_alive or connection.is_cut:
            raise
        connection.close()
        return connection.exchange(request)


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):  # not on every system
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _time_left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _explain(error: OSError | HTTPException) -> str:
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    return f"it cannot be reached: {error}"


class Renewable(Protocol):
    """Something that has connections or locks."""

    def renew(self) -> None:
        """Begin anew in a child, where no other thread is left, without a word to the server."""


def renew_after_fork(living: Renewable) -> None:
    """Let *living* begin anew in every child that is forked as long as it lives."""
    _living.add(living)


_living: WeakSet[Renewable] = WeakSet()


def _renew_all() -> None:
    for living in tuple(_living):
        living.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
