"""The control listener on real sockets, and bytes that no client of ours would send."""

import json
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.client import HTTPResponse

import pytest
import uvicorn
import uvloop
from fastapi import FastAPI
from tests.http.control.conftest import TOKEN

from forewarn.connections.limits import Limits
from forewarn.control.http import configure

TIMEOUT = 8.0


class Listener:
    """The control API on a port of its own."""

    def __init__(self, app: FastAPI, limits: Limits | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.server = uvicorn.Server(configure(app, limits=limits))
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(
            self._socket.getsockname(), timeout=TIMEOUT, source_address=(source, 0)
        )

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
def listening(app: FastAPI, limits: Limits | None = None) -> Generator[Listener]:
    listener = Listener(app, limits)
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


def test_websocket_is_declined(listener: Listener) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AA=="}
    with listener.connect() as connection:
        connection.sendall(compose("GET", "/healthz", headers))

        assert read_reply(connection)[0] == 200
