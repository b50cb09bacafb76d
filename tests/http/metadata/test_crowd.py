"""Many connections and many requests of one caller, and what is left for its neighbours."""

import asyncio
import gc
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from tests.http.metadata.conftest import (
    GET,
    POLL,
    TIMEOUT,
    Replies,
    Service,
    compose,
    read_all,
    read_reply,
    running,
    wait_until,
)
from tests.http.metadata.test_long_poll import park

from forewarn.connections.crowd import MOST_ORIGINS, Crowd, Origin, Troubles, origin_of
from forewarn.connections.guarded import GuardedProtocol
from forewarn.connections.limits import Limits

NOWHERE = compose("GET", "/nowhere", {})
ATTACKS = Path(__file__).parents[3] / "bench" / "attacks.py"
GREEDY, NEIGHBOUR, STRANGER = "127.0.0.10", "127.0.0.11", "127.0.0.66"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fd00:0:0:1:2::3", "fd00:0:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_strangers_count_by_address_or_network(address: str, name: str) -> None:
    assert origin_of(address) == Origin(name=name)


def connect(service: Service, source: str) -> socket.socket:
    """Open a connection that is there: the kernel keeps silent ones to itself for a second."""
    connection = service.connect(source)
    connection.sendall(NOWHERE)
    assert read_reply(connection).status == 404
    return connection


def poll(connection: socket.socket) -> int:
    connection.sendall(GET)
    return read_reply(connection).status


def test_nobody_holds_more_than_a_share() -> None:
    with (
        running(
            trust_path=False, limits=Limits(connections=20, connections_per_origin=5)
        ) as service,
        ExitStack() as stack,
    ):
        neighbour = stack.enter_context(service.connect(NEIGHBOUR))
        assert poll(neighbour) == 200
        many = [stack.enter_context(connect(service, GREEDY)) for _ in range(12)]

        assert all(read_all(early) == b"" for early in many[:7])
        assert {poll(late) for late in many[7:]} == {200}
        assert poll(neighbour) == 200


def test_caller_whose_connections_are_all_busy_gets_no_more() -> None:
    with (
        running(
            trust_path=False, limits=Limits(connections=20, connections_per_origin=2)
        ) as service,
        ExitStack() as stack,
    ):
        for _ in range(2):
            stack.enter_context(park(service, source=GREEDY))
        wait_until(lambda: service.parked == 2, "the polls are parked")

        extra = stack.enter_context(service.connect(GREEDY))

        assert read_all(extra) == b""
        assert service.parked == 2


@pytest.mark.parametrize("idle", [GREEDY, STRANGER])
def test_idle_connections_of_the_biggest_holder_and_of_strangers_go_first(idle: str) -> None:
    with running(limits=Limits(connections=10)) as service, ExitStack() as stack:
        small = stack.enter_context(service.connect("127.0.0.12"))
        assert poll(small) == 200
        many = [stack.enter_context(connect(service, idle)) for _ in range(9)]
        wait_until(lambda: service.connections == 10, "all connections are taken")

        neighbour = stack.enter_context(service.connect(NEIGHBOUR))

        assert poll(neighbour) == 200
        assert read_all(many[0]) == b""
        assert poll(small) == 200


def test_stranger_does_not_take_the_place_of_a_virtual_machine() -> None:
    with running(limits=Limits(connections=4)) as service, ExitStack() as stack:
        known = [stack.enter_context(service.connect(GREEDY)) for _ in range(4)]
        assert {poll(connection) for connection in known} == {200}

        stranger = stack.enter_context(service.connect(STRANGER))

        assert read_all(stranger) == b""
        assert {poll(connection) for connection in known} == {200}


def flood(connection: socket.socket, request: bytes, megabytes: int) -> int:
    """Send requests without reading an answer until nobody takes them; return how many bytes."""
    connection.settimeout(1)
    block, sent = request * (65_536 // len(request)), 0
    with suppress(OSError):
        while sent < megabytes * 1_000_000:
            sent += connection.send(block)
    return sent


def test_requests_behind_a_parked_poll_are_not_all_taken_in(service: Service) -> None:
    with park(service) as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")

        sent = flood(connection, NOWHERE, 40)

        assert sent < 20_000_000
        assert service.queued < 100
        assert service.request(source=NEIGHBOUR).status == 200


def test_pipelined_requests_are_answered_in_order_however_many(service: Service) -> None:
    body = b'{"StartRequests":[{"EventId":"unknown"}]}'
    post = compose("POST", POLL, {"Metadata": "true", "Content-Length": str(len(body))}) + body
    with service.connect() as connection:
        sending = threading.Thread(
            target=connection.sendall, args=((GET + NOWHERE + post) * 200,), daemon=True
        )
        sending.start()
        replies = Replies(connection)

        statuses = [replies.next().status for _ in range(600)]

        sending.join()
    assert statuses == [200, 404, 400] * 200


def test_many_requests_and_then_no_more_are_all_answered(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(GET * 40 + NOWHERE * 40)
        connection.shutdown(socket.SHUT_WR)

        received = read_all(connection)

    assert (received.count(b" 200 OK\r\n"), received.count(b" 404 Not")) == (40, 40)


@contextmanager
def attacking(way: str, port: int) -> Iterator[None]:
    command = (sys.executable, str(ATTACKS), "--attack", way, "--port", str(port))
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def time_polls(service: Service) -> float:
    """Return the median of some polls of the neighbour, in seconds."""
    times = []
    with service.connect(NEIGHBOUR) as connection:
        replies = Replies(connection)
        for _ in range(40):
            began = perf_counter()
            connection.sendall(GET)
            assert replies.next().status == 200
            times.append(perf_counter() - began)
    return median(times)


def memory() -> int:
    """Return how many MiB this process has, in which the server is."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() >> 20


def test_neighbour_is_answered_and_memory_comes_back_whatever_somebody_does(
    service: Service,
) -> None:
    """A coarse guard, a tenth of what `bench/attacks.py` measures."""
    quiet, before, slow = time_polls(service), memory(), {}

    for way in ("waiting polls", "pipelined requests, read", "behind a waiting poll", "bad bytes"):
        with attacking(way, service.port):
            wait_until(lambda: service.connections > 0, "the attack has begun", timeout=30)
            slow[way] = time_polls(service)
        wait_until(lambda: service.connections == 0, "everybody has gone")

    assert max(slow.values()) < 30 * max(quiet, 0.01), slow
    assert (service.queued, service.parked, service.requests) == (0, 0, 0)
    assert memory() < before * 1.1 + 30


def _count_protocols() -> int:
    return sum(isinstance(found, GuardedProtocol) for found in gc.get_objects())


def test_connection_that_is_over_leaves_nothing_to_the_garbage_collector(service: Service) -> None:
    gc.collect()
    gc.disable()
    try:
        before = _count_protocols()
        for _ in range(10):
            with service.connect() as connection:
                connection.sendall(NOWHERE)
                assert read_reply(connection).status == 404
        wait_until(lambda: service.connections == 0, "the connections are closed")
        left = _count_protocols() - before
    finally:
        gc.enable()

    assert left <= 1  # the event loop may still have the last one at hand


def test_who_asks_before_it_is_answered_rests_between_turns() -> None:
    async def take_turns() -> list[int]:
        crowd, done = Crowd(Limits(connections=4)), list[int]()
        holder = crowd.admit(Silent(), GREEDY)
        assert holder
        holder.is_pipelining = True
        assert holder.spend(1)
        holder.waiting.extend(partial(done.append, number) for number in range(100))
        turns = [len(done)]
        while len(done) < 100:
            await asyncio.sleep(0)
            if len(done) != turns[-1]:
                turns.append(len(done))
        return turns

    turns = asyncio.run(take_turns())

    assert turns == [0, 32, 64, 96, 100]


class Silent:
    """A connection that asks for nothing."""

    def is_idle(self) -> bool:
        return True

    def is_stalled(self) -> bool:
        return False

    def drop(self) -> None:
        """Be gone."""


def test_connection_that_fails_in_its_turn_takes_nobody_elses() -> None:
    done: list[str] = []

    def fail() -> None:
        raise OSError

    async def take_turns() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: done.append("failed"))
        crowd = Crowd(Limits())
        first, second = (crowd.admit(Silent(), address) for address in (GREEDY, NEIGHBOUR))
        assert first
        assert second
        first.waiting.append(fail)
        second.waiting.append(partial(done.append, "answered"))
        first.spend(0)
        second.spend(0)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(take_turns())
    assert done == ["failed", "answered"]


def test_refusal_under_a_running_handler_leaves_no_traceback(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    head = compose("POST", "/nowhere", {"Metadata": "true", "Transfer-Encoding": "chunked"})
    for beginning in (b"", park_request()):
        with service.connect() as connection:
            connection.sendall(beginning + head + b"not a chunk\r\n")

            read_all(connection)
    wait_until(lambda: service.requests == 0, "every handler has ended")

    assert not caplog.records


def test_repeated_trouble_of_one_caller_is_said_once_a_minute(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with service.connect() as connection:
            connection.sendall(b"\x00\r\n\r\n")
            read_all(connection)

    assert capsys.readouterr().out.count("connection_refused") == 1


def park_request() -> bytes:
    return compose("GET", POLL, {"Metadata": "true", "If-None-Match": "0", "Prefer": "wait=1"})


def test_trouble_is_summed_up_by_caller(capsys: pytest.CaptureFixture[str]) -> None:
    async def have_trouble() -> None:
        troubles = Troubles(seconds=0.01)
        for _ in range(5):
            troubles.note("10.0.0.1", "HTTP 400")
        for number in range(200):
            troubles.note(f"10.0.1.{number}", "HTTP 431")
        await asyncio.sleep(0.05)

    asyncio.run(have_trouble())

    lines = capsys.readouterr().out.splitlines()
    assert sum("connections_refused" in line for line in lines) == 2
    assert len(lines) <= MOST_ORIGINS + 1 + 2
