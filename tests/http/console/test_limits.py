"""How much strangers and visitors can ask for before they are told that it is too much."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.http.console.conftest import COOKIE, SECRETS, SignIn

from forewarn.console.live import STREAMS_OF_A_SESSION, Streams
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


def test_session_has_few_streams_and_leaves_room_for_others() -> None:
    streams = Streams(STREAMS_OF_A_SESSION + 1)

    with streams.place("one"):
        assert streams.has_room("one")
    places = [streams.place("one") for _ in range(STREAMS_OF_A_SESSION)]
    for place in places:
        place.__enter__()

    assert not streams.has_room("one")
    assert streams.has_room("two")
    with streams.place("two"):
        assert not streams.has_room("three"), "all together have a limit, too"
    places[0].__exit__(None, None, None)
    assert streams.has_room("one")


def test_stream_cannot_be_asked_for_by_its_head(browser: TestClient) -> None:
    assert browser.head("/live").status_code == 429


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
