"""The listener on a real socket: nobody can keep others from an answer."""

import contextlib
import socket
import threading
import time
from collections.abc import Generator
from http.client import HTTPConnection

import pytest
from tests.waiting import wait_until

from forewarn.agent import listener as listening
from forewarn.agent.listener import MOST_CONNECTIONS, Listener, start_listener
from forewarn.agent.status import Status

SECONDS = 45


@pytest.fixture
def listener() -> Generator[Listener]:
    started = start_listener(("127.0.0.1", 0), Status())
    yield started
    started.shutdown()
    started.server_close()


def find_address(listener: Listener) -> tuple[str, int]:
    return "127.0.0.1", int(listener.server_address[1])


def connect(listener: Listener) -> socket.socket:
    return socket.create_connection(find_address(listener), timeout=SECONDS)


def ask(listener: Listener, path: str) -> int:
    connection = HTTPConnection(*find_address(listener), timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def test_connection_is_closed_after_its_answer(listener: Listener) -> None:
    with connect(listener) as connection:
        connection.sendall(b"GET /drainz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in answer


def drip(connection: socket.socket) -> None:
    """Send a request that has no end."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        connection.sendall(b"G")
        time.sleep(0.05)


def test_who_sends_a_byte_now_and_then_is_cut_off(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ANSWER_SECONDS", 0.5)

    with connect(listener) as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        drip(connection)


def test_connections_that_say_nothing_keep_nobody_out(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ANSWER_SECONDS", 600)
    before = threading.active_count()
    with contextlib.ExitStack() as silent:
        for _ in range(3 * MOST_CONNECTIONS):
            silent.enter_context(connect(listener))

        assert ask(listener, "/drainz") == 200
        wait_until(  # the thread of a connection that was closed ends a little later
            lambda: threading.active_count() - before <= MOST_CONNECTIONS + 5,
            "all connections but a few to be closed",
        )
