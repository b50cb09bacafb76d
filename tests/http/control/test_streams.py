"""Streams: few of a token, never the last connections, and the first to go for a request."""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import httpx2
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs
from tests.http.conftest import TOKEN
from tests.http.control.test_connections import (
    Listener,
    compose,
    listening,
    read_reply,
)
from tests.waiting import wait_until

from forewarn.connections.crowd import Crowd, Holder, Origin
from forewarn.connections.limits import Limits, StreamLimitError, Streams, streams_within
from forewarn.desk.services import STREAMS_OF_A_TOKEN, Services

NARROW = Limits(connections=8, connections_per_origin=8)
WATCH = "/api/v1/events/watch"
UNLIMITED = 1000


def create(api: httpx2.Client, name: str) -> str:
    """Return the secret of a new token of a viewer."""
    made = api.post("tokens", json={"name": name, "role": "viewer"})
    return str(made.json()["secret"])


def begin(listener: Listener, secret: str = TOKEN) -> tuple[socket.socket, bytes]:
    """Ask for a stream; return the connection, and the beginning of the answer."""
    connection = listener.connect()
    connection.sendall(compose("GET", WATCH, {"Authorization": f"Bearer {secret}"}))
    return connection, connection.recv(4096)


def hold(listener: Listener, stack: ExitStack, secret: str, number: int) -> list[socket.socket]:
    """Hold so many streams."""
    held = []
    for _ in range(number):
        connection, answer = begin(listener, secret)
        stack.enter_context(connection)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        held.append(connection)
    return held


def allow_many_of_a_token(app: FastAPI) -> None:
    services: Services = app.state.services
    app.state.services = replace(services, streams=Streams(UNLIMITED))


def revoke(listener: Listener, name: str) -> int:
    with listener.connect() as connection:
        connection.sendall(compose("DELETE", f"/api/v1/tokens/{name}"))
        return read_reply(connection)[0]


def test_token_has_few_streams_and_the_next_is_told_the_limit(
    app: FastAPI, api: httpx2.Client
) -> None:
    secret, other = create(api, "ada"), create(api, "bob")
    with listening(app) as listener, ExitStack() as stack:
        held = hold(listener, stack, secret, STREAMS_OF_A_TOKEN)
        refused, answer = begin(listener, secret)
        refused.close()
        hold(listener, stack, other, 1)

        held[0].close()
        wait_until(lambda: can_begin(listener, secret), "the place of the stream that has ended")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nretry-after: 10" in head.lower()
    assert b"urn:forewarn:problem:stream-limit" in body
    assert b"A token may have at most 16 streams at once" in body


def can_begin(listener: Listener, secret: str) -> bool:
    connection, answer = begin(listener, secret)
    connection.close()
    return answer.startswith(b"HTTP/1.1 200 ")


def test_admin_revokes_a_token_whose_streams_have_taken_everything_else(
    app: FastAPI, api: httpx2.Client
) -> None:
    """All connections come from one address, as through a proxy."""
    secret = create(api, "ada")
    allow_many_of_a_token(app)
    with listening(app, NARROW) as listener, ExitStack() as stack:
        hold(listener, stack, secret, streams_within(8))
        for _ in range(8):
            connection, answer = begin(listener, secret)
            stack.enter_context(connection)
            assert b"An address may have at most 6 streams at once" in answer

        assert revoke(listener, "ada") == 200


def test_stream_gives_way_to_a_request_if_all_other_connections_are_busy(
    app: FastAPI, api: httpx2.Client
) -> None:
    secret = create(api, "ada")
    allow_many_of_a_token(app)
    unfinished = compose("POST", "/api/v1/events", {"Content-Length": "10"}) + b"{"
    with listening(app, NARROW) as listener, ExitStack() as stack, capture_logs() as logs:
        oldest, *others = hold(listener, stack, secret, streams_within(8))
        for _ in range(2):
            connection = stack.enter_context(listener.connect())
            connection.sendall(unfinished)
        wait_until(lambda: len(listener.server.server_state.tasks) == 8, "the requests to begin")

        assert revoke(listener, "ada") == 200
        wait_until(partial(is_closed, oldest), "the oldest stream to be dropped")
        assert not any(map(is_closed, others[1:]))
    assert "stream dropped, no connection left" in [line.get("problem") for line in logs]


def test_request_gives_way_if_its_client_is_slow_and_all_connections_are_busy(
    app: FastAPI, api: httpx2.Client
) -> None:
    """A viewer must not keep an admin out by requests that it never finishes."""
    secret = create(api, "ada")
    bearer = {"Authorization": f"Bearer {secret}", "Content-Length": "10"}
    unfinished = compose("POST", "/api/v1/maintenances/plan", bearer) + b"{"
    with listening(app, NARROW) as listener, ExitStack() as stack, capture_logs() as logs:
        slow = [stack.enter_context(listener.connect()) for _ in range(8)]
        for connection in slow:
            connection.sendall(unfinished)
        wait_until(lambda: len(listener.server.server_state.tasks) == 8, "the requests to begin")

        assert revoke(listener, "ada") == 200
        wait_until(partial(is_closed, slow[0]), "the oldest request to be dropped")
        assert not any(map(is_closed, slow[1:]))
    assert "slow request dropped, no connection left" in [line.get("problem") for line in logs]


def test_answer_that_is_not_read_gives_way_if_all_connections_are_busy(app: FastAPI) -> None:
    limits = replace(NARROW, write_seconds=600)
    with listening(app, limits) as listener, ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(listener.connect(receive_bytes=2048))
            connection.sendall(compose("GET", "/api/openapi.json") * 30)
        wait_until(lambda: len(listener.server.server_state.tasks) == 8, "the requests to begin")

        wait_until(lambda: finds_room(listener), "the oldest answer to be dropped")


def finds_room(listener: Listener) -> bool:
    try:
        return revoke(listener, "nobody") == 404
    except OSError:
        return False


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_tokens_are_counted_apart() -> None:
    streams = Streams(2)
    with ExitStack() as stack:
        for token in ("ada", "ada", "bob"):
            stack.enter_context(streams.place(token, {}))

        with pytest.raises(StreamLimitError, match="A token may have at most 2"):
            stack.enter_context(streams.place("ada", {}))
        stack.enter_context(streams.place("bob", {}))
    with streams.place("ada", {}), streams.place("ada", {}):
        pass


class Door:
    """Connections of one origin, as far as there is room."""

    def __init__(self, room: int) -> None:
        self.open: list[str] = []
        self._room = room

    def scope(self, name: str) -> dict[str, object]:
        """Return the scope of a request on the connection *name*."""

        def begin_stream() -> None:
            if len(self.open) >= self._room:
                raise StreamLimitError("An address", self._room)
            self.open.append(name)

        connection = {"begin_stream": begin_stream, "drop": partial(self.open.remove, name)}
        return {"extensions": {"connection": connection}}


@pytest.mark.parametrize(("of_token", "room"), [(2, 10), (10, 2)])
def test_newest_feed_of_a_relay_takes_the_place_of_its_oldest(of_token: int, room: int) -> None:
    feeds, door = Streams(of_token, newest_wins=True), Door(room)
    with ExitStack() as stack:
        for name in "abcd":
            stack.enter_context(feeds.place("relay", door.scope(name)))

        assert door.open == ["c", "d"]


def test_feed_of_another_relay_takes_no_place() -> None:
    feeds, door = Streams(2, newest_wins=True), Door(2)
    with ExitStack() as stack:
        for name in "ab":
            stack.enter_context(feeds.place("one", door.scope(name)))

        with pytest.raises(StreamLimitError):
            stack.enter_context(feeds.place("two", door.scope("c")))
        assert door.open == ["a", "b"]


def test_dropped_feed_that_ends_late_frees_no_place_of_a_newer_one() -> None:
    feeds, door = Streams(1, newest_wins=True), Door(10)
    late = feeds.place("relay", door.scope("a"))
    late.__enter__()
    with feeds.place("relay", door.scope("b")):
        pass
    with feeds.place("relay", door.scope("c")):
        late.__exit__(None, None, None)
        with feeds.place("relay", door.scope("d")):
            assert door.open == ["b", "d"]


class Busy:
    """A connection on which something is answered, unless it *is_free*."""

    def __init__(self, *, is_free: bool = False) -> None:
        self._is_free = is_free
        self.is_dropped = False

    def is_idle(self) -> bool:
        return self._is_free

    def is_stalled(self) -> bool:
        return False

    def drop(self) -> None:
        self.is_dropped = True


def admit(crowd: Crowd, member: Busy, address: str = "10.0.0.1") -> Holder:
    holder = crowd.admit(member, address)
    assert holder is not None
    return holder


def test_idle_connection_goes_before_a_stream_of_anyone() -> None:
    async def crowd_in() -> None:  # on an event loop, because what is dropped is logged
        crowd = Crowd(Limits(connections=3, connections_per_origin=3))
        stream, busy, idle = Busy(), Busy(), Busy(is_free=True)
        crowd.begin_stream(stream, admit(crowd, stream))
        admit(crowd, busy)
        admit(crowd, idle, "10.0.0.2")

        admit(crowd, Busy(), "10.0.0.3")
        assert (idle.is_dropped, stream.is_dropped) == (True, False)
        admit(crowd, Busy(), "10.0.0.3")
        assert (stream.is_dropped, busy.is_dropped) == (True, False)
        assert crowd.admit(Busy(), "10.0.0.4") is None

    asyncio.run(crowd_in())


def test_stranger_drops_no_stream_of_those_we_know() -> None:
    def find_origin(address: str | None) -> Origin:
        return Origin(name=str(address), is_known=address == "10.0.0.1")

    async def crowd_in() -> None:
        crowd = Crowd(Limits(connections=1, connections_per_origin=4), find_origin)
        stream = Busy()
        crowd.begin_stream(stream, admit(crowd, stream))

        assert crowd.admit(Busy(), "10.0.0.2") is None
        assert not stream.is_dropped

    asyncio.run(crowd_in())


def test_stream_that_was_lost_before_it_began_counts_no_more() -> None:
    crowd = Crowd(Limits(connections=4, connections_per_origin=4))
    lost = Busy()
    holder = Holder(Origin(name="10.0.0.1"), lambda _: None)

    crowd.begin_stream(lost, holder)

    assert not holder.streams
