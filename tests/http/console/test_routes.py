"""Every page and action has a role, and nobody below it gets through."""

import re
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient
from tests.http.conftest import TOKEN, Tables
from tests.http.console.conftest import SECRETS, SignIn

from forewarn.console.cookies import CSRF_HEADER
from forewarn.console.routes import ROUTES
from forewarn.console.visit import ActionRoute, PageRoute
from forewarn.domain.roles import LADDER, Role
from forewarn.ports.store import Store

PAGES = [route for route in ROUTES if isinstance(route, PageRoute)]
ACTIONS = [route for route in ROUTES if isinstance(route, ActionRoute)]
ADMINS = {"/audit", "/tokens"}


def fill(path: str) -> str:
    """Return *path* with something in place of what it is about."""
    return re.sub(r"\{[^}]*\}", "00000000-0000-4000-8000-000000000000", path)


def test_only_audit_and_tokens_are_hidden_from_viewers() -> None:
    assert {page.path for page in PAGES if page.role is not Role.VIEWER} == ADMINS


def test_action_that_changes_something_has_a_name_for_the_audit() -> None:
    nameless = {action.path for action in ACTIONS if not action.name}

    assert nameless == {"/maintenances/plan", "/maintenances/names/{noun}"}
    assert all(not action.subject or f"{{{action.subject}" in action.path for action in ACTIONS)


def test_stranger_gets_nothing(stranger: TestClient, tables: Callable[[], Tables]) -> None:
    before = tables()

    for page in PAGES:
        answer = stranger.get(fill(page.path))
        assert answer.status_code == 303, page.path
        assert answer.headers["Location"].startswith("/login")
        assert answer.content == b""
        part = stranger.get(fill(page.path), headers={"HX-Request": "true"})
        assert (part.status_code, part.content) == (401, b""), page.path
    for action in ACTIONS:
        refused = stranger.post(fill(action.path), headers={CSRF_HEADER: "0" * 64})
        assert (refused.status_code, refused.content) == (401, b""), action.path

    assert tables() == before


@pytest.mark.parametrize("proof", [None, "", "0" * 64])
def test_action_is_refused_without_the_proof_of_our_own_page(
    browser: TestClient, tables: Callable[[], Tables], proof: str | None
) -> None:
    del browser.headers[CSRF_HEADER]
    headers = {} if proof is None else {CSRF_HEADER: proof}
    before = tables()

    for action in ACTIONS:
        answer = browser.post(fill(action.path), headers=headers)
        assert answer.status_code == 403, action.path
        assert "did not come from a page of this console" in answer.text

    assert tables() == before


def test_proof_of_another_session_is_refused(sign_in: SignIn) -> None:
    browser, other = sign_in(TOKEN), sign_in(TOKEN)
    browser.headers[CSRF_HEADER] = other.headers[CSRF_HEADER]

    assert browser.post("/health/pause").status_code == 403


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_role_reaches_what_it_may_and_nothing_else(
    sign_in: SignIn, store: Store, tables: Callable[[], Tables], role: Role
) -> None:
    client = sign_in(SECRETS[role])
    store.write(lambda _: None)  # that the token was used is written
    before = tables()

    for route in ROUTES:
        is_page = isinstance(route, PageRoute)
        if role.includes(route.role) and not is_page:
            continue
        answer = client.request("GET" if is_page else "POST", fill(route.path))
        if role.includes(route.role):
            assert answer.status_code in {200, 404}, (route.path, answer.text)
        else:
            assert answer.status_code == 403, route.path
            assert f"needs the role {route.role}" in answer.text

    assert tables() == before


def test_menu_has_no_page_that_is_refused(sign_in: SignIn) -> None:
    for role in LADDER:
        menu = re.findall(r'<li><a href="([^"]*)"', sign_in(SECRETS[role]).get("/").text)
        hidden = ADMINS if role is not Role.ADMIN else set()
        assert hidden.isdisjoint(menu), role
        assert {"/", "/health"} <= set(menu)


def test_refused_action_is_in_the_audit(sign_in: SignIn, store: Store) -> None:
    sign_in(SECRETS[Role.VIEWER]).post("/tokens/a-admin/revoke")

    *_, last = store.read(lambda reading: reading.audit())
    assert (last.who, last.action, last.subject, last.outcome) == (
        "a-viewer",
        "token revoke",
        "a-admin",
        "refused",
    )
