"""/requests: the journal, as operators of a test server read it."""

from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import TOKEN, HandClock
from tests.http.control.test_paging import pages

from forewarn.clocks import SystemClock
from forewarn.control.app import create_app
from forewarn.desk.services import Services
from forewarn.domain.names import VmName
from forewarn.emulator.journal import MemoryJournal

WEB, SOLO = VmName("web-0"), VmName("solo")
PATH = "/metadata/scheduledevents"


@pytest.fixture
def journal(clock: HandClock) -> MemoryJournal:
    return MemoryJournal(clock, SystemClock())


@pytest.fixture
def services(services: Services, journal: MemoryJournal) -> Services:
    return replace(services, journal=journal.requests)


def note(
    journal: MemoryJournal, vm: VmName | None = WEB, method: str = "GET", **ended: Any
) -> None:
    entry = journal.begin(vm, method, PATH)
    journal.end(replace(entry, status=200, **ended))


def listed(api: httpx2.Client, **query: Any) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = api.get("requests", params=query).json()["requests"]
    return requests


def test_request_is_shown_with_its_answer(api: httpx2.Client, journal: MemoryJournal) -> None:
    entry = journal.begin(WEB, "POST", PATH)
    refusal = b'{ "error": "Bad request. EventId is unknown" }'
    journal.end(replace(entry, status=400, body=b'{"Start\xff', answer=refusal))

    (shown,) = listed(api)

    took = shown.pop("seconds")
    assert shown == {
        "at": entry.at.isoformat().replace("+00:00", "Z"),
        "maintenance_time": "2026-01-05T08:00:00Z",
        "vm": "web-0",
        "method": "POST",
        "path": PATH,
        "body": '{"Start\ufffd',
        "status": 400,
        "error": "Bad request. EventId is unknown",
        "document_incarnation": None,
        "is_reset": False,
    }
    assert 0 <= took < 10


def test_poll_is_shown_with_its_incarnation(api: httpx2.Client, journal: MemoryJournal) -> None:
    note(journal, answer=b'{"DocumentIncarnation":7,"Events":[]}')

    assert [entry["document_incarnation"] for entry in listed(api)] == [7]


def test_requests_of_one_machine_are_found_by_its_name_in_any_case(
    api: httpx2.Client, journal: MemoryJournal
) -> None:
    for vm in (WEB, SOLO, None, WEB):
        note(journal, vm)

    assert [entry["vm"] for entry in listed(api)] == ["web-0", "solo", None, "web-0"]
    assert [entry["vm"] for entry in listed(api, vm="SOLO")] == ["solo"]
    refused = api.get("requests", params={"vm": "nobody"})
    assert (refused.status_code, refused.json()["type"]) == (
        404,
        "urn:forewarn:problem:unknown-virtual-machine",
    )


def test_pages_go_back_in_time(api: httpx2.Client, journal: MemoryJournal) -> None:
    for number in range(5):
        journal.begin(WEB, "GET", f"/{number}")

    found = pages(api, "requests?limit=2&vm=web-0", "requests", "path")

    assert found == [["/3", "/4"], ["/1", "/2"], ["/0"]]


@pytest.fixture
def limited(app: FastAPI, api: httpx2.Client) -> httpx2.Client:
    order = {"name": "web", "role": "viewer", "scopes": ["availability-set/web"]}
    secret = api.post("tokens", json=order).json()["secret"]
    headers = {"Authorization": f"Bearer {secret}"}
    return TestClient(app, base_url="http://control/api/v1/", headers=headers)


def test_caller_with_scopes_sees_the_requests_of_these(
    limited: httpx2.Client, journal: MemoryJournal
) -> None:
    for vm in (WEB, SOLO, None):
        note(journal, vm)

    assert [entry["vm"] for entry in listed(limited)] == ["web-0"]
    assert limited.get("requests", params={"vm": "solo"}).status_code == 404


def test_server_without_a_journal_says_how_to_have_one(services: Services) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    app = create_app(replace(services, journal=None))
    client = TestClient(app, base_url="http://control/api/v1/", headers=headers)

    refused = client.get("requests")

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:forewarn:problem:journal")
    assert refused.json()["detail"] == (
        "This server does not record requests; start it with `journal: true`."
    )
