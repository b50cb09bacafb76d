"""uvicorn for virtual machines: its listeners, its stop, and the way of a connection through it."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import uvicorn

from forewarn.connections.crowd import Crowd, Origin
from forewarn.connections.guarded import FAREWELL_SECONDS, GuardedProtocol, shared_lines
from forewarn.connections.limits import Limits
from forewarn.connections.listeners import BACKLOG, stop_listening
from forewarn.connections.uvicorn_parts import STATUS_LINE, RequestResponseCycle
from forewarn.metadata.asgi import CLOSE, HttpScope, Receive, Send, SentMessage
from forewarn.metadata.hot_path import HAS_EPOLL, HotPath
from forewarn.metadata.identity import Peer, find_peer
from forewarn.metadata.plain_polls import Head, PlainPolls, has_to_wait
from forewarn.metadata.poller import Unfinished

SERVER: Final = "IMDS/150.870.65.1854"

_RECEIVE_BUFFER: Final = 64 * 1024


class App(Protocol):
    """What is served: `MetadataApp`, or something around it."""

    @property
    def plain_polls(self) -> PlainPolls | None:
        """What answers plain polls without an ASGI call; None sends them through `__call__`."""

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None: ...

    def note_unreadable(self, status: int, peer: Peer) -> None:
        """Take note that bytes which are no request were answered with *status*."""

    def find_origin(self, address: str | None) -> Origin:
        """Return whose connection it is that comes from *address*; None is a unix socket."""

    def stop_waiting(self) -> None:
        """Answer every parked poll now, and park no more."""


class MetadataServer(uvicorn.Server):
    """Runs the metadata endpoint inside an event loop that somebody else runs.

    Its *listeners* are open: IPv4, IPv6 and unix sockets. Those of unix sockets, and all where it
    is not *hot*, are uvicorn's from the beginning.
    """

    def __init__(
        self,
        app: App,
        listeners: Iterable[socket.socket],
        limits: Limits | None = None,
        *,
        is_hot: bool = HAS_EPOLL,
    ) -> None:
        self._limits = limits or Limits()
        self._crowd = Crowd(self._limits, app.find_origin)
        # uvicorn makes the protocols, with arguments of its own, so ours are members of a class.
        members = {"limits": self._limits, "crowd": self._crowd, "served": app}
        self._protocol = type("LimitedProtocol", (PollProtocol,), members)
        super().__init__(_configure(app, self._limits, self._protocol))
        self._app = app
        self._listeners = list(listeners)
        self._stopping = asyncio.Event()
        self._handing_over = asyncio.TaskGroup()
        self.hot_path: HotPath | None = None
        if is_hot and app.plain_polls is not None:
            self.hot_path = HotPath(app.plain_polls, self._crowd, self._take_over, self._limits)

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called and the last answer is out."""
        async with self._handing_over:
            await self.serve(self._listeners)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: on the hot path wherever that can be."""
        listeners = sockets or []
        if self.hot_path is None:
            await super().startup(listeners)
            return
        hot = [each for each in listeners if each.family != socket.AF_UNIX]
        await super().startup([each for each in listeners if each not in hot])
        self._renew_lines()
        self.hot_path.start()
        for listener in hot:
            self.hot_path.listen(listener)

    async def on_tick(self, counter: int) -> bool:
        """Renew what changes with time; tell whether to stop."""
        should_exit = await super().on_tick(counter)
        self._renew_lines()
        if self.hot_path is not None:
            self.hot_path.tick()
        return should_exit

    def _renew_lines(self) -> None:
        if self._app.plain_polls is not None:
            self._app.plain_polls.renew(shared_lines(self.server_state.default_headers))

    def _take_over(self, connection: socket.socket, unfinished: Unfinished) -> None:
        def make_protocol() -> PollProtocol:
            protocol: PollProtocol = self._protocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            protocol.unfinished = unfinished
            return protocol

        self._handing_over.create_task(self._connect(make_protocol, connection))

    async def _connect(
        self, make_protocol: Callable[[], "PollProtocol"], connection: socket.socket
    ) -> None:
        with suppress(OSError):  # it was reset in the meantime
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection)

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
        if self.hot_path is not None:
            self.hot_path.stop()
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


def open_listener(host: str, port: int, interface: str = "") -> socket.socket:
    """Listen on *host*, an IPv4 or IPv6 address; `::` takes both.

    With an *interface*, only to what arrives there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if interface:
        listener = _listen_on_interface(family, (host, port), interface)
    else:
        listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::"
        )
    # Connections inherit it; asyncio sets it only where `proto` says TCP, and here that is 0.
    # Without it an answer in two writes waits for the client's delayed acknowledgement: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # What arrives faster than it is read stays with who sent it, and one read is a short one.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    listener.setblocking(False)
    return listener


def _listen_on_interface(
    family: socket.AddressFamily, address: tuple[str, int], interface: str
) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Before it is bound: the same address may be listened on for each interface.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
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
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def _configure(app: App, limits: Limits, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
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
    unfinished = Unfinished()
    """What the hot path has left to do."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = find_peer(self.client, self.server)
        if self.unfinished.unsent:
            self.transport.write(self.unfinished.unsent)
        if self.unfinished.closes:
            self.transport.close()
        elif self.unfinished.received:
            self.data_received(self.unfinished.received)

    def more_extensions(self) -> dict[str, Any]:
        has_waited = self.unfinished.has_waited
        self.unfinished = Unfinished()
        return {"has_waited": True} if has_waited else {}

    def writer_of(self, cycle: RequestResponseCycle) -> Any:
        """Return what writes an answer, and not through uvicorn's hands.

        It is written in one piece unless it comes in several, with header names in the case that
        Azure writes them in. uvicorn would write them in lower case, and the head apart from the
        body.
        """
        head: list[bytes] = []

        async def write(message: SentMessage) -> None:
            if message["type"] == "http.response.start":
                head.append(_write_head(cycle, message))
                return
            body = b"" if cycle.scope["method"] == "HEAD" else message["body"]
            cycle.transport.write(b"".join((*head, body)))
            head.clear()
            if not message.get("more_body"):
                _finish(cycle)

        return write

    def answer_at_once(self) -> bool:
        # What saves most of the time of a poll: no ASGI scope, no task.
        polls = self.served.plain_polls
        if polls is None or self.flow.write_paused:
            return False
        if self.parser.get_method() != b"GET" or not self.parser.should_keep_alive():
            return False
        poll = polls.read(Head(self.url, self.headers, self.parser.get_http_version()))
        vm = None if poll is None else polls.find(poll, self._peer)
        if poll is None or vm is None:
            return False
        page = polls.page(poll, vm)
        if has_to_wait(poll, page):
            return False
        polls.note(poll, vm)
        self.write_at_once(polls.write(poll, page))
        return True

    def refuse(self, status: int) -> None:
        self.served.note_unreadable(status, self._peer)
        super().refuse(status)


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
