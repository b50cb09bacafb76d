"""What needs somebody, and what comes by schedule, on the first page."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx2
import pytest

from forewarn.testing.emulator import Emulator

FLEET = {
    "availability_set": [{"name": "web", "update_domains": 2, "approval": "leader"}],
    "virtual_machine": [
        {"name": "web-0", "availability_set": "web", "host": "kvm-1"},
        {"name": "web-1", "availability_set": "web", "host": "kvm-2"},
        {"name": "db", "host": "kvm-3"},
    ],
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """A server on which operators carry everything out by hand."""
    now = datetime(2030, 1, 7, 9, 30, tzinfo=UTC)
    with Emulator(fleet=FLEET, executor="manual", now=now) as running:
        yield running


@pytest.fixture
def page(emulator: Emulator) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=emulator.control_url, trust_env=False) as client:
        client.post("/login", headers={"Authorization": f"Bearer {emulator.token}"})
        client.headers["Authorization"] = f"Bearer {emulator.token}"
        yield client


def read(page: httpx2.Client, path: str = "/") -> str:
    answer = page.get(path)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())


def test_event_by_hand_needs_somebody(emulator: Emulator, page: httpx2.Client) -> None:
    (event,) = emulator.announce("Freeze", "db", started=True)

    text = read(page)

    assert "1 Held or failed" in text
    assert "An operator has to carry out the impact and then complete the event." in text
    assert "by hand" in read(page, f"/events/{event.event_id}")


def test_paused_maintenance_leads_to_where_it_is_resumed(page: httpx2.Client) -> None:
    order = {"event_type": "Reboot", "scopes": ["web"]}
    key = page.post("/api/v1/maintenances", json=order).json()["maintenance_id"]
    event = page.get("/api/v1/events").json()["events"][0]["event_id"]
    assert "web-0 has not approved" in read(page, f"/events/{event}")
    page.post(f"/api/v1/maintenances/{key}/pause")
    page.post(f"/api/v1/events/{event}/start")
    page.post(f"/api/v1/events/{event}/complete")

    text = read(page)

    assert "The maintenance was paused by admin" in text
    assert f'href="/maintenances/{key}">Resume</a>' in page.get("/").text


def test_schedule_stands_among_the_next_24_hours(page: httpx2.Client) -> None:
    order = {
        "name": "patches",
        "event_type": "Reboot",
        "scopes": ["web"],
        "every": "day",
        "windows": ["daily 22:00-04:00 UTC"],
    }
    answer = page.post("/api/v1/schedules", json=order)
    assert answer.status_code == 201, answer.text

    assert "Schedule patches starts a Reboot maintenance" in read(page)
