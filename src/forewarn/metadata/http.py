"""uvicorn for virtual machines: its listeners, its stop, and the short way of a plain poll."""

import asyncio
import os
import socket
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import uvicorn

from forewarn.connections.crowd import Crowd, Origin
from forewarn.connections.guarded import FAREWELL_SECONDS, GuardedProtocol, shared_lines
from forewarn.connections.limits import Limits
from forewarn.connections.listeners import stop_listening
from forewarn.connections.uvicorn_parts import STATUS_LINE, RequestResponseCycle, cycle_of
from forewarn.metadata.asgi import CLOSE, HttpScope, Receive, Send, SentMessage
from forewarn.metadata.identity import Peer, find_peer

SERVER: Final = "IMDS/150.870.65.1854"

_NOT_PLAIN: Final = frozenset({b"content-length", b"transfer-encoding", b"upgrade", b"expect"})
"""Whoever sends one of these says more than a head, and is answered after the rest has come."""
_RECEIVE_BUFFER: Final = 64 * 1024


class App(Protocol):
    """What is served: `MetadataApp`, or something around it."""

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None: ...

    def answer_plain_poll(
        self, target: bytes, headers: dict[bytes, bytes], client: tuple[str, int] | None
    ) -> tuple[bytes, bytes] | None:
        """Answer a GET without an ASGI call; None sends it through `__call__`."""

    def note_unreadable(self, status: int, peer: Peer) -> None:
        """Take note that bytes which are no request were answered with *status*."""

    def find_origin(self, address: str | None) -> Origin:
        """Return whose connection it is that comes from *address*; None is a unix socket."""

    def stop_waiting(self) -> None:
        """Answer every parked poll now, and park no more."""


class MetadataServer(uvicorn.Server):
    """Runs the metadata endpoint inside an event loop that somebody else runs.

    Its *listeners* are open: IPv4, IPv6 and unix sockets.
    """

    def __init__(
        self, app: App, listeners: Iterable[socket.socket], limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        super().__init__(_configure(app, self._limits))
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
        while not await self.on_tick(0):  # 0: uvicorn renews its headers at every tenth count
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), timeout=1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what asks for nothing, answer the rest for a while, and then close that, too."""
        # uvicorn's own way waits for every connection, and a poller never closes its own.
        await stop_listening((*self.servers, *(sockets or ())))
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await self._finish(self._limits.grace_seconds)
        for connection in tuple(self.server_state.connections):  # who reads slowly, or not at all
            connection.transport.abort()
        await self._finish(FAREWELL_SECONDS)
        for task in tuple(self.server_state.tasks):  # which has not noticed that nobody waits
            task.cancel()
        await self._finish(FAREWELL_SECONDS)

    async def _finish(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while self.server_state.connections or self.server_state.tasks:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.002)  # uvicorn tells nobody when the last one has gone

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to whoever runs the event loop."""
        yield


def open_listener(host: str, port: int) -> socket.socket:
    """Listen on *host*, an IPv4 or IPv6 address; `::` takes both."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server(
        (host, port), family=family, backlog=2048, dualstack_ipv6=host == "::"
    )
    # Connections inherit it; asyncio sets it only where `proto` says TCP, and here that is 0.
    # Without it an answer in two writes waits for the client's delayed acknowledgement: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # What arrives faster than it is read stays with who sent it, and one read is a short one.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    listener.setblocking(False)
    return listener


def open_unix_listener(path: Path, mode: int = 0o660) -> socket.socket:
    """Listen on the unix socket *path* with *mode*, in place of one that was left behind."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode) and not _is_listened_on(path):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(mode)  # before anybody can connect, which takes a listen
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
    crowd = Crowd(limits, app.find_origin)
    members = {"limits": limits, "crowd": crowd, "served": app}
    # uvicorn makes the protocols, with arguments of its own, so ours are members of a class.
    protocol = type("LimitedProtocol", (PollProtocol,), members)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        proxy_headers=False,  # or any caller could say with X-Forwarded-For who it is
        server_header=False,  # which would be uvicorn's, beside ours
        headers=[("Server", SERVER)],
        timeout_keep_alive=limits.idle_seconds,
    )


class PollProtocol(GuardedProtocol):
    """One connection of a virtual machine."""

    served: ClassVar[App]

    async def run(self, scope: Any, receive: Any, send: Any) -> None:
        """Have the application answer, and not through uvicorn's hands.

        It is written in one piece unless it comes in several, with header names in the case that
        Azure writes them in. uvicorn would write them in lower case, and the head apart from the
        body.
        """
        await super().run(scope, receive, _writer_of(cycle_of(send)))

    def answer_at_once(self) -> bool:
        # What saves most of the time of a poll: no ASGI scope, no task, one write.
        headers = dict(self.headers)
        # All but the most common kind of poll takes the long way, which knows everything.
        if (
            len(headers) < len(self.headers)  # one is there twice
            or self.parser.get_method() != b"GET"
            or self.parser.get_http_version() != "1.1"
            or not self.parser.should_keep_alive()
            or not _NOT_PLAIN.isdisjoint(headers)
            or self.flow.write_paused
        ):
            return False
        answer = self.served.answer_plain_poll(self.url, headers, self.client)
        if answer is None:
            return False
        self.write_at_once(*answer)
        return True

    def refuse(self, status: int) -> None:
        self.served.note_unreadable(status, find_peer(self.client, self.server))
        super().refuse(status)


def _writer_of(cycle: RequestResponseCycle) -> Send:
    head: list[bytes] = []

    async def send(message: SentMessage) -> None:
        if message["type"] == "http.response.start":
            head.append(_write_head(cycle, message))
            return
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            body = b"" if cycle.scope["method"] == "HEAD" else message["body"]
            cycle.transport.write(b"".join((*head, body)))
            head.clear()
            if not message.get("more_body"):
                _finish(cycle)

    return send


def _write_head(cycle: RequestResponseCycle, message: SentMessage) -> bytes:
    headers = list(message["headers"])
    if CLOSE in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        headers.append(CLOSE)
    lines = (name + b": " + value + b"\r\n" for name, value in headers)
    return b"".join(
        (STATUS_LINE[message["status"]], *lines, shared_lines(cycle.default_headers), b"\r\n")
    )


def _finish(cycle: RequestResponseCycle) -> None:
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
