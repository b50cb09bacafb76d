"""Bodies: read only from who may send them, up to a limit, measured, and large ones in turn."""

import json
import select
import socket
import struct
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock
from time import sleep

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from tests.http.control.test_connections import TIMEOUT, Listener, compose, listening, read_reply
from tests.waiting import wait_until

from forewarn.control.app import api_routes, create_app
from forewarn.control.bodies import DEEPEST, MOST_ELEMENTS, MOST_PARTS, BodyRoute, measure
from forewarn.desk.services import LARGE_BODIES_OF_A_TOKEN
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, create_token
from forewarn.ports.store import Store

MIB = 1024 * 1024
PLAN = "/api/v1/maintenances/plan"
CHUNKED = {"Transfer-Encoding": "chunked"}
LARGE = json.dumps({"event_type": "Reboot", "virtual_machines": ["x" * 4000] * 20}).encode()


@pytest.fixture
def listener(app: FastAPI) -> Generator[Listener]:
    with listening(app) as made:
        yield made


@pytest.fixture
def secret_of(api: httpx2.Client, app: FastAPI, store: Store) -> Callable[[Role], str]:
    """Return the secret of a token with a role."""
    assert api.get("clock").status_code == 200
    context = app.state.services.context("alice")

    def create(role: Role) -> str:
        host = "kvm-0" if role is Role.RELAY else None
        order = TokenOrder(name=f"a-{role}", role=role, host=host)
        store.write(lambda tx: create_token(tx, context, order, f"fw_{role}"))
        return f"fw_{role}"

    return create


@pytest.mark.parametrize(
    ("role", "path"),
    [
        (Role.RELAY, "maintenances/plan"),
        (Role.VIEWER, "events"),
        (Role.OPERATOR, "fleet"),
        (Role.VIEWER, "front/notes"),
    ],
)
def test_refused_role_is_answered_before_the_body_comes(
    listener: Listener, secret_of: Callable[[Role], str], role: Role, path: str
) -> None:
    headers = {"Authorization": f"Bearer {secret_of(role)}", "Content-Length": "1000"}
    with listener.connect() as connection:
        connection.sendall(compose("POST", f"/api/v1/{path}", headers))
        status, problem = read_reply(connection)

    assert (status, json.loads(problem)["type"]) == (403, "urn:forewarn:problem:role-too-low")


def test_every_route_of_the_api_checks_the_role_first() -> None:
    assert {type(route) for route in api_routes()} == {BodyRoute}


LIMITS = [
    ("fleet", 32 * MIB, "32 MiB"),
    ("maintenances/plan", MIB, "1 MiB"),
    ("events", MIB, "1 MiB"),
    ("scenario-runs", MIB, "1 MiB"),
    ("schedules", MIB // 4, "256 KiB"),
    ("tokens", MIB // 4, "256 KiB"),
]


@pytest.mark.parametrize(("path", "most", "said"), LIMITS)
def test_body_that_says_it_is_too_large_is_refused_before_it_comes(
    listener: Listener, path: str, most: int, said: str
) -> None:
    with listener.connect() as connection:
        head = {"Content-Length": str(most + 1), "Content-Type": "application/json"}
        connection.sendall(compose("POST", f"/api/v1/{path}", head))
        status, answered = read_reply(connection)

    problem = json.loads(answered)
    assert (status, problem["type"]) == (413, "urn:forewarn:problem:body-too-large")
    assert problem["detail"] == f"The body is too large; the maximum here is {said}."


@pytest.mark.parametrize(("path", "most", "said"), LIMITS[1:])
def test_body_that_grows_too_large_is_refused(
    api: httpx2.Client, path: str, most: int, said: str
) -> None:
    def send(size: int) -> httpx2.Response:
        chunks = (b" " * (size // 4) for _ in range(4))
        return api.post(path, content=chunks, headers={"Content-Type": "application/json"})

    assert send(most).status_code == 422
    assert send(most + 4).status_code == 413
    assert f" {said}." in send(most + 4).json()["detail"]


def nested(depth: int) -> bytes:
    return b"[{" * (depth // 2) + b"}]" * (depth // 2)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (nested(DEEPEST), ""),
        (nested(DEEPEST + 2), f"it has more than {DEEPEST} levels of lists and objects"),
        (b"[]" * MOST_PARTS, ""),
        (b"[]" * (MOST_PARTS + 1), f"it has more than {MOST_PARTS:,} lists, objects and keys"),
        (b'{"":' * 2 + b'"":0,' * MOST_PARTS, "it has more than 1,000 lists, objects and keys"),
        (b"," * MOST_ELEMENTS, ""),
        (b"," * (MOST_ELEMENTS + 1), f"it has more than {MOST_ELEMENTS:,} elements"),
    ],
)
def test_body_is_measured(body: bytes, problem: str) -> None:
    assert complaint_about(body) == problem


@pytest.mark.parametrize(
    "text", ["[{,:" * 20_000, '"[' * 20_000, "\\" * 20_001 + '"[', "\\[" * 9999]
)
@pytest.mark.parametrize("before", range(4))
def test_text_is_no_structure_wherever_it_is_cut(text: str, before: int) -> None:
    encoded = b" " * before + json.dumps([text, text]).encode()

    assert complaint_about(encoded) == ""
    assert complaint_about(encoded + b"[" * 50) != ""


def complaint_about(body: bytes) -> str:
    try:
        measure(body)
    except RequestValidationError as refusal:
        return str(refusal.errors()[0]["msg"])
    return ""


@pytest.mark.parametrize("path", ["maintenances/plan", "fleet"])
def test_body_with_too_much_in_it_is_refused_without_a_list_of_errors(
    api: httpx2.Client, path: str
) -> None:
    answer = api.post(path, content=b"[" * 40, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422
    assert answer.json()["detail"] == "body: it has more than 32 levels of lists and objects."


def test_of_many_names_that_are_none_the_first_is_told(api: httpx2.Client) -> None:
    answer = api.post("events", json={"event_type": "Reboot", "resources": [1] * 10_000})

    assert [error["location"] for error in answer.json()["errors"]] == ["resources.0"]


def test_other_encodings_than_utf_8_are_refused(api: httpx2.Client) -> None:
    headers = {"Content-Type": "application/json"}
    order = '{"event_type": "Reboot", "resources": ["solo"]}'

    assert api.post("events", content=order.encode("utf-16"), headers=headers).status_code == 400
    assert api.post("events", content=order.encode("utf-8-sig"), headers=headers).is_success


class BusyGates:
    """Gates that are asked for by every plan, and how many ask at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asking = self.most = 0

    def kinds(self) -> dict[str, str]:
        with self._lock:
            self._asking += 1
            self.most = max(self.most, self._asking)
        sleep(0.1)
        with self._lock:
            self._asking -= 1
        return {}


@pytest.mark.parametrize(("body", "at_once"), [(LARGE, False), (LARGE[:60_000] + LARGE[-6:], True)])
def test_large_bodies_are_worked_on_one_at_a_time(
    api: httpx2.Client,
    app: FastAPI,
    body: bytes,
    at_once: bool,  # noqa: FBT001
) -> None:
    assert api.get("clock").status_code == 200
    gates = BusyGates()
    request = compose("POST", "/api/v1/maintenances/plan", body=body)

    def ask(_: int) -> int:
        with several.connect() as connection:
            connection.sendall(request)
            return read_reply(connection)[0]

    with (
        listening(create_app(replace(app.state.services, gates=gates))) as several,
        ThreadPoolExecutor(4) as threads,
    ):
        assert set(threads.map(ask, range(4))) == {404}

    assert (gates.most > 1) == at_once


@pytest.mark.parametrize(
    ("role", "path"),
    [
        (Role.OPERATOR, "events"),
        (Role.ADMIN, "fleet"),
        (Role.RELAY, "front/host-work/impact:reboot/reboot/take"),
    ],
)
def test_client_that_goes_within_its_body_leaves_no_traceback(
    listener: Listener,
    secret_of: Callable[[Role], str],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    role: Role,
    path: str,
) -> None:
    headers = {"Authorization": f"Bearer {secret_of(role)}", "Content-Length": "100"}
    with listener.connect() as connection:
        connection.sendall(compose("POST", f"/api/v1/{path}", headers) + b"{")
        wait_until(lambda: listener.server.server_state.tasks, "the request to begin")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not listener.server.server_state.tasks, "the handler to end")

    assert not caplog.records
    assert "control_request_failed" not in capsys.readouterr().out


@pytest.mark.parametrize("announced", [{"Content-Length": "200000"}, CHUNKED], ids=str)
def test_token_sends_few_large_bodies_at_once(
    listener: Listener, secret_of: Callable[[Role], str], announced: dict[str, str]
) -> None:
    """Each takes memory while it comes, and there may be thousands of connections."""
    own = {"Authorization": f"Bearer {secret_of(Role.VIEWER)}"}
    large = compose("POST", PLAN, own | announced)
    with ExitStack() as stack:
        held = [stack.enter_context(listener.connect()) for _ in range(LARGE_BODIES_OF_A_TOKEN + 1)]
        for connection in held:
            connection.sendall(large)
        (last,), _, _ = select.select(held, [], [], TIMEOUT)
        refused, problem = read_reply(last)
        held.remove(last)
        small, _ = post(listener, compose("POST", PLAN, own, body=b"[]"))
        held.pop().close()
        another = compose("POST", PLAN, own, body=b"[" * 70_000)
        wait_until(lambda: post(listener, another)[0] == 422, "the place of the one that has ended")

    assert (refused, small) == (429, 422)
    assert b"A token may have at most 8 large bodies at once. Try again later." in problem


def post(listener: Listener, request: bytes) -> tuple[int, bytes]:
    with listener.connect() as connection:
        connection.sendall(request)
        return read_reply(connection)
