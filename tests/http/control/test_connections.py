"""The control listener on real sockets, and bytes that no client of ours would send."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from time import monotonic, sleep
from typing import Any

import pytest
import uvicorn
import uvloop
from fastapi import FastAPI
from tests.http.conftest import TOKEN
from tests.waiting import wait_until

from forewarn.connections.limits import (
    Limits,
    connections_within_open_files,
    operator_limits,
)
from forewarn.control.http import configure

TIMEOUT = 45.0


class Listener:
    """The control API on a port of its own."""

    def __init__(
        self, app: FastAPI, limits: Limits | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.server = uvicorn.Server(configure(app, limits=limits, tls=tls))
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, source: str = "127.0.0.1", *, receive_bytes: int = 0) -> socket.socket:
        connection = socket.socket()
        if receive_bytes:  # for a window as small, it has to be said before there is a connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(TIMEOUT)
        connection.bind((source, 0))
        connection.connect(self._socket.getsockname())
        return connection

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the server stops"
        self._socket.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self.server._serve([self._socket]))  # noqa: SLF001
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@contextmanager
def listening(
    app: FastAPI, limits: Limits | None = None, tls: ssl.SSLContext | None = None
) -> Generator[Listener]:
    listener = Listener(app, limits, tls)
    try:
        yield listener
    finally:
        listener.stop()


@pytest.fixture
def listener(app: FastAPI) -> Generator[Listener]:
    with listening(app) as made:
        yield made


def compose(
    method: str, path: str, headers: Mapping[str, str] | None = None, *, body: bytes = b""
) -> bytes:
    given = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}", **(headers or {})}
    if body:
        given |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def read_reply(connection: socket.socket) -> tuple[int, bytes]:
    response = HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


@pytest.mark.usefixtures("api")
def test_upgrade_does_not_take_the_body(listener: Listener) -> None:
    body = json.dumps({"event_type": "Reboot", "resources": ["solo"]}).encode()
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAE"}
    with listener.connect() as connection:
        connection.sendall(compose("POST", "/api/v1/events", headers, body=body))
        status, answered = read_reply(connection)
        connection.sendall(compose("GET", "/healthz"))
        next_status, _ = read_reply(connection)

    assert (status, next_status) == (201, 200), answered


def test_token_in_a_trailer_is_none(listener: Listener) -> None:
    head = b"GET /api/v1/clock HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with listener.connect() as connection:
        connection.sendall(head + f"0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())

        assert read_reply(connection)[0] == 401


def test_stop_does_not_wait_for_a_body_that_drips(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(grace_seconds=3, body_seconds=600)
    head = compose("POST", "/api/v1/events", {"Content-Length": "1000000"})
    with listening(app, limits) as listener, listener.connect() as connection:
        connection.sendall(head + b"{")
        wait_until(lambda: listener.server.server_state.tasks, "the request to begin")
        listener.server.should_exit = True

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            drip(connection)

    assert "graceful shutdown exceeded" not in caplog.text


def test_reset_behind_pipelined_requests_leaves_no_traceback(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    for pause in (0.01, 0.02, 0.0) * 10:
        with listener.connect() as connection:
            connection.sendall(compose("POST", "/api/v1/nowhere", body=b"{}") * 50)
            sleep(pause)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not listener.server.server_state.tasks, "every handler to end")

    assert not caplog.records


def drip(connection: socket.socket) -> None:
    deadline = monotonic() + TIMEOUT
    while monotonic() < deadline:
        connection.sendall(b" ")
        sleep(0.05)


def test_others_are_answered_while_openapi_is_made(app: FastAPI) -> None:
    answered = threading.Event()
    app.openapi = lambda: {"in_time": answered.wait(TIMEOUT)}  # type: ignore[method-assign]
    with listening(app) as listener, listener.connect() as slow, listener.connect() as quick:
        slow.sendall(compose("GET", "/api/openapi.json"))
        quick.sendall(compose("GET", "/healthz"))
        assert read_reply(quick)[0] == 200
        answered.set()

        assert json.loads(read_reply(slow)[1]) == {"in_time": True}


def test_websocket_is_declined(listener: Listener) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AA=="}
    with listener.connect() as connection:
        connection.sendall(compose("GET", "/healthz", headers))

        assert read_reply(connection)[0] == 200


def read_all(connection: socket.socket) -> bytes:
    received = bytearray()
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return bytes(received)


def test_huge_header_is_refused_long_before_its_end(listener: Listener) -> None:
    with listener.connect() as connection:
        sent = 0
        with suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
            while sent < 48_000_000:
                sent += connection.send(b"y" * 65_536)

        assert sent < 48_000_000


def test_head_over_the_limit_is_431(listener: Listener) -> None:
    with listener.connect() as connection:
        connection.sendall(compose("GET", "/healthz", {"X": "y" * 40_000}))

        assert read_all(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GET /healthz", compose("POST", "/api/v1/events", {"Content-Length": "10"}) + b"{"],
    ids=["silence", "head", "body"],
)
def test_request_that_does_not_arrive_is_given_up(app: FastAPI, beginning: bytes) -> None:
    with (
        listening(app, Limits(head_seconds=0.3, body_seconds=0.3)) as listener,
        listener.connect() as connection,
    ):
        connection.sendall(beginning)

        read_all(connection)


def test_silent_connections_leave_room_for_others(app: FastAPI) -> None:
    with (
        listening(app, Limits(connections=10, connections_per_origin=5)) as listener,
        ExitStack() as stack,
    ):
        for _ in range(30):
            stack.enter_context(listener.connect("127.0.0.66"))

        with listener.connect() as connection:
            connection.sendall(compose("GET", "/healthz"))

            assert read_reply(connection)[0] == 200


def test_operators_have_files_of_their_own() -> None:
    share = operator_limits()

    assert 4 <= share.connections_per_origin <= share.connections <= 25_000
    assert share.connections + Limits().connections == connections_within_open_files()


def test_broken_body_under_a_running_handler_leaves_no_traceback(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    head = compose("POST", "/api/v1/events", {"Transfer-Encoding": "chunked"})
    with listener.connect() as connection:
        connection.sendall(head + b"2\r\n{}\r\n")
        connection.sendall(b"not a chunk\r\n")

        assert read_all(connection).count(b"HTTP/1.1 ") == 1
    assert not caplog.records


def test_openapi_document_is_written_once_however_many_ask(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for it needs no token, and writing it takes most of a second."""
    made: list[None] = []

    def make() -> dict[str, Any]:
        made.append(None)
        sleep(0.2)
        return {"openapi": "3.1.0"}

    monkeypatch.setattr(app, "openapi", make)
    with listening(app) as listener, ExitStack() as stack:
        asking = [stack.enter_context(listener.connect()) for _ in range(4)]
        for connection in asking:
            connection.sendall(compose("GET", "/api/openapi.json"))
        answers = {read_reply(connection) for connection in asking}

    assert answers == {(200, b'{"openapi":"3.1.0"}')}
    assert len(made) == 1
