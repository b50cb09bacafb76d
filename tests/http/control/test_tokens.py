"""Tokens over the API: made once, used until they end, and never told again."""

import threading
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import MORNING, HandClock, Wall

from forewarn.ports.store import Store

ORDER = {"name": "deploy", "role": "operator"}


def create(api: httpx2.Client, **order: object) -> dict[str, Any]:
    answer = api.post("tokens", json={**ORDER, **order})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_secret_is_told_once_and_has_256_bits(api: httpx2.Client) -> None:
    made = create(api)

    assert made["secret"].startswith("fw_")
    assert len(made["secret"]) == len("fw_") + 43  # six bits in each letter
    assert "secret" not in api.get("tokens").json()["tokens"][0]
    assert made["secret"] not in api.get("tokens").text
    assert create(api, name="other")["secret"] != made["secret"]


def test_token_opens_what_its_role_may(api: httpx2.Client) -> None:
    secret = create(api)["secret"]

    assert api.post("virtual-machines/solo/restart", headers=bearer(secret)).status_code == 201
    assert api.get("tokens", headers=bearer(secret)).status_code == 403
    (entry,) = api.get("audit", params={"action": "vm restart"}).json()["audit"]
    assert entry["who"] == "deploy"


def test_tokens_are_listed_with_what_they_grant(api: httpx2.Client, wall: Wall) -> None:
    create(api, scopes=["WEB"], expires="30d")

    (token,) = api.get("tokens").json()["tokens"]
    assert token == {
        "name": "deploy",
        "role": "operator",
        "scopes": ["availability-set/web"],
        "host": None,
        "created_at": "2026-01-05T08:00:00Z",
        "expires_at": "2026-02-04T08:00:00Z",
        "revoked_at": None,
        "last_used_at": None,
    }
    assert wall.now == MORNING


def test_token_expires_by_real_time_and_says_so(
    api: httpx2.Client, clock: HandClock, wall: Wall
) -> None:
    secret = create(api, expires="1h")["secret"]
    clock.advance(timedelta(days=1))

    assert api.get("clock", headers=bearer(secret)).status_code == 200
    wall.now += timedelta(hours=1)
    refused = api.get("clock", headers=bearer(secret))

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="forewarn"'
    assert refused.json()["type"] == "urn:forewarn:problem:token-expired"
    assert "deploy expired on 2026-01-05 09:00:00 GMT" in refused.json()["detail"]


def test_revoked_token_is_refused_and_says_so(api: httpx2.Client) -> None:
    secret = create(api)["secret"]

    assert api.delete("tokens/deploy").json()["revoked_at"] == "2026-01-05T08:00:00Z"
    refused = api.post("virtual-machines/solo/restart", headers=bearer(secret))

    assert (refused.status_code, refused.json()["type"]) == (
        401,
        "urn:forewarn:problem:token-revoked",
    )
    last = api.get("audit").json()["audit"][-1]
    assert (last["who"], last["action"], last["outcome"]) == ("deploy", "vm restart", "refused")


@pytest.mark.parametrize(
    ("order", "status", "kind"),
    [
        ({"name": "a b"}, 422, "invalid-name"),
        ({"name": "admin"}, 422, "token-order"),
        ({"name": ""}, 422, "invalid-name"),
        ({"role": "root"}, 422, "invalid-request"),
        ({"role": "admin", "scopes": ["web"]}, 422, "token-order"),
        ({"scopes": ["nowhere"]}, 404, "unknown-selection"),
        ({"expires": "soon"}, 422, "moment"),
        ({"expires": "0s"}, 422, "token-order"),
        ({"expires": "2026-01-05T07:59:59Z"}, 422, "token-order"),
        ({"expires": "9999d"}, 422, "moment"),
        ({"name": "TAKEN"}, 409, "token-name-taken"),
        ({"secret": "mine"}, 422, "invalid-request"),
    ],
)
def test_token_that_cannot_be_is_refused(
    api: httpx2.Client, order: dict[str, object], status: int, kind: str
) -> None:
    create(api, name="taken")

    answer = api.post("tokens", json={**ORDER, **order})

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert answer.json()["detail"].endswith(".")
    assert len(api.get("tokens").json()["tokens"]) == 1


def test_unknown_token_cannot_be_revoked(api: httpx2.Client) -> None:
    answer = api.delete("tokens/nobody")

    assert (answer.status_code, answer.json()["type"]) == (
        404,
        "urn:forewarn:problem:unknown-token",
    )


def test_use_is_noted_without_anybody_waiting(api: httpx2.Client, store: Store, wall: Wall) -> None:
    secret = create(api)["secret"]

    def last_used_at() -> datetime | None:
        store.write(lambda _: None)  # works are done in order
        return store.read(lambda reading: reading.tokens())[0].last_used_at

    api.get("clock", headers=bearer(secret))
    assert last_used_at() == MORNING
    wall.now += timedelta(minutes=9)
    api.get("clock", headers=bearer(secret))
    assert last_used_at() == MORNING
    wall.now += timedelta(minutes=1)
    api.get("clock", headers=bearer(secret))
    assert last_used_at() == wall.now


def test_token_revoked_in_use_is_refused_from_then_on(app: FastAPI, api: httpx2.Client) -> None:
    secret = create(api)["secret"]
    is_revoked, is_used = threading.Event(), threading.Event()
    before: set[int] = set()
    after: set[int] = set()

    def use() -> None:
        client = TestClient(app, base_url="http://control", headers=bearer(secret))
        while not after:
            # Looked at before the request is sent: what began later must be refused.
            statuses = after if is_revoked.is_set() else before
            statuses.add(client.post("/api/v1/virtual-machines/solo/restart").status_code)
            is_used.set()

    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    assert is_used.wait(60), "nobody has used the token"
    assert api.delete("tokens/deploy").status_code == 200
    is_revoked.set()
    for user in users:
        user.join(60)
        assert not user.is_alive(), "a request was never answered"

    assert after == {401}
    assert before <= {201, 409, 401}
    assert before & {201, 409}
