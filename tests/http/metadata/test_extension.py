"""What our own SDK and agent can ask, beside Azure's protocol."""

import json
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest
from tests.http.metadata.conftest import Service, context

from forewarn.domain.event import Outcome
from forewarn.operations.events import complete_event

EVENTS = "/metadata/forewarn/v1/events"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def test_whoami_tells_name_and_place(quiet_service: Service) -> None:
    assert quiet_service.request("/metadata/forewarn/v1/whoami").json == {
        "name": "web-0",
        "vm_id": "5E0D4C7A-0000-4000-8000-000000000001",
        "scope_id": "availability-set/web",
        "update_domain": 1,
        "fault_domain": 1,
        "longest_wait": 300,
    }


def test_event_is_told_after_it_left_the_document(service: Service) -> None:
    identifier = service.create()
    service.start(identifier)
    service.complete(identifier)

    reply = service.request(f"{EVENTS}/{identifier.lower()}")

    told = reply.json
    assert (told["event_id"], told["event_status"]) == (identifier, "Completed")
    assert told["outcome"] == "succeeded"
    assert [entry["what"] for entry in told["ledger"]] == ["scheduled", "started", "completed"]


def test_guests_are_told_neither_who_nor_why(service: Service) -> None:
    identifier = service.create()
    service.start(identifier)
    reason = "hunter2: /opt/secret.sh said no"
    service.store.write(
        lambda tx: complete_event(tx, context("mallory"), identifier, Outcome.FAILED, reason)
    )

    reply = service.request(f"{EVENTS}/{identifier}")

    assert reply.json["outcome"] == "failed"
    assert [set(line) for line in reply.json["ledger"]] == [{"at", "what"}] * 3
    assert not any(word in reply.body for word in (b"hunter2", b"mallory", b"test", b"reason"))


@pytest.mark.parametrize("not_before", ["2026-03-02T12:45:00Z", "Mon, 02 Mar 2026 12:45:00 GMT"])
def test_event_is_postponed(service: Service, not_before: str) -> None:
    identifier = service.create()
    body = json.dumps({"not_before": not_before}).encode()

    reply = service.post(body, f"{EVENTS}/{identifier}/postpone")

    assert reply.status == 200
    shown = service.request().json
    assert shown["DocumentIncarnation"] == 2
    assert shown["Events"][0]["NotBefore"] == "Mon, 02 Mar 2026 12:45:00 GMT"


def test_refused_postponement_says_why(service: Service) -> None:
    identifier = service.create()
    body = b'{"not_before":"2026-03-02T20:00:00Z"}'

    reply = service.post(body, f"{EVENTS}/{identifier}/postpone")

    assert reply.status == 409
    assert "the latest time that its scope allows" in reply.json["error"]
    assert service.request().json["DocumentIncarnation"] == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"not_before":5}', b'{"not_before":"x"}'])
def test_postponement_without_a_date_is_refused(service: Service, body: bytes) -> None:
    identifier = service.create()

    assert service.post(body, f"{EVENTS}/{identifier}/postpone").status == 400


@pytest.mark.parametrize("date", ["9999-12-31T23:59:59.9Z", "3000-01-01T00:00:00Z"])
def test_date_that_is_too_far_away_is_refused(service: Service, date: str) -> None:
    identifier = service.create()
    body = json.dumps({"not_before": date}).encode()

    reply = service.post(body, f"{EVENTS}/{identifier}/postpone")

    assert (reply.status, "too far away" in reply.json["error"]) == (400, True)


def test_postponement_by_a_second_is_refused(service: Service) -> None:
    identifier = service.create()
    shown = service.request().json["Events"][0]["NotBefore"]
    date = parsedate_to_datetime(shown) + timedelta(seconds=1)
    body = json.dumps({"not_before": date.isoformat()}).encode()

    reply = service.post(body, f"{EVENTS}/{identifier}/postpone")

    assert reply.status == 409
    assert "the earliest new time is" in reply.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{EVENTS}/{UNKNOWN}", 404),
        ("GET", EVENTS, 404),
        ("GET", f"{EVENTS}/", 404),
        ("GET", f"{EVENTS}/{UNKNOWN}/x", 404),
        ("GET", f"{EVENTS}//postpone", 404),
        ("GET", "/metadata/forewarn/v2/whoami", 404),
        ("POST", f"{EVENTS}/{UNKNOWN}", 405),
        ("GET", f"{EVENTS}/{UNKNOWN}/postpone", 405),
    ],
)
def test_what_is_not_there_is_refused(
    quiet_service: Service, method: str, path: str, status: int
) -> None:
    assert quiet_service.request(path, method=method).status == status


def test_unknown_event_cannot_be_postponed(quiet_service: Service) -> None:
    body = b'{"not_before":"2026-03-02T12:45:00Z"}'

    assert quiet_service.post(body, f"{EVENTS}/{UNKNOWN}/postpone").status == 404


@pytest.mark.parametrize("path", ["/metadata/forewarn/v1/whoami", f"{EVENTS}/{UNKNOWN}"])
def test_header_and_identity_are_needed_here_too(quiet_service: Service, path: str) -> None:
    assert quiet_service.request(path, metadata=None).status == 400
    assert quiet_service.request(path, source="127.0.0.99").status == 404
    assert quiet_service.request(path, headers={"X-Forwarded-For": "x"}).status == 400


def test_event_of_another_scope_is_not_told(service: Service) -> None:
    identifier = service.create()

    assert service.request(f"{EVENTS}/{identifier}", source="127.0.0.12").status == 404
