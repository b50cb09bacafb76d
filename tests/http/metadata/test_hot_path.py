"""Connections on the hot path, and where they leave it."""

import asyncio
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import process_time, sleep

import pytest
from tests.http.metadata.conftest import (
    GET,
    POLL,
    TIMEOUT,
    WEB,
    Replies,
    Service,
    compose,
    read_all,
    read_reply,
    running,
    wait_until,
)
from tests.http.metadata.test_long_poll import park

from forewarn.connections.crowd import EFFORT_PER_TURN, Crowd
from forewarn.connections.limits import Limits
from forewarn.metadata.board import PrintedDocument
from forewarn.metadata.hot_path import HotPath
from forewarn.metadata.http import open_listener
from forewarn.metadata.identity import find_peer
from forewarn.metadata.plain_polls import REMEMBERED_BYTES, PlainPoll, PlainPolls
from forewarn.metadata.poller import Unfinished

LAST = compose("GET", POLL, {"Metadata": "true", "Connection": "close"})


pytestmark = pytest.mark.parametrize("_road", [True], indirect=True, scope="module")


def test_kept_connection_stays_on_the_hot_path_until_it_says_something_else(
    service: Service,
) -> None:
    with service.connect() as connection:
        replies = Replies(connection)
        for _ in range(3):
            connection.sendall(GET)
            assert replies.next().status == 200
        wait_until(lambda: len(service.hot_path) == 1, "it is on the hot path")

        connection.sendall(compose("GET", "/metadata/versions", {"Metadata": "true"}))
        assert replies.next().status == 200
        assert (len(service.hot_path), service.connections) == (0, 1)

        connection.sendall(GET)
        assert replies.next().status == 200


def test_kept_connection_sees_every_change(service: Service) -> None:
    with service.connect("127.0.0.12") as connection:
        replies = Replies(connection)

        def poll() -> tuple[int, str | None]:
            connection.sendall(GET)
            reply = replies.next()
            return reply.status, reply.headers.get("etag")

        seen = [poll(), poll()]
        service.create(resources=("batch_0",))
        seen.append(poll())
        service.create()
        service.create()
        service.move("batch_0", WEB)
        seen.append(poll())
        service.remove("batch_0")
        seen.append(poll())

    assert seen == [(200, "0"), (200, "0"), (200, "1"), (200, "2"), (404, None)]


def test_connection_for_one_poll_is_closed(quiet_service: Service) -> None:
    for _ in range(20):
        with quiet_service.connect() as connection:
            connection.sendall(LAST)
            received = read_all(connection)
        assert received.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nConnection: close\r\n" in received
    assert quiet_service.connections == 0


def test_idle_connection_is_closed_after_a_while() -> None:
    with running(limits=Limits(idle_seconds=1)) as service, service.connect() as connection:
        connection.sendall(GET)
        assert read_reply(connection).status == 200

        assert connection.recv(1) == b""
        assert service.connections == 0


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_connection_that_waits_is_not_idle() -> None:
    with running(limits=Limits(idle_seconds=1)) as service, park(service, 3) as connection:
        assert read_reply(connection).status == 304


def test_those_who_go_while_many_are_woken_are_forgotten(service: Service) -> None:
    with ExitStack() as stack:
        sources = ["127.0.0.10", "127.0.0.11"] * 60
        waiting = [stack.enter_context(park(service, source=source)) for source in sources]
        wait_until(lambda: service.parked == len(sources), "all polls are parked")
        with service.loop_held():
            threading.Thread(target=service.create).start()
            wait_until(lambda: service.board.document_in(WEB).document_incarnation == 1, "changed")
            for connection in waiting:
                connection.close()

        wait_until(lambda: service.connections == 0, "all are gone")
        assert service.parked == 0


def test_connection_that_is_reset_leaves_nothing(service: Service) -> None:
    connection = service.connect()
    connection.sendall(GET)
    assert read_reply(connection).status == 200

    reset(connection)

    wait_until(lambda: service.connections == 0, "the connection is gone")


def test_stop_closes_idle_connections() -> None:
    with running() as service, service.connect() as connection:
        connection.sendall(GET)
        assert read_reply(connection).status == 200

        service.begin_to_stop()

        assert connection.recv(1) == b""


def test_answers_that_are_read_late_arrive_whole_and_in_order(service: Service) -> None:
    """Until the other end takes no more, the hot path answers; then the rest is handed over."""
    service.create(description="x" * 10_000)
    with service.connect() as connection:
        connection.sendall(GET)
        whole = len(read_reply(connection).body)
        wait_until(lambda: len(service.hot_path) == 1, "it is on the hot path")
        sent = 0
        while service.hot_path:
            connection.sendall(GET)
            sent += 1
            sleep(0.005)
        replies = Replies(connection)

        assert {len(replies.next().body) for _ in range(sent)} == {whole}


def test_last_answer_that_is_read_late_arrives_whole(service: Service) -> None:
    for number in range(8):
        service.create(description=f"{number}: " + "x" * 1_000_000)
    with service.connect() as connection:
        connection.sendall(LAST)

        received = read_all(connection)

    head, _, body = received.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_silent_connection_is_closed_in_time() -> None:
    with running(limits=Limits(head_seconds=0.2)) as service, service.connect() as connection:
        assert connection.recv(1) == b""


def test_connection_that_is_silent_at_first_is_answered_on_the_hot_path() -> None:
    with running(limits=Limits(head_seconds=1.5)) as service, ExitStack() as stack:
        slow, gone = (stack.enter_context(service.connect()) for _ in range(2))
        wait_until(lambda: len(service.hot_path) == 2, "they are there")
        gone.close()
        slow.sendall(GET)
        assert read_reply(slow).status == 200
        sleep(2)  # until a connection that has said nothing would have been closed

        slow.sendall(GET)

        assert read_reply(slow).status == 200
        assert len(service.hot_path) == 1


@contextmanager
def no_files_left() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    highest = max(numbers)
    with ExitStack() as stack:
        for _ in range(highest - len(numbers) + 2):
            stack.callback(os.close, os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_files_nobody_is_let_in_and_nothing_spins(
    quiet_service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with quiet_service.connect() as connection:
        with no_files_left():
            connection.sendall(GET)
            connection.settimeout(1.2)
            began = process_time()
            with pytest.raises(TimeoutError):
                connection.recv(1)
            assert process_time() - began < 0.6
        connection.settimeout(TIMEOUT)

        assert read_reply(connection).status == 200
    assert capsys.readouterr().out.count("cannot accept") == 1


def hand_over(connection: socket.socket, _: Unfinished) -> None:
    """Have nothing to do with it."""
    connection.close()


@contextmanager
def path_on(polls: PlainPolls, listener: socket.socket) -> Iterator[HotPath]:
    """Answer *polls* on *listener*, on this event loop."""
    path = HotPath(polls, Crowd(Limits()), hand_over, Limits())
    path.start()
    path.listen(listener)
    try:
        yield path
    finally:
        path.stop()


async def poll(listener: socket.socket, seconds: float) -> bytes:
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(
            *listener.getsockname(), local_addr=("127.0.0.10", 0)
        )
        try:
            writer.write(LAST)
            return await reader.read()
        finally:
            writer.close()


def test_stop_answers_a_poll_that_waits(quiet_service: Service) -> None:
    async def park_and_stop(listener: socket.socket) -> bytes:
        with path_on(quiet_service.plain_polls, listener):
            reader, writer = await asyncio.open_connection(
                *listener.getsockname(), local_addr=("127.0.0.10", 0)
            )
            waiting = {"Metadata": "true", "If-None-Match": "0", "Prefer": "wait=300"}
            writer.write(compose("GET", POLL, waiting))
            await asyncio.to_thread(wait_until, lambda: quiet_service.parked == 1, "it is parked")
        reply = await reader.read()
        writer.close()
        return reply

    with open_listener("127.0.0.1", 0) as listener:
        reply = asyncio.run(park_and_stop(listener))

    assert reply.startswith(b"HTTP/1.1 304 ")
    assert b"\r\nConnection: close\r\n" in reply


def test_stop_while_there_are_no_files_ends_the_listener(quiet_service: Service) -> None:
    problems: list[object] = []

    async def stop_without_files(listener: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, each: problems.append(each))
        with (
            path_on(quiet_service.plain_polls, listener),
            socket.create_connection(listener.getsockname()) as client,
        ):
            client.sendall(LAST)
            with no_files_left():
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.6)

    with open_listener("127.0.0.1", 0) as listener:
        asyncio.run(stop_without_files(listener))

    assert problems == []


def hand_over_first(service: Service, meanwhile: Callable[[socket.socket], None]) -> Unfinished:
    """Poll, do something *meanwhile* before the answer is sent, and return what is handed over."""
    handed_over: list[Unfinished] = []
    done = asyncio.Event()

    class InterruptedPolls(PlainPolls):
        def __init__(self) -> None:
            self.__dict__.update(service.plain_polls.__dict__)

        def write(self, poll: PlainPoll, page: PrintedDocument, *, closes: bool = False) -> bytes:
            meanwhile(client)
            return super().write(poll, page, closes=closes)

    def take(connection: socket.socket, unfinished: Unfinished) -> None:
        connection.close()
        handed_over.append(unfinished)
        done.set()

    async def answer(listener: socket.socket) -> None:
        with path_on(InterruptedPolls(), listener) as path:
            path.hand_over = take
            await asyncio.wait_for(done.wait(), TIMEOUT)

    with open_listener("127.0.0.1", 0) as listener:
        client = socket.create_connection(listener.getsockname(), source_address=("127.0.0.10", 0))
        with client:
            client.sendall(GET)
            asyncio.run(answer(listener))
    (first,) = handed_over
    return first


def test_connection_that_is_reset_before_its_answer_is_handed_over(service: Service) -> None:
    unfinished = hand_over_first(service, reset)

    assert unfinished.unsent.startswith(b"HTTP/1.1 200 OK")
    assert not unfinished.received


def test_connection_that_says_something_else_at_once_is_handed_over(service: Service) -> None:
    other = compose("GET", "/metadata/versions", {"Metadata": "true"})

    assert hand_over_first(service, lambda client: client.sendall(other)) == Unfinished(other)


def test_connection_that_is_dropped_in_the_turn_in_which_it_polls() -> None:
    with (
        running(limits=Limits(connections=1)) as service,
        service.connect() as old,
        service.connect() as new,
    ):
        replies = Replies(old)
        for _ in range(2):  # after the second answer, it is followed
            old.sendall(GET)
            assert replies.next().status == 200
        with service.loop_held():
            new.sendall(GET)
            old.sendall(GET)

        assert read_reply(new).status == 200
        assert read_all(old) == b""


def test_connection_that_is_dropped_right_after_its_first_answer() -> None:
    with (
        running(limits=Limits(connections=1)) as service,
        service.connect() as old,
        service.connect() as new,
    ):
        with service.loop_held():
            old.sendall(GET)
            new.sendall(GET)

        assert read_all(old).startswith(b"HTTP/1.1 200 OK")
        replies = Replies(new)
        assert replies.next().status == 200
        new.sendall(GET)
        assert replies.next().status == 200


def test_connection_beyond_the_limit_is_closed_at_once() -> None:
    limits = Limits(connections=1)
    with running(limits=limits) as service, service.connect() as known:
        known.sendall(GET)
        assert read_reply(known).status == 200
        with service.connect("127.0.0.66") as stranger:
            stranger.sendall(GET)
            assert read_all(stranger) == b""


def test_origin_gets_no_more_than_its_effort_in_a_turn(quiet_service: Service) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(quiet_service.connect()) for _ in range(2 * EFFORT_PER_TURN)]
        for connection in many:
            connection.sendall(GET)
            assert read_reply(connection).status == 200
        with quiet_service.loop_held():
            for connection in many:
                connection.sendall(GET)

        assert {read_reply(connection).status for connection in many} == {200}


def test_polls_that_are_not_repeated_are_forgotten(quiet_service: Service) -> None:
    polls = quiet_service.plain_polls
    peer = find_peer(("127.0.0.10", 1), ("127.0.0.1", 80))

    def resolve(number: int) -> PlainPoll:
        filler = f"{number} ".ljust(1000, "x")
        data = compose("GET", POLL, {"Metadata": "true", "X-Filler": filler})
        resolved = polls.resolve(data, peer)
        assert resolved is not None
        return resolved.poll

    repeated, once = resolve(-1), resolve(0)
    for number in range(1, 2 * REMEMBERED_BYTES // 1000):
        resolve(number)
        assert resolve(-1) is repeated

    again = resolve(0)
    assert again == once
    assert again is not once


def test_polls_of_strangers_are_not_remembered(quiet_service: Service) -> None:
    polls = quiet_service.plain_polls
    stranger = find_peer(("127.0.0.66", 1), ("127.0.0.1", 80))
    data = compose("GET", POLL, {"Metadata": "true", "X-Filler": "of a stranger"})

    assert polls.resolve(data, stranger) is None
    assert polls.recall(data) is not polls.recall(data)
