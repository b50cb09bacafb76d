"""Every route has a role, and nobody below it gets through: the table is the app's own routes."""

import re
from collections.abc import Callable
from typing import Any, cast

import httpx2
import pytest
import typer.main
from fastapi import FastAPI
from tests.http.conftest import Tables
from typer.core import TyperGroup

from forewarn.cli.app import app as cli
from forewarn.control.app import api_routes
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.context import Context
from forewarn.ports.store import Store, Transaction

Operation = tuple[str, str, object]
SECRETS = {role: f"fw_{role}" for role in Role}
PARAMETERS = {
    "event_id": "00000000-0000-4000-8000-000000000000",
    "maintenance_id": "none",
    "run_id": "none",
    "kind": "slow",
    "name": "nobody",
    "notification_id": "none",
    "subscription_id": "5a",
    "resource_group": "shop",
    "resource_type": "virtualMachines",
}
NO_SUCH_EVENT = {"event_id": PARAMETERS["event_id"]}
QUERIES: dict[str, dict[str, str]] = {
    "watch": NO_SUCH_EVENT,
    "acknowledge": {**NO_SUCH_EVENT, "api-version": "2025-04-01"},
}
"""By the last word of a path. A watch of an unknown event is refused; any other would not end."""
SPECIAL = {"/api/v1/audit": Role.ADMIN, "/api/v1/tokens": Role.ADMIN}
FOR_VIEWERS = {"/api/v1/maintenances/plan", "/api/v1/sign-in-links"}
"""POST that changes nothing, or nothing but whose browsers are signed in."""
OF_THE_CONSOLE = {"console link"}
"""Actions that belong to others of the console, which are no commands."""
OPERATORS_WORK = re.compile(
    r"/api/v1/(events|maintenances|schedules|gates|tasks)\b|.*/(restart|redeploy|close|open)$|/subscriptions/.*/acknowledge$"
)


@pytest.fixture
def operations(openapi: dict[str, Any]) -> list[Operation]:
    """The method, the path and the declared security of every operation of the API."""
    found = [
        (method.upper(), path, operation.get("security"))
        for path, methods in openapi["paths"].items()
        if path.startswith(("/api/v1", "/subscriptions"))
        for method, operation in methods.items()
    ]
    arm = 1
    assert len(found) == len(list(api_routes())) + arm, "a route is not in the OpenAPI document"
    return found


def expected_role(method: str, path: str) -> Role:
    """Return who the issue says may use a route."""
    if method == "GET" or path in FOR_VIEWERS:
        return SPECIAL.get(path, Role.VIEWER)
    return Role.OPERATOR if OPERATORS_WORK.match(path) else Role.ADMIN


@pytest.fixture
def as_role(api: httpx2.Client, app: FastAPI, store: Store) -> Callable[[Role], httpx2.Client]:
    """Return a client with a token of a role, which has been used already."""
    context: Context = app.state.services.context("alice")

    def create(tx: Transaction) -> None:
        for role, secret in SECRETS.items():
            host = "kvm-0" if role is Role.RELAY else None
            create_token(tx, context, TokenOrder(name=f"a-{role}", role=role, host=host), secret)

    store.write(create)

    def become(role: Role) -> httpx2.Client:
        api.headers["Authorization"] = f"Bearer {SECRETS[role]}"
        assert api.get("clock").status_code == (403 if role is Role.RELAY else 200)
        store.write(lambda _: None)  # what was noted of that is written
        return api

    return become


def test_every_route_declares_the_role_it_should(operations: list[Operation]) -> None:
    for method, path, security in operations:
        assert security == [{"HTTPBearer": [expected_role(method, path)]}], (method, path)


@pytest.mark.parametrize("role", Role)
def test_role_reaches_what_it_may_and_nothing_else(
    operations: list[Operation], as_role: Callable[[Role], httpx2.Client], role: Role
) -> None:
    client = as_role(role)

    for method, path, _ in operations:
        needed = expected_role(method, path)
        answer = ask(client, method, path)
        if role.includes(needed):
            reached = {409} if path.endswith("/hand-over") else {200, 201, 404, 422}
            assert answer.status_code in reached, (method, path, answer.text)
        else:
            assert answer.status_code == 403, (method, path, answer.text)
            assert f"needs the role {needed}" in answer.text
            if path.startswith("/api"):
                assert answer.json()["type"] == "urn:forewarn:problem:role-too-low"
                assert answer.json()["needed"] == needed


@pytest.mark.parametrize("body", [None, {}, {"event_type": "Reboot", "resources": ["solo"]}])
def test_viewer_changes_nothing(
    operations: list[Operation],
    as_role: Callable[[Role], httpx2.Client],
    tables: Callable[[], Tables],
    body: object,
) -> None:
    client = as_role(Role.VIEWER)
    before = tables()

    for method, path, _ in operations:
        ask(client, method, path.replace("{name}", "solo"), body)

    assert {**tables(), "sessions": []} == before


def test_operator_cannot_change_the_fleet_but_its_events(
    as_role: Callable[[Role], httpx2.Client],
) -> None:
    client = as_role(Role.OPERATOR)

    assert client.delete("virtual-machines/solo").status_code == 403
    assert client.post("virtual-machines/solo/restart").status_code == 201


def test_every_change_is_named_as_the_command_that_does_it() -> None:
    nouns = cast("TyperGroup", typer.main.get_command(cli)).commands
    commands = {
        f"{noun} {verb}"
        for noun, group in nouns.items()
        if isinstance(group, TyperGroup)
        for verb in group.commands
    } | nouns.keys()
    names = {route.name for route in api_routes() if route.methods != {"GET"}}

    assert names - commands == OF_THE_CONSOLE


def ask(client: httpx2.Client, method: str, path: str, body: object = None) -> httpx2.Response:
    filled = path.format(**PARAMETERS)
    content = {} if method in {"GET", "DELETE"} else {"json": {} if body is None else body}
    query = QUERIES.get(path.rpartition("/")[2], {})
    return client.request(method, f"http://control{filled}", params=query, **content)  # type: ignore[arg-type]
