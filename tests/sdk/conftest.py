"""Both clients behind one face, and a server on a real socket that misbehaves on demand."""

import asyncio
import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeVar

import pytest

from forewarn.client import AsyncClient, Change, Client, Document, Event, Identity, Polled
from forewarn.client import _retrying as retrying
from forewarn.client import _watching as watching

TIMEOUT: Final = 45.0
"""Seconds that nothing takes that ends by itself, however busy the machine is."""
T = TypeVar("T")


class BlockingAsyncClient:
    """An AsyncClient with the face of a Client: its event loop runs in a thread."""

    def __init__(self, endpoint: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = AsyncClient(endpoint, **options)
        self._is_closed = False

    def document(self) -> Document:
        return self._run(self._client.document())

    def events(self) -> tuple[Event, ...]:
        return self._run(self._client.events())

    def approve(self, *events: Event | str) -> None:
        self._run(self._client.approve(*events))

    def postpone(self, event: Event | str, not_before: datetime) -> None:
        self._run(self._client.postpone(event, not_before))

    def changes(self, known: Iterable[Event] = ()) -> tuple[Change, ...]:
        return self._run(self._client.changes(known))

    @property
    def endpoint(self) -> str | None:
        return self._client.endpoint

    def whoami(self) -> Identity:
        return self._run(self._client.whoami())

    def watch(
        self, known: Iterable[Event] = (), *, observe: Callable[[Polled], None] | None = None
    ) -> Iterator[Change]:
        changes = self._client.watch(known, observe=observe)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._run(_next(changes))

    def close(self) -> None:
        self._run(self._client.close())

    def end(self) -> None:
        """Stop the loop, when nothing runs in it any more."""
        self.close()
        self._run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(TIMEOUT)


async def _next(changes: AsyncIterator[Change]) -> Change:
    return await anext(changes)


AnyClient = Client | BlockingAsyncClient
ClientMaker = Callable[..., AnyClient]


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def make_client(request: pytest.FixtureRequest) -> Generator[ClientMaker]:
    """Return a function that makes a client; it is closed after the test."""
    made: list[AnyClient] = []

    def make(endpoint: str, **options: Any) -> AnyClient:
        made.append(request.param(endpoint, **options))
        return made[-1]

    yield make
    for client in made:
        client.close() if isinstance(client, Client) else client.end()


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every pause be a blink."""
    monkeypatch.setattr(retrying, "BACK_OFF", (0.01,))
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "_SHORT_WAIT", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's script says, then with its document."""

    protocol_version = "HTTP/1.1"
    server: "Metadata"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(
            Seen(
                method=self.command,
                target=self.path,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
                connection=self.client_address[1],
            )
        )
        behave = self.server.script.pop(0) if self.server.script else answer_well
        behave(self)

    do_POST = do_GET  # noqa: N815

    def answer(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


Behaviour = Callable[[Handler], None]


class Metadata(ThreadingHTTPServer):
    """A metadata server that behaves, unless its script says otherwise."""

    block_on_close = False

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script: list[Behaviour] = []
        self.seen: list[Seen] = []
        self.incarnation = 1
        self.events: list[dict[str, object]] = []
        self.stopping = threading.Event()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def handle_error(self, *_: object) -> None:
        """Let clients go away."""

    def close_connections(self) -> None:
        """Close what is kept alive."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.close_connections()
        self.server_close()


def answer_well(handler: Handler) -> None:
    if handler.command == "POST":
        handler.answer()
    elif not handler.path.startswith("/metadata/scheduledevents"):
        handler.answer(b'{ "error": "Not found" }', 404)
    else:
        server = handler.server
        content = {"DocumentIncarnation": server.incarnation, "Events": server.events}
        handler.answer(json.dumps(content).encode(), ETag=str(server.incarnation))


def answer_with(body: bytes = b"", status: int = 200, **headers: str) -> Behaviour:
    return lambda handler: handler.answer(body, status, **headers)


def close_silently(handler: Handler) -> None:
    handler.close_connection = True


def reset(handler: Handler) -> None:
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    socket.close(handler.connection.detach())  # not to be shut down politely
    raise ConnectionResetError


def say_nothing(handler: Handler) -> None:
    handler.server.stopping.wait(TIMEOUT)
    handler.close_connection = True


def event(number: int, status: str = "Scheduled", **fields: object) -> dict[str, object]:
    return {
        "EventId": f"00000000-0000-4000-8000-{number:012X}",
        "EventStatus": status,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web-0"],
        "NotBefore": "" if status == "Started" else "Mon, 19 Sep 2016 18:29:47 GMT",
        **fields,
    }


@pytest.fixture
def metadata() -> Generator[Metadata]:
    server = Metadata()
    yield server
    server.stop()


@pytest.fixture
def full_server() -> Generator[str]:
    """Listen, and let nobody in any more: who connects waits for an answer to the first packet."""
    if sys.platform != "linux":
        pytest.skip("others refuse when the queue is full")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        yield f"127.0.0.1:{port}"
        for connection in waiting:
            connection.close()
