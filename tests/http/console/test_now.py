"""What somebody who is limited to scopes reads of what is happening, and cannot do about it."""

from collections.abc import Iterator

import httpx2
import pytest

from forewarn.console.cookies import CSRF_HEADER, csrf_token
from forewarn.testing.emulator import Emulator

FLEET = {
    "availability_set": [
        {"name": "web", "update_domains": 1, "approval": "all"},
        {"name": "secret", "update_domains": 1, "approval": "all"},
    ],
    "virtual_machine": [
        {"name": "web-0", "availability_set": "web", "host": "kvm-1"},
        {"name": "web-1", "availability_set": "web", "host": "kvm-2"},
        {"name": "secret-0", "availability_set": "secret", "host": "kvm-1"},
        {"name": "secret-1", "availability_set": "secret", "host": "kvm-3"},
    ],
}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """A server with a Maintenance of two hosts that carry two scopes, and an event in one."""
    with Emulator(fleet=FLEET) as running:
        order = {"event_type": "Reboot", "hosts": ["kvm-1", "kvm-2", "kvm-3"]}
        ask(running, "/maintenances", order)
        running.announce("Freeze", "secret-1", description="secret plans")
        yield running


@pytest.fixture(scope="module")
def browser(emulator: Emulator) -> Iterator[httpx2.Client]:
    """Return an operator of one scope, who is signed in."""
    order = {"name": "limited", "role": "operator", "scopes": ["web"]}
    secret = ask(emulator, "/tokens", order)["secret"]
    with httpx2.Client(base_url=emulator.control_url, trust_env=False) as client:
        client.post("/login", headers={"Authorization": f"Bearer {secret}"})
        yield client


def ask(emulator: Emulator, path: str, body: object) -> dict[str, str]:
    answer = httpx2.post(
        f"{emulator.control_url}/api/v1{path}",
        json=body,
        headers={"Authorization": f"Bearer {emulator.token}"},
        trust_env=False,
    )
    answer.raise_for_status()
    found: dict[str, str] = answer.json()
    return found


def test_limited_operator_reads_of_no_other_scope(
    emulator: Emulator, browser: httpx2.Client
) -> None:
    page = browser.get("/").text
    (own,) = [event for event in emulator.events if event.record.resources == ("web-0",)]
    event = browser.get(f"/events/{own.event_id}").text

    assert "web-0" in page
    assert "Maintenances under way" in page
    assert "kvm-1" in event
    assert "secret" not in page + event


def test_events_of_others_are_not_found(emulator: Emulator, browser: httpx2.Client) -> None:
    for event in emulator.events:
        answer = browser.get(f"/events/{event.event_id}")
        assert answer.status_code == (200 if "web-0" in event.record.resources else 404)


def test_limited_operator_cannot_cancel_for_others(
    emulator: Emulator, browser: httpx2.Client
) -> None:
    (own,) = [event for event in emulator.events if event.record.resources == ("web-0",)]
    proof = csrf_token(next(iter(browser.cookies.values())))

    answer = browser.post(
        f"/events/{own.event_id}/cancel", data={"operation": "1"}, headers={CSRF_HEADER: proof}
    )

    assert answer.status_code == 403
    assert "secret-0" not in answer.text
    own.assert_status("Scheduled")
