"""Links over the API: for whoever asks, for one browser, and told once."""

import httpx2
import pytest
from fastapi import FastAPI
from tests.http.conftest import MORNING

from forewarn.desk.sessions import BEGINNINGS_PER_MINUTE, Sessions
from forewarn.domain.access import LINK_LIFE, LINKS_OF_A_TOKEN, Principal
from forewarn.domain.names import ScopeId
from forewarn.domain.roles import Role

HERE = "127.0.0.1"


def bearer(api: httpx2.Client, **order: object) -> dict[str, str]:
    made = api.post("tokens", json={"name": "ada", **order})
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['secret']}"}


@pytest.mark.parametrize("scopes", [[], ["web"]])
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_link_signs_in_whoever_made_it(
    app: FastAPI, api: httpx2.Client, role: Role, scopes: list[str]
) -> None:
    own = bearer(api, role=role, scopes=scopes)

    made = api.post("sign-in-links", headers=own)

    assert made.status_code == 201
    assert made.json().keys() == {"code", "expires_at"}
    assert made.json()["expires_at"] == (MORNING + LINK_LIFE).isoformat().replace("+00:00", "Z")
    sessions = Sessions(app.state.services)
    found = sessions.find(sessions.redeem(made.json()["code"], HERE), is_use=True)
    expected = tuple(ScopeId(f"availability-set/{name}") for name in scopes)
    assert found == Principal(name="ada", role=role, scopes=expected)


def test_code_is_told_once_and_has_256_bits(api: httpx2.Client) -> None:
    codes = [api.post("sign-in-links").json()["code"] for _ in range(2)]

    assert [len(code) for code in codes] == [len("fw_") + 43] * 2
    lines = api.get("audit", params={"action": "console link"})
    assert [line["who"] for line in lines.json()["audit"]] == ["alice", "alice"]
    assert not any(code in lines.text for code in codes)


def test_code_and_session_open_nothing_in_the_api(app: FastAPI, api: httpx2.Client) -> None:
    code = api.post("sign-in-links").json()["code"]
    secret = Sessions(app.state.services).redeem(api.post("sign-in-links").json()["code"], HERE)

    for each in (code, secret):
        refused = api.get("clock", headers={"Authorization": f"Bearer {each}"})
        assert refused.status_code == 401
        assert each not in refused.text


def test_unused_links_of_a_token_are_limited(api: httpx2.Client) -> None:
    made = [api.post("sign-in-links") for _ in range(LINKS_OF_A_TOKEN + 1)]

    assert [each.status_code for each in made] == [201] * LINKS_OF_A_TOKEN + [429]
    assert made[-1].json()["type"] == "urn:forewarn:problem:sign-in-links"
    assert api.post("sign-in-links", headers=bearer(api, role=Role.VIEWER)).status_code == 201


def test_links_that_are_used_at_once_are_limited_by_the_minute(
    app: FastAPI, api: httpx2.Client
) -> None:
    sessions = Sessions(app.state.services)
    for _ in range(BEGINNINGS_PER_MINUTE):
        sessions.redeem(api.post("sign-in-links").json()["code"], HERE)

    refused = api.post("sign-in-links")

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")


def test_link_needs_a_token(anonymous: httpx2.Client) -> None:
    assert anonymous.post("/api/v1/sign-in-links").status_code == 401
