"""The console on a real store, reached through ASGI by browsers that are signed in."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.http.conftest import FLEET, TOKEN

from forewarn.console.app import create_console
from forewarn.console.cookies import CSRF_HEADER, csrf_token
from forewarn.console.pulse import Pulse
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.domain.roles import LADDER
from forewarn.files.fleet import read_fleet
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Store, Transaction

HOST = "localhost:8170"
COOKIE = "forewarn-8170"
SECRETS = {role: f"fw_{role}" for role in LADDER}

SignIn: TypeAlias = Callable[[str], TestClient]
"""Returns a browser that is signed in with a token."""


@pytest.fixture
def console(services: Services, store: Store) -> Starlette:
    """The console of a server with web-0, web-1 and solo, and a token for each role."""
    context, fleet = services.context("alice"), read_fleet(FLEET)

    def fill(tx: Transaction) -> None:
        apply_fleet(tx, context, fleet)
        for role, secret in SECRETS.items():
            create_token(tx, context, TokenOrder(name=f"a-{role}", role=role), secret)

    store.write(fill)
    pulse = Pulse()
    store.listen(pulse.note)
    return create_console(services, pulse, Refusals(services))


@pytest.fixture
def stranger(console: Starlette) -> TestClient:
    """A browser that is not signed in, and follows no redirections."""
    return TestClient(console, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def sign_in(console: Starlette) -> Iterator[SignIn]:
    """Return how to sign in with a token; such a browser sends what our pages send."""
    with ExitStack() as closing:

        def begin(secret: str) -> TestClient:
            client = TestClient(console, base_url=f"http://{HOST}", follow_redirects=False)
            closing.callback(client.close)
            headers = {"Authorization": f"Bearer {secret}"}
            assert client.post("/login", headers=headers).status_code == 204
            client.headers[CSRF_HEADER] = csrf_token(client.cookies[COOKIE])
            return client

        yield begin


@pytest.fixture
def browser(sign_in: SignIn) -> TestClient:
    """A browser of the admin."""
    return sign_in(TOKEN)
