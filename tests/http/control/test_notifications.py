"""The outbox, its targets and the calendar over the control API."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from fastapi import FastAPI
from icalendar import Calendar, Event
from starlette.testclient import TestClient
from tests.receiver import Receiver
from tests.web_site import OUTBOUND

from forewarn.control.app import create_app
from forewarn.desk.services import Services
from forewarn.domain.notification import NotificationStatus, Phase, Target
from forewarn.notifications.webhook import WebhookNotifier, cloud_event_body
from forewarn.operations.context import Context, Rules
from forewarn.outbound.client import OutboundRequest
from forewarn.ports.store import Store

OPS = Target(name="ops", scopes=("web",), phases=(Phase.SCHEDULED,))


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def told(app: FastAPI, api: httpx2.Client, receiver: Receiver) -> httpx2.Client:
    """A client of a server that tells the receiver of what is scheduled for web."""
    services: Services = app.state.services

    def context(who: str) -> Context:
        return replace(services.context(who), rules=Rules(targets=(OPS,)))

    request = OutboundRequest(method="POST", url=receiver.url, timeout=60)
    way = WebhookNotifier(OUTBOUND, request, cloud_event_body("/forewarn"))
    more = create_app(replace(services, context=context, notifiers={"ops": way}))
    client = TestClient(more, base_url="http://control/api/v1/", raise_server_exceptions=False)
    client.headers["Authorization"] = api.headers["Authorization"]
    return client


def create(api: httpx2.Client, vm: str, **more: object) -> str:
    order = {"event_type": "Reboot", "resources": [vm], **more}
    answer = api.post("events", json=order)
    assert answer.status_code == 201
    event_id: str = answer.json()["events"][0]["event_id"]
    return event_id


def test_message_is_listed_and_tried_again_when_it_has_failed(
    told: httpx2.Client, store: Store
) -> None:
    event_id = create(told, "web-0")
    create(told, "solo")
    (message,) = told.get("notifications").json()["notifications"]
    assert (message["event_id"], message["phase"], message["status"]) == (
        event_id,
        "scheduled",
        "waiting",
    )
    retry = f"notifications/{message['notification_id']}/retry"
    assert told.post(retry).status_code == 409
    known = store.read(lambda reading: reading.notification(message["notification_id"]))
    assert known is not None
    failed = replace(known, status=NotificationStatus.FAILED, attempts=9)
    store.write(lambda tx: tx.put_notification(failed))

    answer = told.post(retry)

    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (
        200,
        "waiting",
        0,
    )
    assert told.get("notifications", params={"status": "failed"}).json() == {"notifications": []}
    assert told.post("notifications/nothing/retry").status_code == 404
    query = {"action": "notification retry"}
    lines = told.get("audit", params=query).json()["audit"]
    assert [line["outcome"] for line in lines] == ["refused", "done", "refused"]


def test_targets_are_listed_without_how_they_are_reached(
    told: httpx2.Client, receiver: Receiver
) -> None:
    answer = told.get("notification-targets")

    assert answer.json() == {
        "targets": [{"name": "ops", "scopes": ["web"], "event_types": [], "phases": ["scheduled"]}]
    }
    assert str(receiver.port) not in answer.text


def test_target_is_tested_at_once(told: httpx2.Client, receiver: Receiver) -> None:
    down = told.post("notification-targets/ops/test").json()
    with receiver.listening():
        up = told.post("notification-targets/ops/test").json()

    assert (down["is_delivered"], up["is_delivered"]) == (False, True)
    assert up["answer"] == "204 No Content"
    assert len(receiver.received) == 1
    refused = told.post("notification-targets/nobody/test")
    assert (refused.status_code, refused.json()["target"]) == (404, "nobody")
    query = {"action": "notification test"}
    lines = told.get("audit", params=query).json()["audit"]
    assert [(line["subject"], line["outcome"]) for line in lines] == [
        ("ops", "done"),
        ("ops", "done"),
        ("nobody", "refused"),
    ]


def entries(api: httpx2.Client, **query: str) -> dict[str, Event]:
    answer = api.get("calendar.ics", params=query)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/calendar")
    return {str(entry.uid): entry for entry in Calendar.from_ical(answer.content).events}


def test_calendar_shows_what_is_planned(api: httpx2.Client) -> None:
    event_id = create(api, "web-0", duration_in_seconds=600, description="Kernel; 6.12, now")

    entry = entries(api)[event_id]

    assert datetime(2026, 1, 5, 8, 15, tzinfo=UTC) == entry.DTSTART
    assert timedelta(minutes=10) == entry.DURATION
    assert datetime(2026, 1, 5, 8, tzinfo=UTC) == entry.DTSTAMP
    assert (entry.status, entry.sequence) == ("TENTATIVE", 0)
    assert entry.summary == "Reboot of web-0"
    assert entry.description == "Kernel; 6.12, now"


def test_calendar_follows_an_event_and_its_sequence_rises(api: httpx2.Client) -> None:
    event_id = create(api, "web-0")

    def look() -> tuple[str, int]:
        entry = entries(api)[event_id]
        return str(entry.status), entry.sequence

    seen = [look()]
    api.post(f"events/{event_id}/postpone", json={"not_before": "30m"})
    seen.append(look())
    api.post(f"events/{event_id}/cancel")
    seen.append(look())

    assert seen == [("TENTATIVE", 0), ("TENTATIVE", 1), ("CANCELLED", 2)]
    api.post("clock/advance", json={"duration": "31m"})
    assert entries(api) == {}


def test_calendar_of_one_scope(api: httpx2.Client) -> None:
    web = create(api, "web-0")
    solo = create(api, "solo", started=True)

    assert set(entries(api)) == {web, solo}
    assert set(entries(api, scope="WEB")) == {web}
    assert set(entries(api, scope="virtual-machine/solo")) == {solo}
    assert api.get("calendar.ics", params={"scope": "nobody"}).status_code == 404


def test_calendar_has_the_steps_to_come_and_says_that_they_are_a_forecast(
    api: httpx2.Client,
) -> None:
    order = {"event_type": "Reboot", "scopes": ["web"], "duration_in_seconds": 600}
    maintenance_id = api.post("maintenances", json=order).json()["maintenance_id"]
    later = f"{maintenance_id}/availability-set/web/1"

    found = entries(api)
    api.post("clock/advance", json={"duration": "5m"})
    moved = entries(api)[later]

    assert set(found) == {f"{maintenance_id}/availability-set/web/0", later}
    entry = found[later]
    assert (str(entry.status), str(entry.summary)) == ("TENTATIVE", "Forecast: Reboot of web-1")
    assert str(entry.description).startswith("Not announced yet. Maintenance ")
    assert datetime(2026, 1, 5, 8, 40, tzinfo=UTC) == entry.DTSTART
    assert datetime(2026, 1, 5, 8, 50, tzinfo=UTC) == entry.DTEND
    assert datetime(2026, 1, 5, 8, 45, tzinfo=UTC) == moved.DTSTART
    assert moved.sequence > entry.sequence


def test_calendar_of_a_host_calls_its_steps_by_it(api: httpx2.Client) -> None:
    order = {"event_type": "Reboot", "hosts": ["kvm-0", "kvm-1"]}
    maintenance_id = api.post("maintenances", json=order).json()["maintenance_id"]

    assert f"{maintenance_id}/kvm-1" in entries(api, scope="web")
    assert entries(api, scope="solo") == {}


def test_calendar_has_no_control_characters_but_line_breaks(api: httpx2.Client) -> None:
    words = "a\x1b]0;b\x07\x9bc\x7fd\x85e\rf"
    create(api, "web-0", description=words)

    calendar = api.get("calendar.ics").content.decode()

    assert "DESCRIPTION:a?]0\\;b??c?d?e" in calendar
    assert all(letter.isprintable() for letter in calendar.replace("\r\n", ""))


def test_calendar_needs_a_token(anonymous: httpx2.Client) -> None:
    assert anonymous.get("http://control/api/v1/calendar.ics").status_code == 401
