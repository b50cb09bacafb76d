"""The connection itself, in what no client shows."""

import socket
import time
from typing import Any, Final

import pytest
from tests.sdk.conftest import Handler, Metadata, answer_well, say_nothing
from tests.waiting import wait_until

from forewarn.client._endpoints import Endpoint, parse_endpoint
from forewarn.client._messages import NoAnswer, Request, Response
from forewarn.client._transport import Transport, _Connection

LONG: Final = 10.0
"""Seconds within which a call ends whose time-out is a fraction of one."""


def ask(endpoint: Endpoint, timeout: float = 5) -> Request:
    return Request(endpoint=endpoint, path="/metadata/scheduledevents", timeout=timeout)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *endpoints: str) -> None:
    """Give every name these addresses."""
    parsed = map(parse_endpoint, endpoints)
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (endpoint.host, endpoint.port))
        for endpoint in parsed
    ]

    def resolve(*_: Any, **__: Any) -> list[Any]:
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_requests_may_go_to_one_server_and_then_to_another(metadata: Metadata) -> None:
    transport, other = Transport(), Metadata()
    try:
        for server in (metadata, other, metadata):
            answer = transport.send(ask(parse_endpoint(server.endpoint)))
            assert isinstance(answer, Response)
        assert (len(metadata.seen), len(other.seen)) == (2, 1)
    finally:
        transport.close()
        other.stop()


def test_server_that_no_way_leads_to_cannot_be_reached() -> None:
    transport = Transport()

    answer = transport.send(ask(Endpoint(host="255.255.255.255")))

    assert isinstance(answer, NoAnswer)
    assert answer.reason.startswith("it cannot be reached: ")


def test_connection_that_was_cut_is_never_made(metadata: Metadata) -> None:
    connection = _Connection(parse_endpoint(metadata.endpoint))
    connection.cut()
    connection.deadline = time.monotonic() + 5

    with pytest.raises(ConnectionAbortedError):
        connection.connect()


def test_many_silent_addresses_take_no_longer_than_one(
    full_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, *[full_server] * 100)
    began = time.monotonic()

    answer = Transport().send(ask(Endpoint(host="many.example"), timeout=0.4))

    assert answer == NoAnswer("it did not answer in time")
    assert 0.35 <= time.monotonic() - began < LONG


def test_silent_address_leaves_time_for_the_next(
    full_server: str, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, full_server, metadata.endpoint)
    transport = Transport()

    answer = transport.send(ask(Endpoint(host="two.example"), timeout=4))

    assert isinstance(answer, Response)
    transport.close()


def test_name_that_takes_too_long_leaves_no_time_to_connect(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = socket.getaddrinfo("127.0.0.1", metadata.server_port, type=socket.SOCK_STREAM)

    def resolve(*_: Any, **__: Any) -> list[Any]:
        time.sleep(0.2)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    answer = Transport().send(ask(Endpoint(host="slow.example"), timeout=0.1))

    assert answer == NoAnswer("it did not answer in time")
    assert metadata.seen == []


def test_repeat_on_another_connection_has_only_what_is_left_of_the_time(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def close_late(handler: Handler) -> None:
        nonlocal now
        now += 59.8
        handler.close_connection = True

    monkeypatch.setattr("forewarn.client._transport.monotonic", lambda: now)
    transport, endpoint = Transport(), parse_endpoint(metadata.endpoint)
    metadata.script = [answer_well, close_late, say_nothing]
    transport.send(ask(endpoint))
    began = time.monotonic()

    answer = transport.send(ask(endpoint, timeout=60))

    assert answer == NoAnswer("it did not answer in time")
    assert len(metadata.seen) == 3
    assert time.monotonic() - began < LONG
    transport.close()


def test_server_that_vanished_without_a_word_is_missed_in_time_for_a_preempt(
    metadata: Metadata,
) -> None:
    connection = _Connection(parse_endpoint(metadata.endpoint))
    connection.deadline = time.monotonic() + 5
    connection.connect()

    is_probed = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle, pause, times = (connection.sock.getsockopt(socket.IPPROTO_TCP, it) for it in options)

    assert is_probed
    assert idle + pause * times <= 15  # half of its notice
    connection.close()


def test_interrupted_request_leaves_no_answer_for_the_next(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    transport, endpoint = Transport(), parse_endpoint(metadata.endpoint)
    metadata.script = [answer_well, answer_teapot, answer_well]
    transport.send(ask(endpoint))
    with monkeypatch.context() as patched:
        patched.setattr(_Connection, "getresponse", interrupt)
        with pytest.raises(KeyboardInterrupt):
            transport.send(ask(endpoint))
    wait_until(lambda: len(metadata.seen) == 2, "the second request")

    answer = transport.send(ask(endpoint))

    assert isinstance(answer, Response)
    assert answer.status == 200
    transport.close()


def answer_teapot(handler: Handler) -> None:
    handler.answer(b"", 418)
