"""Polls that wait: woken by a change, by time, by the end, and forgotten when nobody waits."""

import asyncio
import socket
import threading
from contextlib import ExitStack
from time import monotonic

import pytest
from tests.http.metadata.conftest import (
    POLL,
    TIMEOUT,
    WEB,
    Replies,
    Service,
    compose,
    read_reply,
    running,
    wait_until,
)

from forewarn.metadata.plain_polls import PARKED_PER_VM
from forewarn.metadata.waiting import Waiters


def park(service: Service, seconds: int = 300, *, source: str = "127.0.0.10") -> socket.socket:
    headers = {"Metadata": "true", "If-None-Match": "0", "Prefer": f"wait={seconds}"}
    connection = service.connect(source)
    connection.sendall(compose("GET", POLL, headers))
    return connection


def test_change_from_another_thread_answers_the_waiting(service: Service) -> None:
    with park(service) as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        threading.Thread(target=service.create).start()
        reply = read_reply(connection)

    assert (reply.status, reply.json["DocumentIncarnation"]) == (200, 1)
    assert reply.headers["preference-applied"] == "wait=300"
    assert service.parked == 0
    assert service.polls == ["web-0"]


def test_waiting_ends_with_304_after_the_wanted_time(quiet_service: Service) -> None:
    began = monotonic()
    with park(quiet_service, 1) as connection:
        reply = read_reply(connection)

    assert (reply.status, reply.headers["etag"]) == (304, "0")
    assert reply.headers["preference-applied"] == "wait=1"
    assert 0.9 < monotonic() - began < TIMEOUT / 2
    assert quiet_service.parked == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"If-None-Match": "7", "Prefer": "wait=300"},
        {"If-None-Match": "null", "Prefer": "wait=300"},
        {"Prefer": "wait=300"},
        {"If-None-Match": "0"},
        {"If-None-Match": "0", "Prefer": "wait=0"},
        {"If-None-Match": "0", "Prefer": "wait=soon"},
        {"If-None-Match": "0", "Prefer": "respond-async"},
        {"If-None-Match": "0", "Prefer": "wait=-1"},
    ],
)
def test_nobody_waits_who_did_not_ask_or_has_something_to_read(
    quiet_service: Service, headers: dict[str, str]
) -> None:
    began = monotonic()

    status = quiet_service.request(headers=headers).status

    assert status == (304 if headers.get("If-None-Match") == "0" else 200)
    assert monotonic() - began < 15, "half of what it may wait"


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=99999", "wait=300"),
        ('respond-async, Wait = "20"', "wait=20"),
        ("wait=20; x=y, wait=5", "wait=20"),
    ],
)
def test_preference_is_read_as_rfc_7240_says_and_capped(
    service: Service, prefer: str, applied: str
) -> None:
    headers = {"Metadata": "true", "If-None-Match": 'W/"0"', "Prefer": prefer}
    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, headers))
        wait_until(lambda: service.parked == 1, "the poll is parked")
        service.create()

        assert read_reply(connection).headers["preference-applied"] == applied


def test_whoever_has_everything_is_still_woken_by_a_change(service: Service) -> None:
    headers = {"Metadata": "true", "If-None-Match": "*", "Prefer": "wait=300"}
    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, headers))
        wait_until(lambda: service.parked == 1, "the poll is parked")
        service.create()

        reply = read_reply(connection)

    assert (reply.status, reply.headers["etag"]) == (304, "1")


def test_head_does_not_wait(quiet_service: Service) -> None:
    headers = {"If-None-Match": "0", "Prefer": "wait=300"}

    assert quiet_service.request(method="HEAD", headers=headers).status == 304


def test_change_of_another_scope_wakes_nobody(service: Service) -> None:
    with park(service, 1, source="127.0.0.12") as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        service.create()

        assert read_reply(connection).status == 304


@pytest.mark.parametrize("linger", [False, True], ids=["closed", "reset"])
def test_client_that_goes_while_waiting_is_forgotten(service: Service, *, linger: bool) -> None:
    connection = park(service)
    wait_until(lambda: service.parked == 1, "the poll is parked")
    if linger:
        option = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
    connection.close()

    wait_until(lambda: service.parked == 0, "the poll is forgotten")
    wait_until(lambda: service.connections == 0, "the connection is freed")


def test_client_with_nothing_more_to_say_is_answered_at_once(service: Service) -> None:
    with park(service, 300) as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        connection.shutdown(socket.SHUT_WR)

        reply = read_reply(connection)

    assert (reply.status, reply.headers["connection"]) == (304, "close")


def test_request_behind_a_waiting_poll_ends_the_wait(service: Service) -> None:
    with park(service, 300) as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        connection.sendall(compose("GET", "/nowhere", {}))
        replies = Replies(connection)

        assert [replies.next().status for _ in range(2)] == [304, 404]


def test_client_that_leaves_requests_behind_its_waiting_poll_is_forgotten(service: Service) -> None:
    connection = park(service, 300)
    wait_until(lambda: service.parked == 1, "the poll is parked")
    connection.sendall(compose("GET", "/nowhere", {}) * 20)
    connection.close()

    wait_until(lambda: service.parked == 0, "the poll is forgotten")
    wait_until(lambda: service.connections == 0, "the connection is freed")


def test_many_waiting_polls_are_all_answered_after_two_changes(service: Service) -> None:
    with ExitStack() as stack:
        sources = ["127.0.0.10", "127.0.0.11"] * 60
        connections = [stack.enter_context(park(service, source=source)) for source in sources]
        wait_until(lambda: service.parked == len(sources), "all polls are parked")
        with service.loop_held():
            for number in range(2):
                threading.Thread(target=service.create).start()
                wait_until(
                    lambda: service.board.document_in(WEB).document_incarnation > number,  # noqa: B023
                    "it has changed",
                )

        bodies = {read_reply(connection).body for connection in connections}

    assert len(bodies) == 1
    assert service.parked == 0


def test_no_change_is_missed_between_two_polls(service: Service) -> None:
    def work() -> None:
        for _ in range(100):
            service.create()

    worker = threading.Thread(target=work)
    worker.start()
    seen = 0
    while seen < 100:
        headers = {"If-None-Match": str(seen), "Prefer": "wait=5"}
        reply = service.request(headers=headers)
        assert reply.status == 200, "a change was missed"
        assert reply.json["DocumentIncarnation"] > seen
        seen = reply.json["DocumentIncarnation"]
    worker.join()


def test_machine_that_moves_while_waiting_reads_its_new_document(service: Service) -> None:
    service.create()
    with park(service, source="127.0.0.12") as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        service.move("batch_0", WEB)

        assert read_reply(connection).json["DocumentIncarnation"] == 1


def test_machine_that_is_removed_while_waiting_is_told_so(service: Service) -> None:
    with park(service) as connection:
        wait_until(lambda: service.parked == 1, "the poll is parked")
        service.remove("web-0")

        assert read_reply(connection).status == 404


def test_nobody_waits_where_a_change_came_before_the_parking() -> None:
    waiters, places = Waiters(), iter([WEB, None, None])

    async def wait() -> None:
        async with asyncio.timeout(5):
            await waiters.wait(lambda: next(places), until=asyncio.Event(), seconds=60)

    asyncio.run(wait())

    assert len(waiters) == 0


def test_waiting_polls_are_answered_when_the_server_stops() -> None:
    with running() as service:
        connection = park(service)
        wait_until(lambda: service.parked == 1, "the poll is parked")

    with connection:
        reply = read_reply(connection)
    assert (reply.status, reply.headers["connection"]) == (304, "close")


def test_machine_with_too_many_waiting_polls_is_told_so(service: Service) -> None:
    with ExitStack() as stack:
        first = [stack.enter_context(park(service)) for _ in range(PARKED_PER_VM)]
        wait_until(lambda: service.parked == PARKED_PER_VM, "the polls are parked")

        refused = read_reply(stack.enter_context(park(service)))
        stack.enter_context(park(service, source="127.0.0.11"))
        wait_until(lambda: service.parked == PARKED_PER_VM + 1, "the neighbour's poll is parked")

        first[0].close()
        wait_until(lambda: service.parked == PARKED_PER_VM, "one has gone")
        stack.enter_context(park(service))
        wait_until(lambda: service.parked == PARKED_PER_VM + 1, "there is room again")

    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
