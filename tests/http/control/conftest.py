"""The control API on a real store, reached through ASGI by a client with a token."""

from datetime import timedelta
from typing import Any, Final

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import FLEET, MORNING, TOKEN

from forewarn.control.app import create_app
from forewarn.desk.services import Services
from forewarn.domain.event import Draft, Share, cancel, schedule
from forewarn.domain.names import MaintenanceId, ScopeId, VmName
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventSource, EventType, event_id

DOCUMENT: Final = pytest.StashKey[dict[str, Any]]()


@pytest.fixture
def app(services: Services) -> FastAPI:
    return create_app(services)


@pytest.fixture
def openapi(app: FastAPI, pytestconfig: pytest.Config) -> dict[str, Any]:
    """What every app says of itself; made once, because that takes longer than many requests."""
    if DOCUMENT not in pytestconfig.stash:
        pytestconfig.stash[DOCUMENT] = app.openapi()
    return pytestconfig.stash[DOCUMENT]


@pytest.fixture
def anonymous(app: FastAPI) -> httpx2.Client:
    return TestClient(app, base_url="http://control", raise_server_exceptions=False)


@pytest.fixture
def empty_api(anonymous: httpx2.Client) -> httpx2.Client:
    """A client of a server that has no fleet yet."""
    anonymous.headers["Authorization"] = f"Bearer {TOKEN}"
    anonymous.base_url = "http://control/api/v1/"
    return anonymous


@pytest.fixture
def api(empty_api: httpx2.Client, wakeups: list[str]) -> httpx2.Client:
    """A client of a server with three virtual machines: web-0, web-1 and solo."""
    assert empty_api.post("fleet", json={"fleet": FLEET}).status_code == 200
    wakeups.clear()
    return empty_api


def hold(store: Store, maintenance_id: str) -> None:
    """Have a Maintenance hold: an event of it was canceled."""
    share = Share(
        scope_id=ScopeId("virtual-machine/solo"), update_domain=0, resources=(VmName("solo"),)
    )
    draft = Draft(
        event_type=EventType.FREEZE,
        event_source=EventSource.PLATFORM,
        share=share,
        maintenance_id=MaintenanceId(maintenance_id),
    )
    event = schedule(
        draft, event_id=event_id(maintenance_id), now=MORNING, notice=timedelta(minutes=15)
    )
    store.write(lambda tx: tx.put_event(cancel(event, now=MORNING)))
