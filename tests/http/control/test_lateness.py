"""Callers who overdo it are late: addresses with wrong tokens, and tokens beyond their limits."""

import select
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import httpx2
import pytest
from fastapi import FastAPI
from tests.http.conftest import Wall
from tests.http.control.test_connections import (
    TIMEOUT,
    Listener,
    compose,
    listening,
    read_all,
    read_reply,
)
from tests.waiting import wait_until

from forewarn.connections.limits import Limits, Streams
from forewarn.control import authentication
from forewarn.desk.refusals import EXCESS_SECONDS, LINES_PER_MINUTE, Refusals
from forewarn.desk.services import Services
from forewarn.operations.access import hash_secret
from forewarn.ports.store import Store

WRONG = {"Authorization": "Bearer fw_wrong"}
VERY_LATE = 20.0


def guess(api: httpx2.Client, times: int = LINES_PER_MINUTE) -> None:
    for _ in range(times):
        assert api.get("clock", headers=WRONG).status_code == 401


def test_wrong_token_is_answered_late_after_many(api: httpx2.Client) -> None:
    guess(api)
    began = monotonic()

    guess(api, 1)

    assert monotonic() - began >= EXCESS_SECONDS


def test_right_token_and_none_are_answered_at_once_from_where_wrong_ones_come(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "EXCESS_SECONDS", VERY_LATE)

    guess(api)
    began = monotonic()

    assert api.get("clock").status_code == 200
    assert api.get("clock", headers={"Authorization": "Basic none"}).status_code == 401
    assert monotonic() - began < VERY_LATE


def test_addresses_are_counted_apart_and_by_the_minute(services: Services, wall: Wall) -> None:
    refusals = Refusals(services)

    asked = [refusals.is_guessing(("10.0.0.1", 1)) for _ in range(LINES_PER_MINUTE + 1)]

    assert asked == [False] * LINES_PER_MINUTE + [True]
    assert not refusals.is_guessing(("10.0.0.2", 1))
    assert not refusals.is_guessing(None)
    wall.now += timedelta(minutes=1)
    assert not refusals.is_guessing(("10.0.0.1", 1))


def test_addresses_of_one_ipv6_network_are_counted_together(services: Services) -> None:
    refusals = Refusals(services)

    asked = [
        refusals.is_guessing((f"2001:db8::{number:x}", 1)) for number in range(LINES_PER_MINUTE + 1)
    ]

    assert asked[-1]


def is_answered(listener: Listener) -> bool:
    with suppress(ConnectionError), listener.connect() as connection:
        connection.sendall(compose("GET", "/api/v1/clock"))
        return read_reply(connection)[0] == 200
    return False


def create(api: httpx2.Client) -> dict[str, str]:
    secret = api.post("tokens", json={"name": "ada", "role": "viewer"}).json()["secret"]
    return {"Authorization": f"Bearer {secret}"}


def test_token_that_was_often_beyond_its_limits_is_late_and_others_are_not(
    api: httpx2.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.state.services = replace(app.state.services, streams=Streams(0))
    ada = create(api)
    for _ in range(LINES_PER_MINUTE + 1):
        assert api.get("events/watch", headers=ada).status_code == 429
    began = monotonic()

    assert api.get("clock", headers=ada).status_code == 200

    assert monotonic() - began >= EXCESS_SECONDS
    monkeypatch.setattr(authentication, "EXCESS_SECONDS", VERY_LATE)
    assert api.get("clock").status_code == 200


def test_nothing_is_done_for_a_late_caller_who_has_left(
    api: httpx2.Client, app: FastAPI, store: Store
) -> None:
    ada = create(api)
    for _ in range(LINES_PER_MINUTE + 1):
        app.state.refusals.is_excessive(hash_secret(ada["Authorization"][7:]), more=True)
    with listening(app) as listener:
        with listener.connect() as connection:
            connection.sendall(compose("POST", "/api/v1/sign-in-links", ada))
            wait_until(lambda: listener.server.server_state.tasks, "the request to begin")
        wait_until(lambda: not listener.server.server_state.tasks, "the request to end")

    lines = store.read(lambda reading: reading.audit(limit=10))
    assert "console link" not in [line.action for line in lines]


@pytest.fixture
def guessing(app: FastAPI) -> FastAPI:
    """A server that had many wrong tokens from this address."""
    for _ in range(LINES_PER_MINUTE):
        app.state.refusals.is_guessing(("127.0.0.1", 1))
    return app


def test_connection_that_waits_for_a_late_answer_gives_way(
    guessing: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "EXCESS_SECONDS", VERY_LATE)
    limits = Limits(connections=4, connections_per_origin=4)
    with listening(guessing, limits) as listener, ExitStack() as stack:
        waiting = [stack.enter_context(listener.connect()) for _ in range(4)]
        for connection in waiting:
            connection.sendall(compose("GET", "/api/v1/clock", WRONG))
        wait_until(lambda: is_answered(listener), "a connection to give way")

        (dropped,), _, _ = select.select(waiting, (), (), 0)
        assert read_all(dropped) == b"", "only one, and without an answer"


def test_connection_gives_way_only_until_the_late_answer(
    guessing: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "EXCESS_SECONDS", 0.0)
    may_answer = threading.Event()
    monkeypatch.setattr(guessing, "openapi", lambda: {"in_time": may_answer.wait(TIMEOUT)})
    limits = Limits(connections=1, connections_per_origin=1)
    with listening(guessing, limits) as listener, listener.connect() as connection:
        connection.sendall(compose("GET", "/api/v1/clock", WRONG))
        assert read_reply(connection)[0] == 401
        connection.sendall(compose("GET", "/api/openapi.json"))
        wait_until(lambda: listener.server.server_state.tasks, "the request to begin")

        with listener.connect() as newcomer:
            assert read_all(newcomer) == b"", "there is no room"
        may_answer.set()
        assert read_reply(connection) == (200, b'{"in_time":true}')
