"""What browsers are told to keep, to trust and to send."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.http.conftest import TOKEN, Wall
from tests.http.console.conftest import COOKIE, SignIn

from forewarn.console.assets import assets
from forewarn.console.headers import HEADERS
from forewarn.console.site import SECTIONS
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.domain.access import SESSION_IDLE, Principal
from forewarn.domain.roles import Role
from forewarn.operations.access import hash_secret
from forewarn.ports.store import Store

PATHS = [section.path for section in SECTIONS]


@pytest.mark.parametrize("path", [*PATHS, "/virtual-time", "/login", "/nowhere", "/static/none"])
def test_every_answer_has_the_headers(browser: TestClient, path: str) -> None:
    answer = browser.get(path)

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["Cache-Control"] == "no-store"


def test_policy_trusts_scripts_and_styles_of_this_server_only() -> None:
    rules = HEADERS["Content-Security-Policy"].split("; ")

    assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(rules)
    assert {"script-src 'self'", "style-src 'self'", "connect-src 'self'"} <= set(rules)


@pytest.mark.parametrize("path", PATHS)
def test_page_has_nothing_that_the_policy_forbids(browser: TestClient, path: str) -> None:
    text = browser.get(path).text

    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?! src=)", text)
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text)


def test_static_files_are_named_by_what_is_in_them_and_kept_for_good(
    browser: TestClient,
) -> None:
    used = set(re.findall(r'(?:src|href)="(/static/[^"]*)"', browser.get("/").text))
    assert used

    for path in used | {asset.path for asset in assets().values()}:
        assert re.fullmatch(r"/static/[a-z.]+\.[0-9a-f]{12}\.(?:css|js|svg)", path)
        answer = browser.get(path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert browser.get("/static/console.js").status_code == 404
    assert browser.get("/static/../app.py").status_code == 404


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost", "forewarn"),
        ("http://localhost:8170", "forewarn-8170"),
        ("https://warn.example", "__Host-forewarn"),
        ("https://warn.example:8443", "__Host-forewarn-8443"),
    ],
)
def test_cookie_is_of_this_server_and_out_of_reach_of_scripts(
    console: Starlette, url: str, name: str
) -> None:
    client = TestClient(console, base_url=url, follow_redirects=False)

    answer = client.post("/login", headers={"Authorization": f"Bearer {TOKEN}"})

    pair, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert pair.startswith(f"{name}=fw_")
    expected = {"path=/", "httponly", "samesite=strict"} | ({"secure"} if "https" in url else set())
    assert {attribute.lower() for attribute in attributes} == expected
    assert client.get("/").status_code == 200


def test_session_ends_when_nobody_uses_it(browser: TestClient, store: Store, wall: Wall) -> None:
    wall.now += SESSION_IDLE / 2
    assert browser.get("/health").status_code == 200
    store.write(lambda _: None)  # its use is written
    wall.now += SESSION_IDLE / 2
    assert browser.get("/health").status_code == 200
    store.write(lambda _: None)
    live = {"HX-Request": "true", "X-Live": "1"}

    wall.now += SESSION_IDLE / 2
    assert browser.get("/health", headers=live).status_code == 200
    store.write(lambda _: None)
    wall.now += SESSION_IDLE / 2

    answer = browser.get("/health", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (401, "/login?next=/health")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8170", "localhost.evil.example"])
def test_foreign_host_is_refused(browser: TestClient, host: str) -> None:
    answer = browser.get("/health", headers={"Host": host})

    assert answer.status_code == 421
    assert "--control-host" in answer.text
    assert "Everything works" not in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8171"])
def test_foreign_origin_is_refused_even_with_the_proof(
    browser: TestClient, store: Store, origin: str
) -> None:
    for path in ("/health/pause", "/login", "/logout"):
        assert browser.post(path, headers={"Origin": origin}).status_code == 403

    assert store.read(lambda reading: reading.setting("server_pause")) is None
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize(
    ("wanted", "location"),
    [
        ("/tokens", "/tokens"),
        ("/audit?who=alice&outcome=refused", "/audit?who=alice&outcome=refused"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/\r\nSet-Cookie: a=b", "/"),
        ("/login", "/"),
        ("\u2215/evil.example", "/"),
        ("", "/"),
    ],
)
def test_signing_in_never_leads_away(stranger: TestClient, wanted: str, location: str) -> None:
    shown = stranger.get("/login", params={"next": wanted}).text

    assert f'data-wanted="{location.replace("&", "&amp;")}"' in shown


def test_link_signs_in_once(stranger: TestClient, services: Services) -> None:
    principal = Principal(name="alice", role=Role.ADMIN)
    code, _ = Sessions(services).make_link(principal, hash_secret(TOKEN), "127.0.0.1")

    first = stranger.post("/login", headers={"X-Sign-In-Code": code})

    assert first.status_code == 204
    assert stranger.get("/").status_code == 200
    stranger.cookies.clear()
    again = stranger.post("/login", headers={"X-Sign-In-Code": code})
    assert again.status_code == 403
    assert "expired or was already used" in again.text
    assert code not in again.text
    assert stranger.get("/").status_code == 303


def test_link_of_another_replaces_no_session(sign_in: SignIn, services: Services) -> None:
    browser, sessions = sign_in(TOKEN), Sessions(services)
    mallory = Principal(name="mallory", role=Role.VIEWER)
    code, _ = sessions.make_link(mallory, hash_secret(TOKEN), "127.0.0.1")
    own, _ = sessions.make_link(
        Principal(name="alice", role=Role.ADMIN), hash_secret(TOKEN), "127.0.0.1"
    )

    refused = browser.post("/login", headers={"X-Sign-In-Code": code})

    assert refused.status_code == 403
    assert "signed in as alice, and the link is for mallory" in refused.text
    assert "alice" in browser.get("/").text
    assert browser.post("/login", headers={"X-Sign-In-Code": own}).status_code == 204
    browser.cookies.clear()
    assert browser.post("/login", headers={"X-Sign-In-Code": code}).status_code == 204


def test_signing_out_ends_the_session_on_the_server(sign_in: SignIn) -> None:
    browser = sign_in(TOKEN)
    secret = browser.cookies[COOKIE]

    assert browser.post("/logout").status_code == 204

    browser.cookies.clear()
    browser.cookies.set(COOKIE, secret)
    assert browser.get("/").status_code == 303
