"""HTTP as it really arrives: split, slow, pipelined, old, chunked, too much, or not at all."""

import asyncio
import json
import socket
import stat
import struct
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter, sleep

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

from forewarn.bootstrap.listening import open_listeners
from forewarn.connections.crowd import Origin, origin_of
from forewarn.connections.limits import Limits, connections_within_open_files
from forewarn.metadata.asgi import HttpScope, Receive, Send
from forewarn.metadata.http import MetadataServer, open_listener, open_unix_listener
from forewarn.settings import make_settings

IMPATIENT = Limits(head_seconds=0.5, body_seconds=0.5, write_seconds=0.5)


@pytest.fixture(scope="module")
def impatient(_road: None) -> Generator[Service, None, None]:
    """Share a service that waits for nobody."""
    with running(limits=IMPATIENT) as service:
        yield service


def approval(identifier: str) -> bytes:
    return json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()


def test_one_connection_carries_many_requests(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        replies = Replies(connection)
        for method in ("GET", "HEAD", "GET"):
            connection.sendall(compose(method, POLL, {"Metadata": "true"}))
            reply = replies.next(method)
            assert (reply.status, "connection" in reply.headers) == (200, False)


@pytest.mark.parametrize("value", ["close", "Close", "CLOSE", "foo, close"])
def test_connection_close_is_answered_with_connection_close(
    quiet_service: Service, value: str
) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true", "Connection": value}))
        received = read_all(connection)

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in received


def test_http_1_0_is_answered_and_closed(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}, protocol="1.0"))
        received = read_all(connection)

    assert received.endswith(b'\r\n\r\n{"DocumentIncarnation":0,"Events":[]}')
    assert b"\r\nConnection: close\r\n" in received


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    identifier = service.create()
    body = approval(identifier)
    post = compose("POST", POLL, {"Metadata": "true", "Content-Length": str(len(body))}) + body
    unknown = compose("GET", "/nowhere", {"Metadata": "true"})
    with service.connect() as connection:
        connection.sendall(GET + post + unknown + GET)
        replies = Replies(connection)

        statuses = [replies.next().status for _ in range(4)]

    assert statuses == [200, 200, 404, 200]
    assert service.approvers(identifier) == ("web-0",)


def test_a_thousand_pipelined_polls_are_all_answered(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(GET * 1000)
        replies = Replies(connection)

        assert {replies.next().status for _ in range(1000)} == {200}


def test_reset_behind_pipelined_requests_leaves_no_traceback(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"StartRequests":[]}'
    post = compose("POST", POLL, {"Metadata": "true", "Content-Length": str(len(body))}) + body
    for pause in (0.01, 0.0, 0.02) * 20:
        with service.connect() as connection:
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.send(post * 500)
            sleep(pause)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: service.requests == 0, "every handler has ended")

    assert not caplog.records


def test_request_in_single_bytes_is_read(service: Service) -> None:
    body = approval(service.create())
    head = compose("POST", POLL, {"Metadata": "true", "Content-Length": str(len(body))})
    with service.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head + body:
            connection.send(bytes([byte]))

        assert read_reply(connection, "POST").status == 200


def test_chunked_body_is_read(service: Service) -> None:
    identifier = service.create()
    body = approval(identifier)
    head = compose("POST", POLL, {"Metadata": "true", "Transfer-Encoding": "chunked"})
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(head + chunks)

        assert read_reply(connection, "POST").status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_chunked_body_that_grows_too_large_is_refused(quiet_service: Service) -> None:
    head = compose("POST", POLL, {"Metadata": "true", "Transfer-Encoding": "chunked"})
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    with quiet_service.connect() as connection:
        connection.sendall(head + chunk * 5 + b"0\r\n\r\n")
        reply = read_reply(connection, "POST")

    assert (reply.status, reply.headers["connection"]) == (413, "close")


def test_expectation_is_answered_before_the_body_comes(service: Service) -> None:
    identifier = service.create()
    body = approval(identifier)
    headers = {"Metadata": "true", "Expect": "100-continue", "Content-Length": str(len(body))}
    with service.connect() as connection:
        connection.sendall(compose("POST", POLL, headers))
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"

        connection.sendall(body)
        assert read_reply(connection, "POST").status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_expected_body_that_is_too_large_is_refused_at_once(quiet_service: Service) -> None:
    headers = {"Metadata": "true", "Expect": "100-continue", "Content-Length": "70000"}
    with quiet_service.connect() as connection:
        connection.sendall(compose("POST", POLL, headers))

        assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_client_that_says_no_more_is_still_answered(service: Service) -> None:
    body = approval(service.create())
    post = compose("POST", POLL, {"Metadata": "true", "Content-Length": str(len(body))}) + body
    for request in (GET, post, GET + GET):
        with service.connect() as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)

            received = read_all(connection)

        assert received.count(b"HTTP/1.1 200 OK") == request.count(b" HTTP/1.1\r\n")


# What Java's HttpClient sends by default.
UPGRADE = {
    "Connection": "Upgrade, HTTP2-Settings",
    "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
    "Upgrade": "h2c",
}


def test_upgrade_is_declined_and_the_connection_goes_on(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true", **UPGRADE}) + GET)
        replies = Replies(connection)

        assert [replies.next().status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_upgrade_does_not_take_the_body(service: Service, is_chunked: bool) -> None:  # noqa: FBT001
    identifier = service.create()
    body = approval(identifier)
    length = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(len(body))}
    head = compose("POST", POLL, {"Metadata": "true", **UPGRADE, **length})
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    with service.connect() as connection:
        replies = Replies(connection)
        connection.sendall(head)
        connection.sendall(sent[:10])
        connection.sendall(sent[10:] + GET)

        assert [replies.next().status for _ in range(2)] == [200, 200]
    assert service.approvers(identifier) == ("web-0",)


def test_body_of_an_upgrade_is_not_taken_for_a_request(service: Service) -> None:
    hidden = compose("GET", "/nowhere", {"Metadata": "true"})
    headers = {"Metadata": "true", **UPGRADE, "Content-Length": str(len(hidden))}
    with service.connect() as connection:
        replies = Replies(connection)
        connection.sendall(compose("POST", POLL, headers) + hidden + GET)

        assert [replies.next().status for _ in range(2)] == [400, 200]


def test_many_upgrades_at_once_are_all_answered(quiet_service: Service) -> None:
    upgrade = compose("GET", POLL, {"Metadata": "true", "Connection": "upgrade", "Upgrade": "x"})
    with quiet_service.connect() as connection:
        replies = Replies(connection)
        connection.sendall(upgrade * 1500)

        assert {replies.next().status for _ in range(1500)} == {200}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("more", [{}, UPGRADE])
def test_trailer_is_no_header(quiet_service: Service, method: str, more: dict[str, str]) -> None:
    request = compose(method, POLL, {"Transfer-Encoding": "chunked", **more})
    trailer = b"0\r\nMetadata: true\r\n\r\n"
    with quiet_service.connect() as connection:
        replies = Replies(connection)
        connection.sendall(request + trailer + GET)

        reply = replies.next()
        assert (reply.status, b"metadata header" in reply.body) == (400, True)
        assert replies.next().status == 200


@pytest.mark.parametrize(("values", "status"), [("false true", 400), ("true false", 200)])
def test_of_a_header_that_is_there_twice_the_first_counts(
    quiet_service: Service, values: str, status: int
) -> None:
    lines = "".join(f"Metadata: {value}\r\n" for value in values.split())
    with quiet_service.connect() as connection:
        connection.sendall(f"GET {POLL} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())

        assert read_reply(connection).status == status


def test_tunnel_is_refused(quiet_service: Service) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(b"CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n" + GET)

        assert read_all(connection).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9.9\r\n\r\n",
        b"GET /metadata\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_the_connection_closed(
    quiet_service: Service, garbage: bytes
) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(garbage)

        assert read_all(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "polling", [GET, compose("GET", POLL, {"Metadata": "TRUE"})], ids=["plain", "the long way"]
)
def test_garbage_after_a_request_does_not_take_its_answer(
    quiet_service: Service, polling: bytes
) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(polling + b"\x00\x01\x02\r\n\r\n")

        received = read_all(connection)

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b" 200 OK") == 1


@pytest.mark.parametrize(
    "head",
    [
        compose("GET", POLL, {"Metadata": "true", "X": "y" * 40_000}),
        compose("GET", POLL, {"Metadata": "true", "X": "y" * 900_000}),
        compose("GET", POLL + "&x=" + "y" * 40_000, {"Metadata": "true"}),
        compose("GET", POLL, {"Metadata": "true"} | {f"X-{n}": "y" for n in range(120)}),
        b"GET /" + b"y" * 400_000,
    ],
    ids=["header", "huge header", "target", "many headers", "no end"],
)
def test_flood_of_a_head_is_refused_and_closed(quiet_service: Service, head: bytes) -> None:
    with quiet_service.connect() as connection:
        connection.sendall(head)

        received = read_all(connection)

    assert received.startswith(b"HTTP/1.1 431 ")
    assert b"\r\nConnection: close\r\n" in received


def test_head_just_within_the_limits_is_read(quiet_service: Service) -> None:
    headers = {"Metadata": "true"} | {f"X-{n}": "y" * 300 for n in range(95)}

    assert quiet_service.request(headers=headers).status == 200


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"\r\n",
        b"GET /metadata",
        GET[:-2],
        GET + b"GET /",
        compose("POST", POLL, {"Metadata": "true", "Content-Length": "10"}) + b"{",
        compose("POST", "/nowhere", {"Metadata": "true", "Content-Length": "10"}) + b"{",
    ],
    ids=["silence", "blank line", "target", "head", "second head", "body", "unwanted body"],
)
def test_connection_that_does_not_finish_its_request_is_closed(
    impatient: Service, beginning: bytes
) -> None:
    with impatient.connect() as connection:
        connection.sendall(beginning)

        read_all(connection)

    wait_until(lambda: impatient.connections == 0, "the connection is freed")


def test_dripping_does_not_keep_a_connection_alive(impatient: Service) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /")
        wait_until(lambda: impatient.connections == 1, "the connection is there")

        wait_until(lambda: is_closed_to(connection, b"x"), "the connection is closed", timeout=20)


@pytest.mark.parametrize("attempt", range(4))
def test_client_that_never_reads_is_dropped(impatient: Service, attempt: int) -> None:
    del attempt  # which answer finds the connection full is chance, and there are two ways
    with impatient.connect() as connection:
        connection.settimeout(1)
        with suppress(OSError):  # blocked, or dropped already
            for _ in range(2000):
                connection.sendall(GET * 1000)

        wait_until(lambda: impatient.connections == 0, "the connection is dropped")


def is_closed_to(connection: socket.socket, more: bytes) -> bool:
    try:
        connection.send(more)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


def test_idle_connection_outlives_the_patience_for_requests(impatient: Service) -> None:
    with impatient.connect() as connection:
        replies = Replies(connection)
        connection.sendall(GET)
        assert replies.next().status == 200
        connection.settimeout(2 * IMPATIENT.head_seconds)
        with pytest.raises(TimeoutError):
            connection.recv(1)

    with impatient.connect() as connection:
        connection.sendall(GET)
        assert read_reply(connection).status == 200


def test_connections_are_capped_and_freed() -> None:
    with running(limits=Limits(connections=40)) as service:
        fill_and_leave(service)

        assert service.request().status == 200


def fill_and_leave(service: Service) -> None:
    with ExitStack() as stack:
        polite = [stack.enter_context(service.connect()) for _ in range(40)]
        for connection in polite:
            connection.sendall(GET)
            assert read_reply(connection).status == 200
        extra = stack.enter_context(service.connect())
        extra.sendall(GET)
        assert read_reply(extra).status == 200
        assert read_all(polite[0]) == b"", "the oldest idle one has gone"
        wait_until(lambda: service.connections == 40, "the new one is in its place")
    wait_until(lambda: service.connections == 0, "all are freed")


def test_cap_leaves_room_for_other_files() -> None:
    assert 16 <= connections_within_open_files() <= 100_000


def test_parallel_connections_are_all_served(quiet_service: Service) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(quiet_service.connect()) for _ in range(300)]
        for connection in connections:
            connection.sendall(GET)

        assert {read_reply(connection).status for connection in connections} == {200}


def test_unix_socket_of_a_running_service_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with running(unix_path=path):
        with pytest.raises(OSError, match="in use"):
            open_unix_listener(path)

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(TIMEOUT)
            client.connect(str(path))


def test_unix_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))

    open_unix_listener(path).close()


@pytest.mark.parametrize(
    ("given", "mode"), [({}, 0o660), ({"metadata_socket_mode": "0606"}, 0o606)]
)
def test_unix_socket_has_the_mode_that_is_set(
    tmp_path: Path, given: dict[str, str], mode: int
) -> None:
    path = tmp_path / "m.sock"
    settings = make_settings({"metadata": [f"unix:{path}"], "control": "127.0.0.1:0", **given})

    with ExitStack() as closing:
        open_listeners(settings, closing)

        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_each_pipelined_request_has_its_own_time() -> None:
    """Every segment ends inside the next head, so a deadline for the first would cut them off."""
    answered, patience = 0, 2.0
    with (
        running(limits=Limits(head_seconds=patience)) as service,
        service.connect() as connection,
    ):
        replies = Replies(connection)
        connection.sendall(GET[:10])
        began = perf_counter()
        while perf_counter() - began < 1.5 * patience:
            connection.sendall(GET[10:] + GET[:10])
            assert replies.next().status == 200
            answered += 1

    assert answered > 0


def test_stop_does_not_wait_for_ever_for_the_rest_of_a_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = Limits(grace_seconds=1.2, body_seconds=10 * TIMEOUT)
    with running(limits=limits) as service, service.connect() as connection:
        headers = {"Metadata": "true", "Content-Length": "100"}
        connection.sendall(compose("POST", POLL, headers) + b"half")
        wait_until(lambda: service.requests == 1, "the request has begun")
        service.begin_to_stop()
        assert read_all(connection) == b""

    assert not caplog.records


def test_stop_answers_a_request_whose_body_is_on_its_way() -> None:
    with ExitStack() as stack:
        service = stack.enter_context(running(limits=Limits(grace_seconds=TIMEOUT)))
        connection, idle = (stack.enter_context(service.connect()) for _ in range(2))
        idle.sendall(compose("HEAD", POLL, {"Metadata": "true"}))
        read_reply(idle, "HEAD")
        body = approval(service.create())
        headers = {"Metadata": "true", "Content-Length": str(len(body))}
        connection.sendall(compose("POST", POLL, headers) + body[:-1])
        wait_until(lambda: service.requests == 1, "the request has begun")
        service.begin_to_stop()
        assert read_all(idle) == b"", "the server closes idle connections"
        connection.sendall(body[-1:])
        reply = read_reply(connection)

    assert (reply.status, reply.headers["connection"]) == (200, "close")


def test_stop_is_not_held_up_for_ever_by_a_store_that_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(limits=Limits(grace_seconds=0.2)) as service:
        identifier = service.create()
        letting_go = threading.Event()
        with ThreadPoolExecutor(2) as threads, service.connect() as connection:
            threads.submit(service.store.write, lambda _: letting_go.wait(TIMEOUT))
            body = approval(identifier)
            headers = {"Metadata": "true", "Content-Length": str(len(body))}
            connection.sendall(compose("POST", POLL, headers) + body)
            wait_until(lambda: service.requests == 1, "the approval has begun")
            service.begin_to_stop()
            received = read_all(connection)
            letting_go.set()

    assert received == b""
    assert not caplog.records


class StubbornApp:
    """Answers nobody, and does not end when nobody waits any more."""

    plain_polls = None

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self.asked.set()
        await asyncio.Event().wait()

    def note_unreadable(self, *_: object) -> None:
        return None

    def find_origin(self, address: str | None) -> Origin:
        return origin_of(address)

    def stop_waiting(self) -> None:
        """There is nothing to answer."""


def test_stop_ends_what_does_not_end_by_itself() -> None:
    async def serve_and_stop() -> int:
        app, listener = StubbornApp(), open_listener("127.0.0.1", 0)
        server = MetadataServer(app, [listener], Limits(grace_seconds=0.1))
        address = listener.getsockname()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
            group.create_task(server.run_until_stopped())
            _, writer = await asyncio.open_connection(*address)
            writer.write(compose("GET", POLL, {"Metadata": "true"}))
            await app.asked.wait()
            server.stop()
        writer.close()
        return len(server.server_state.tasks)

    assert asyncio.run(serve_and_stop()) == 0
