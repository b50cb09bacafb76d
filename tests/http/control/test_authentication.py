"""Nobody gets past without a token, and health needs none."""

import re

import httpx2
import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate
from starlette.routing import Route
from starlette.testclient import TestClient

from forewarn.control.app import api_routes
from forewarn.control.arm import ARM_PATH
from forewarn.control.authentication import API_PREFIX, OPEN_PATHS

PATHS = ("/api/v1", "/api/v1/", "/api/v1/events", "/api/v1/fleet", "/api/v1/no-such-thing")
BAD_TOKENS = {
    "none": None,
    "wrong": "Bearer wrong",
    "empty": "Bearer ",
    "other scheme": "Basic open-sesame",
    "scheme only": "Bearer",
    "no scheme": "open-sesame",
    "not ASCII": "Bearer öpen-sesame".encode(),
    "long": f"Bearer {'x' * 10_000}",
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
def test_request_without_a_good_token_is_refused(
    anonymous: httpx2.Client, path: str, header: str | bytes | None
) -> None:
    headers = {} if header is None else {b"Authorization": header}

    answer = anonymous.post(path, content=b"{not json", headers=headers)  # type: ignore[arg-type]

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="forewarn"'
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:forewarn:problem:unauthorized"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme_is_read_in_any_case(anonymous: httpx2.Client, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} open-sesame"}

    assert anonymous.get("/api/v1/clock", headers=headers).status_code == 200


def test_every_route_but_the_open_ones_needs_a_token(
    app: FastAPI, anonymous: httpx2.Client
) -> None:
    operations = {(path, verb) for path, verbs in app.openapi()["paths"].items() for verb in verbs}
    operations |= {
        (f"{API_PREFIX}{route.path}", method)
        for route in api_routes()
        for method in route.methods or ()
    }
    operations |= {
        (route.path, method)
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    answers = {
        (path, method): anonymous.request(method, re.sub(r"{.*?}", "x", path))
        for path, method in operations
    }

    assert len(operations) > 100
    assert {path for path, _ in operations} >= OPEN_PATHS
    for (path, method), answer in answers.items():
        assert (answer.status_code == 401) is (path not in OPEN_PATHS), (path, method)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/API/v1/events",
        "/api//v1/events",
        "/healthz/",
        "/healthz%20",
        "/\N{LATIN SMALL LETTER LONG S}ubscriptions/a",
        ARM_PATH.replace("subscriptions", "\N{LATIN SMALL LETTER LONG S}ubscriptions"),
        ARM_PATH.replace("acknowledge", "ac\N{KELVIN SIGN}nowledge"),
        ARM_PATH.upper(),
    ],
)
def test_no_spelling_of_a_path_gets_round_the_token(anonymous: httpx2.Client, path: str) -> None:
    path = re.sub(r"{.*?}", "x", path)
    anonymous.headers["Host"] = "localhost"

    assert anonymous.post(path).status_code == 401
    if not path.isascii():
        known = anonymous.post(path, headers={"Authorization": "Bearer open-sesame"})
        assert known.status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/healthz", {"status": "ok"}),
        ("/readyz", {"status": "ok", "failing": []}),
        ("/readyz/write", {"status": "ok"}),
    ],
)
def test_health_needs_no_token(
    anonymous: httpx2.Client, path: str, body: dict[str, object]
) -> None:
    answer = anonymous.get(path)

    assert (answer.status_code, answer.json()) == (200, body)


def test_server_that_serves_no_polls_is_not_ready(
    anonymous: httpx2.Client, wakeups: list[str]
) -> None:
    wakeups.append("not ready")

    assert anonymous.get("/readyz").status_code == 503
    assert anonymous.get("/healthz").status_code == 200


def test_openapi_is_valid_and_knows_the_token(anonymous: httpx2.Client) -> None:
    document = anonymous.get("/api/openapi.json").json()

    validate(document)
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    operations = [verb for path in document["paths"].values() for verb in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert "HTTPValidationError" not in document["components"]["schemas"]


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"])
def test_metrics_need_a_token_through_a_proxy_on_the_machine(app: FastAPI, header: str) -> None:
    client = TestClient(app, base_url="http://control", client=("127.0.0.1", 1))

    assert client.get("/metrics", headers={header: "10.0.0.9"}).status_code == 401


def test_who_it_was_is_written_down(api: httpx2.Client) -> None:
    api.post("virtual-machines/solo/restart")

    (*_, last) = api.get("audit").json()["audit"]
    assert (last["who"], last["subject"], last["outcome"]) == ("alice", "solo", "done")
    assert last["actor"] == "operator"


def test_metrics_need_a_token_unless_asked_for_on_the_machine_itself(
    app: FastAPI, anonymous: httpx2.Client
) -> None:
    def look(address: str) -> int:
        client = TestClient(app, base_url="http://control", client=(address, 1))
        return client.get("/metrics").status_code

    assert {look("127.0.0.1"), look("127.3.2.1"), look("::1")} == {200}
    assert {look("10.0.0.9"), look("::ffff:10.0.0.9"), look("somewhere")} == {401}
    known = anonymous.get("/metrics", headers={"Authorization": "Bearer open-sesame"})
    assert (known.status_code, known.text) == (200, "forewarn_events_overdue 0\n")
    assert known.headers["content-type"].startswith("text/plain; version=")
