"""Browsers that are signed in are as good as their token, and no longer than it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest
from fastapi import FastAPI
from tests.http.conftest import MORNING, TOKEN, Wall

from forewarn.desk.caller import Authenticator
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.domain.access import (
    LINK_LIFE,
    SESSION_IDLE,
    AccessError,
    Principal,
    RoleTooLowError,
    SignInLinkError,
    SignInTokenError,
    TokenExpiredError,
    TokenRevokedError,
)
from forewarn.domain.roles import Role
from forewarn.operations.access import hash_secret
from forewarn.ports.store import Store

HERE = "127.0.0.1"
ALICE = Principal(name="alice", role=Role.ADMIN)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def sessions(app: FastAPI) -> Sessions:
    return Sessions(app.state.services)


def create(api: httpx2.Client, **order: object) -> str:
    made = api.post("tokens", json={"name": "deploy", "role": "operator", **order})
    assert made.status_code == 201, made.text
    secret: str = made.json()["secret"]
    return secret


def settle(store: Store) -> None:
    """Wait until what was submitted before is committed."""
    store.write(lambda _: None)


def test_admin_signs_in_and_out(sessions: Sessions, api: httpx2.Client) -> None:
    secret = sessions.sign_in(TOKEN, HERE)

    assert sessions.find(secret, is_use=True) == ALICE
    sessions.end(secret, HERE)
    sessions.end(secret, HERE)
    assert sessions.find(secret, is_use=True) is None
    lines = api.get("audit").json()["audit"][-2:]
    assert [(line["who"], line["action"], line["where"], line["actor"]) for line in lines] == [
        ("alice", "console sign in", HERE, "operator"),
        ("alice", "console sign out", HERE, "operator"),
    ]
    assert secret not in str(lines)


def test_token_grants_what_it_does_as_a_bearer(sessions: Sessions, api: httpx2.Client) -> None:
    secret = sessions.sign_in(create(api, scopes=["web"]), HERE)

    found = sessions.find(secret, is_use=False)

    assert found is not None
    assert (found.name, found.role) == ("deploy", Role.OPERATOR)
    assert found.scopes == ("availability-set/web",)


def test_unknown_token_signs_nobody_in(sessions: Sessions, store: Store) -> None:
    for given in ("", "fw_unknown", "\ud800"):
        with pytest.raises(SignInTokenError):
            sessions.sign_in(given, HERE)
        assert sessions.find(given, is_use=True) is None

    assert store.read(lambda reading: reading.audit()) == ()


def test_relay_is_not_signed_in(sessions: Sessions, api: httpx2.Client) -> None:
    secret = create(api, role="relay", host="kvm-0")

    with pytest.raises(RoleTooLowError, match="deploy has the role relay"):
        sessions.sign_in(secret, HERE)


@pytest.mark.parametrize("ended", [TokenExpiredError, TokenRevokedError])
def test_session_ends_with_its_token(
    sessions: Sessions, api: httpx2.Client, wall: Wall, ended: type[AccessError]
) -> None:
    token = create(api, expires="5m")
    secret = sessions.sign_in(token, HERE)
    principal = sessions.find(secret, is_use=True)
    assert principal is not None
    code, _ = sessions.make_link(principal, hash_secret(token), HERE)

    if ended is TokenRevokedError:
        api.delete("tokens/deploy")
    else:
        wall.now += timedelta(minutes=5)

    assert sessions.find(secret, is_use=True) is None
    with pytest.raises(ended):
        sessions.sign_in(token, HERE)
    with pytest.raises(ended):
        sessions.redeem(code, HERE)
    sessions.end(secret, HERE)


def test_session_and_links_of_an_admin_token_end_when_it_is_replaced(
    app: FastAPI, store: Store, wall: Wall
) -> None:
    known = ["first"]
    authenticator = Authenticator(
        store=store, now=lambda: wall.now, admin="alice", admin_secret=lambda: known[-1]
    )
    services: Services = app.state.services
    sessions = Sessions(
        replace(
            services,
            authenticate=authenticator.authenticate,
            recognise=authenticator.recognise,
        )
    )
    secret = sessions.sign_in("first", HERE)
    code, _ = sessions.make_link(ALICE, hash_secret("first"), HERE)
    assert sessions.find(secret, is_use=True) == ALICE

    known.append("second")

    assert sessions.find(secret, is_use=True) is None
    with pytest.raises(SignInLinkError):
        sessions.redeem(code, HERE)


def test_session_lives_while_it_is_used(sessions: Sessions, store: Store, wall: Wall) -> None:
    used, watched = (sessions.sign_in(TOKEN, HERE) for _ in range(2))

    for _ in range(2):
        wall.now += SESSION_IDLE - MINUTE
        assert sessions.find(used, is_use=True) == ALICE
        settle(store)
        if wall.now < MORNING + SESSION_IDLE:
            assert sessions.find(watched, is_use=False) == ALICE
            settle(store)

    assert sessions.find(watched, is_use=False) is None


def test_link_signs_in_one_browser(sessions: Sessions, wall: Wall) -> None:
    code, expires_at = sessions.make_link(ALICE, hash_secret(TOKEN), HERE)
    assert expires_at == wall.now + LINK_LIFE

    secret = sessions.redeem(code, HERE)

    assert sessions.find(secret, is_use=True) == ALICE
    assert sessions.find(code, is_use=True) is None
    with pytest.raises(SignInLinkError):
        sessions.redeem(code, HERE)


def test_expired_link_signs_nobody_in(sessions: Sessions, wall: Wall) -> None:
    code, _ = sessions.make_link(ALICE, hash_secret(TOKEN), HERE)

    wall.now += LINK_LIFE

    with pytest.raises(SignInLinkError):
        sessions.redeem(code, HERE)


def test_of_many_that_redeem_a_link_at_once_one_is_signed_in(sessions: Sessions) -> None:
    code, _ = sessions.make_link(ALICE, hash_secret(TOKEN), HERE)

    with ThreadPoolExecutor(8) as pool:
        attempts = [pool.submit(sessions.redeem, code, HERE) for _ in range(8)]

    signed_in = [each.result() for each in attempts if each.exception() is None]
    assert len(signed_in) == 1
    assert sessions.find(signed_in[0], is_use=False) == ALICE


def test_sessions_wake_nobody(sessions: Sessions, wakeups: list[str]) -> None:
    sessions.end(sessions.sign_in(TOKEN, HERE), HERE)

    assert wakeups == []
