"""How much strangers and visitors can ask for before they are told that it is too much."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.http.conftest import TOKEN
from tests.http.console.conftest import COOKIE, HOST, SECRETS, SignIn

from forewarn.connections.limits import LARGE_BODIES, Streams
from forewarn.console import app as console_app
from forewarn.console.app import create_console
from forewarn.console.cookies import CSRF_HEADER, csrf_token
from forewarn.console.pulse import Pulse
from forewarn.console.sign_in import CODE_HEADER
from forewarn.desk.refusals import EXCESS_SECONDS, LINES_PER_MINUTE, Refusals
from forewarn.desk.services import Services
from forewarn.desk.sessions import BEGINNINGS_PER_MINUTE
from forewarn.domain.roles import Role
from forewarn.testing.emulator import Emulator

SECONDS = 30


@contextmanager
def unfinished_post(emulator: Emulator, path: str) -> Iterator[socket.socket]:
    """Send the head of a form and its first letters, and keep the rest."""
    url = httpx2.URL(emulator.control_url)
    with closing(socket.create_connection((url.host, url.port or 0), SECONDS)) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"a=")
        yield connection


@pytest.mark.parametrize(
    ("path", "status"), [("/maintenances/plan", b"401"), ("/login", b"403"), ("/logout", b"403")]
)
def test_stranger_is_answered_before_the_form_is_read(path: str, status: bytes) -> None:
    with Emulator() as emulator, unfinished_post(emulator, path) as connection:
        answer = connection.recv(1024)

    assert answer.split()[1] == status


def test_stream_beyond_the_limit_is_refused_with_the_reason(services: Services) -> None:
    services = replace(services, streams=Streams(0))
    console = create_console(services, Pulse(), Refusals(services))
    browser = TestClient(console, base_url=f"http://{HOST}")
    browser.post("/login", headers={"Authorization": f"Bearer {TOKEN}"})

    refused = browser.get("/live")

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    assert refused.text.startswith("A token may have at most 0 streams at once")


def test_large_form_beyond_the_limit_is_refused_with_the_reason(services: Services) -> None:
    services = replace(services, large_bodies=Streams(0, what=LARGE_BODIES))
    console = create_console(services, Pulse(), Refusals(services))
    browser = TestClient(console, base_url=f"http://{HOST}")
    browser.post("/login", headers={"Authorization": f"Bearer {TOKEN}"})
    proof = {CSRF_HEADER: csrf_token(browser.cookies[COOKIE])}

    refused = browser.post("/maintenances/plan", headers=proof, content=b"a" * 70_000)

    assert refused.status_code == 429
    assert "A token may have at most 0 large bodies at once." in refused.text


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer fw_wrong"}, {CODE_HEADER: "wrong"}])
def test_wrong_sign_in_is_answered_late_after_many_and_a_right_one_is_not(
    stranger: TestClient, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    late: list[float] = []

    async def note(_scope: object, seconds: float) -> bool:
        late.append(seconds)
        return True

    monkeypatch.setattr(console_app, "wait_idly", note)
    for _ in range(LINES_PER_MINUTE):
        assert stranger.post("/login", headers=headers).status_code == 403
    assert late == []

    assert stranger.post("/login", headers=headers).status_code == 403
    assert late == [EXCESS_SECONDS]
    right = {"Authorization": f"Bearer {SECRETS[Role.VIEWER]}"}
    assert stranger.post("/login", headers=right).status_code == 204
    assert late == [EXCESS_SECONDS]


def test_stream_cannot_be_asked_for_by_its_head(browser: TestClient) -> None:
    assert browser.head("/live").status_code == 405


@pytest.mark.parametrize(
    "others", ['a={"x":1}', "a=b c", "bad[]=1", "foo", "expires=1", "; ", 'a="unfinished']
)
def test_cookies_of_other_servers_do_not_matter(stranger: TestClient, others: str) -> None:
    headers = {"Authorization": f"Bearer {SECRETS[Role.VIEWER]}"}
    cookie = stranger.post("/login", headers=headers).cookies[COOKIE]
    stranger.cookies.clear()

    answer = stranger.get("/health", headers={"Cookie": f"{others}; {COOKIE}={cookie}"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        f"/fleet?q={'+'.join(['a'] * 14_000)}",
        f"/fleet?page=000000000001{'9' * 40}",
        f"/timeline?{'&'.join(['a'] * 1100)}",
    ],
    ids=["words", "page", "fields"],
)
def test_address_that_asks_for_too_much_is_refused(browser: TestClient, path: str) -> None:
    assert browser.get(path).status_code == 422


def test_address_of_the_login_may_be_anything(stranger: TestClient) -> None:
    assert stranger.get(f"/login?{'&'.join(['a'] * 1100)}").status_code == 200


@pytest.mark.parametrize("path", ["/health/pause", "/hosts/kvm-0/close"])
def test_reason_has_a_limit(browser: TestClient, path: str) -> None:
    answer = browser.post(path, data={"reason": "x" * 5000})

    assert (answer.status_code, "4096" in answer.text) == (422, True)


def test_token_begins_few_sessions_a_minute(sign_in: SignIn, stranger: TestClient) -> None:
    headers = {"Authorization": f"Bearer {SECRETS[Role.VIEWER]}"}
    for _ in range(BEGINNINGS_PER_MINUTE):
        assert stranger.post("/login", headers=headers).status_code == 204

    assert stranger.post("/login", headers=headers).status_code == 429
    assert sign_in(SECRETS[Role.OPERATOR]).get("/").status_code == 200, "others still can"
