"""uvicorn, made patient with slow virtual machines and firm with bad ones.

Idle connections may stay long, because pollers keep theirs. A request that has begun must arrive
in time, heads and connections are limited, and what cannot be read is answered once and drained.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from forewarn.metadata.asgi import HttpScope, Receive, Send
from forewarn.metadata.writing import shared_lines, written_by_us
from forewarn.protocol.errors import ForewarnError

SERVER: Final = "IMDS/150.870.65.1854"

_NOT_PLAIN: Final = frozenset({b"content-length", b"transfer-encoding", b"upgrade", b"expect"})
_FAREWELL_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 5.0
_CONNECTIONS_WITHOUT_LIMIT: Final = 100_000
_LINGER_NOT: Final = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


def connections_within_open_files() -> int:
    """Return how many connections leave room for the files that everything else opens."""
    try:
        import resource  # noqa: PLC0415  not on Windows
    except ImportError:
        return _CONNECTIONS_WITHOUT_LIMIT
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _CONNECTIONS_WITHOUT_LIMIT
    return max(limit - max(limit // 10, 64), 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long we wait for what, in seconds, and how much we take."""

    head_seconds: float = 10
    body_seconds: float = 10
    write_seconds: float = 30
    idle_seconds: int = 300
    head_bytes: int = 32 * 1024
    headers: int = 100
    connections: int = field(default_factory=connections_within_open_files)


class App(Protocol):
    """What is served: `MetadataApp`, or something around it."""

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None: ...

    def answer_plain_poll(
        self, target: bytes, headers: dict[bytes, bytes], client: tuple[str, int] | None
    ) -> tuple[bytes, bytes] | None:
        """Answer a GET without an ASGI call; None sends it through `__call__`."""
        ...

    def stop_waiting(self) -> None:
        """Answer every parked poll now, and park no more."""
        ...


class MetadataServer(uvicorn.Server):
    """Runs the metadata endpoint inside an event loop that somebody else runs."""

    def __init__(self, app: App, listeners: Iterable[socket.socket], limits: Limits) -> None:
        super().__init__(_configure(app, limits))
        self._app = app
        self._listeners = list(listeners)
        self._stopping = asyncio.Event()

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called and the last answer is out."""
        await self.serve(self._listeners)

    def stop(self) -> None:
        """Take no more connections, answer what is under way, parked polls at once."""
        self._app.stop_waiting()
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Renew the Date once a second, until stopped; uvicorn's own loop notices that later."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), timeout=1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what asks for nothing, answer the rest for a while, and then close that, too."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await self._finish(_GRACE_SECONDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        await self._finish(_FAREWELL_SECONDS)
        for task in tuple(self.server_state.tasks):
            task.cancel()
        await self._finish(_FAREWELL_SECONDS)

    async def _finish(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while self.server_state.connections or self.server_state.tasks:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.002)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to whoever runs the event loop."""
        yield


def make_server(
    app: App, listeners: Iterable[socket.socket], limits: Limits | None = None
) -> MetadataServer:
    """Return a server of *app* on open *listeners*: IPv4, IPv6 and unix sockets."""
    return MetadataServer(app, listeners, limits or Limits())


def open_listener(host: str, port: int) -> socket.socket:
    """Listen on *host*, an IPv4 or IPv6 address; `::` takes both."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server(
        (host, port), family=family, backlog=2048, dualstack_ipv6=host == "::"
    )
    # Connections inherit it; asyncio sets it only where `proto` says TCP, and here that is 0.
    # Without it an answer in two writes waits for the client's delayed acknowledgement: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def open_unix_listener(path: Path) -> socket.socket:
    """Listen on the unix socket *path*, in place of one that was left behind."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode) and not _is_listened_on(path):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o666)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def _configure(app: App, limits: Limits) -> uvicorn.Config:
    protocol = type("LimitedProtocol", (GuardedProtocol,), {"limits": limits, "plain_polls": app})
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        headers=[("Server", SERVER)],
        timeout_keep_alive=limits.idle_seconds,
    )


class _Awaited(Enum):
    """What a connection owes us."""

    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    READING = "that it reads what we wrote"
    FAREWELL = "nothing but its end"


class _HeadTooLargeError(ForewarnError):
    """A head with too many bytes or headers."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with deadlines and limits."""

    limits: ClassVar[Limits] = Limits(connections=_CONNECTIONS_WITHOUT_LIMIT)
    plain_polls: ClassVar[App]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # uvicorn's business
        super().__init__(*args, **kwargs)
        self.access_log = False
        self._incomplete: _Awaited | None = None
        self._awaited: _Awaited | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self._has_begun = False
        self._is_plain = False
        self._is_refused = False
        self._is_fresh_head = False
        self._head_bytes = 0
        self._unparsed_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        if len(self.connections) > self.limits.connections:
            self.transport.abort()
        else:
            self._await(_Awaited.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self._lost.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._is_fresh_head = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # We speak nothing else. The request is answered; what follows it is read as usual.
            rest = data[upgrade.args[0] :]
            if rest:
                self.data_received(rest)
                return
        except httptools.HttpParserError as error:
            self._refuse(431 if isinstance(error.__context__, _HeadTooLargeError) else 400)
            return
        if self._incomplete is _Awaited.HEAD and not self._is_fresh_head:
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.limits.head_bytes:
                self._refuse(431)
                return
        self._await(self._owed())

    def _stay_for_the_answer(self) -> bool:
        # Somebody who has nothing more to say, as `nc` does, still wants to be answered. A parked
        # poll whose client has gone looks the same, so there is an end to it.
        if self._is_refused or self._incomplete or not self._is_answering():
            return False
        self.cycle.keep_alive = False
        self._await(_Awaited.FAREWELL)
        return True

    eof_received: Any = _stay_for_the_answer  # uvicorn declares that it never stays

    def shutdown(self) -> None:
        if self._incomplete is _Awaited.BODY and not self.pipeline:
            self.transport.close()  # half a request has no answer to wait for
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await(_Awaited.READING)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._await(self._owed())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await(None)  # each request has its own time
        self._incomplete = _Awaited.HEAD
        self._is_fresh_head = True
        self._head_bytes = self._unparsed_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if len(self.headers) >= self.limits.headers:
            raise _HeadTooLargeError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._incomplete = _Awaited.BODY
        self._is_plain = not self._is_answering() and self._answer_plain_poll()
        if not self._is_plain:
            self.scope["extensions"] = {"connection": {"reset": self._reset, "lost": self._lost}}
            super().on_headers_complete()
            self._has_begun = True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, written_by_us(app, cycle))

    def on_message_complete(self) -> None:
        self._incomplete = None
        if not self._is_plain:
            super().on_message_complete()

    def _answer_plain_poll(self) -> bool:
        # What saves most of the time of a poll: no ASGI scope, no task, one write.
        headers = dict(self.headers)
        if (
            self.parser.get_method() != b"GET"
            or self.parser.get_http_version() != "1.1"
            or not self.parser.should_keep_alive()
            or not _NOT_PLAIN.isdisjoint(headers)
            or self.flow.write_paused
        ):
            return False
        answer = self.plain_polls.answer_plain_poll(self.url, headers, self.client)
        if answer is None:
            return False
        head, body = answer
        self.transport.write(
            b"".join((head, *shared_lines(self.server_state.default_headers), b"\r\n", body))
        )
        self.server_state.total_requests += 1
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        return True

    def _count(self, more: int) -> None:
        self._head_bytes += more
        if self._head_bytes > self.limits.head_bytes:
            raise _HeadTooLargeError

    def _is_answering(self) -> bool:
        return self._has_begun and not self.cycle.response_complete

    def _owed(self) -> _Awaited | None:
        if self.flow.write_paused:
            return _Awaited.READING
        if self._incomplete or self._is_answering() or self.timeout_keep_alive_task:
            return self._incomplete
        return _Awaited.HEAD  # bytes came, but no request: blank lines, say

    def _await(self, awaited: _Awaited | None) -> None:
        if awaited is self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = awaited
        if awaited is not None:
            seconds = {
                _Awaited.HEAD: self.limits.head_seconds,
                _Awaited.BODY: self.limits.body_seconds,
                _Awaited.READING: self.limits.write_seconds,
                _Awaited.FAREWELL: _FAREWELL_SECONDS,
            }[awaited]
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _reset(self) -> None:
        if self.transport.is_closing():
            return
        # Closed with nothing to linger for, TCP sends RST; other sockets just close.
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.transport.abort()

    def _refuse(self, status: int) -> None:
        self._is_refused = True
        if self.transport.is_closing():
            return
        if self._is_answering() and self._incomplete is not _Awaited.BODY:
            # The requests before the bad one get their answers, and then it is over.
            self.cycle.keep_alive = False
            return
        ending = b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        self.transport.write(
            b"".join(
                (STATUS_LINE[status], *shared_lines(self.server_state.default_headers), ending)
            )
        )
        # Closing now would reset the connection under a client that is still sending.
        self.transport.write_eof()
        self._await(_Awaited.FAREWELL)
