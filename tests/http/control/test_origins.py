"""DNS rebinding: a page that has its name point here gets nothing."""

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import MORNING

from forewarn.testing import Emulator
from forewarn.testing.engine import start_engine


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Emulator() as emulator:
        yield int(emulator.control_url.rpartition(":")[2])


def ask(port: int, method: str = "GET", path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/api/v1/events", "/api/openapi.json"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8170", "127.0.0.1.evil.example", "a@127.0.0.1", "", "[::1"],
)
def test_request_to_a_name_of_somebody_else_is_refused(port: int, path: str, host: str) -> None:
    status, body = ask(port, path=path, Host=host)

    assert status == 421
    assert "--control-host" in body


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:80", "[::1]:1"]
)
def test_names_of_this_machine_are_ours(port: int, host: str) -> None:
    assert ask(port, Host=host)[0] == 200


def test_client_without_host_is_no_browser(port: int) -> None:
    assert ask(port)[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "null", ""])
def test_page_of_another_origin_is_refused(port: int, origin: str) -> None:
    status, body = ask(port, "POST", "/api/v1/fleet", Host="localhost:8170", Origin=origin)

    assert status == 403
    assert "may not call this server" in body


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "ftp://127.0.0.1:8170"])
def test_page_of_another_server_at_our_address_is_refused(port: int, origin: str) -> None:
    assert ask(port, Host="127.0.0.1:8170", Origin=origin)[0] == 403


def test_page_of_our_own_is_let_in(port: int) -> None:
    assert ask(port, Host="localhost:8170", Origin="http://LOCALHOST:8170")[0] == 200


def test_names_are_those_of_the_settings() -> None:
    engine = start_engine({"control_host": "Warn.example"}, None, MORNING)
    try:
        port = engine.control_port()

        assert ask(port, Host="warn.example:80")[0] == 200
        assert ask(port, Host="evil.example")[0] == 421
    finally:
        engine.close()


def answer_from(app: FastAPI, url: str, **headers: Any) -> httpx2.Response:
    """Ask a server whose address is 10.0.0.5, whatever *url* calls it."""

    async def at_address(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"server": ("::ffff:10.0.0.5", 8170)}, receive, send)

    return TestClient(at_address).get(f"{url}/healthz", headers=headers)


@pytest.mark.parametrize(
    ("url", "headers", "status"),
    [
        ("http://10.0.0.5:8170", {}, 200),
        ("http://10.0.0.6:8170", {}, 421),
        ("http://Warn.example", {}, 200),
        ("http://warn.example", {"Origin": "https://warn.example"}, 200),
        ("http://10.0.0.5", {"Origin": "https://warn.example"}, 200),
        ("http://10.0.0.5", {"Origin": "https://evil.example"}, 403),
        ("https://by-certificate.example", {}, 200),
        ("https://by-certificate.example", {"Origin": "https://evil.example"}, 403),
    ],
)
def test_address_configured_names_and_certificates_tell_who_we_are(
    app: FastAPI, url: str, headers: dict[str, str], status: int
) -> None:
    app.user_middleware[1].kwargs["names"] = ["warn.example"]

    assert answer_from(app, url, **headers).status_code == status


def test_refused_change_is_in_the_audit(api: httpx2.Client) -> None:
    api.post("virtual-machines/solo/restart", headers={"Origin": "http://evil.example"})

    (*_, last) = api.get("audit").json()["audit"]
    assert (last["who"], last["actor"], last["outcome"]) == ("-", "unknown", "refused")
    assert "evil.example" in last["detail"]
