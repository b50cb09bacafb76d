"""/events: every verb, and what it refuses."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from forewarn.desk.services import ClockControl
from forewarn.protocol.vocabulary import EventStatus

REBOOT = {"event_type": "Reboot", "resources": ["web-0"]}


def create(api: httpx2.Client, **order: object) -> dict[str, Any]:
    """Announce one event and return it."""
    answer = api.post("events", json={**REBOOT, **order})
    assert answer.status_code == 201, answer.text
    (event,) = answer.json()["events"]
    return dict(event)


def test_event_is_announced_with_everything_it_was_given(
    api: httpx2.Client, wakeups: list[str]
) -> None:
    event = create(api, not_before="20m", duration_in_seconds=9, description="Überholung")

    assert event == {
        "event_id": event["event_id"],
        "event_type": "Reboot",
        "event_source": "Platform",
        "event_status": "Scheduled",
        "scope_id": "availability-set/web",
        "update_domain": 0,
        "resources": ["web-0"],
        "description": "Überholung",
        "duration_in_seconds": 9,
        "maintenance_id": None,
        "host": None,
        "operation_id": None,
        "created_at": "2026-01-05T08:00:00Z",
        "not_before": "2026-01-05T08:20:00Z",
        "first_not_before": "2026-01-05T08:20:00Z",
        "is_announced": True,
        "is_published": True,
        "approvals": [],
        "started_at": None,
        "overdue_at": None,
        "ended_at": None,
        "outcome": None,
        "reason": "",
    }
    assert wakeups == ["changed"]


def test_order_over_two_scopes_becomes_three_events(api: httpx2.Client) -> None:
    answer = api.post("events", json={**REBOOT, "resources": ["solo", "WEB-1", "web-0"]})

    resources = [event["resources"] for event in answer.json()["events"]]
    assert resources == [["web-0"], ["web-1"], ["solo"]]


@pytest.mark.parametrize(
    "not_before", ["2026-01-05T08:15:00Z", "2026-01-05 09:15:00+01:00", "15m", "900s"]
)
def test_not_before_is_a_duration_or_a_time(api: httpx2.Client, not_before: str) -> None:
    assert create(api, not_before=not_before)["not_before"] == "2026-01-05T08:15:00Z"


@pytest.mark.parametrize(
    ("not_before", "kind"),
    [
        ("14m59s", "notice-too-short"),
        ("2020-01-01T00:00:00Z", "notice-too-short"),
        ("2026-01-05T08:20:00", "moment"),
        ("9999-12-31T23:59:59.5Z", "moment"),
        ("0001-01-01T00:00:00+23:59", "moment"),
        ("999999999d", "moment"),
        ("soon", "moment"),
        ("", "moment"),
        ("\u0662\u0660m", "moment"),
        ("x" * 65, "invalid-request"),
        (20, "invalid-request"),
        (1767600000.5, "invalid-request"),
    ],
)
def test_bad_not_before_is_refused_and_changes_nothing(
    api: httpx2.Client, wakeups: list[str], not_before: object, kind: str
) -> None:
    answer = api.post("events", json={**REBOOT, "not_before": not_before})

    assert (answer.status_code, answer.json()["type"]) == (422, f"urn:forewarn:problem:{kind}")
    assert api.get("events").json() == {"events": []}
    assert wakeups == []


@pytest.mark.parametrize(
    "change",
    [
        {"event_type": "reboot"},
        {"event_type": None},
        {"event_type": 1},
        {"resources": []},
        {"resources": "web-0"},
        {"resources": [1]},
        {"duration_in_seconds": -1},
        {"duration_in_seconds": 9.0},
        {"duration_in_seconds": "9"},
        {"duration_in_seconds": True},
        {"duration_in_seconds": 10**30},
        {"description": "x" * 4097},
        {"started": "yes"},
        {"started": 1},
        {"notBefore": "20m"},
    ],
)
def test_order_of_wrong_types_is_refused(api: httpx2.Client, change: dict[str, object]) -> None:
    answer = api.post("events", json={**REBOOT, **change})

    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:forewarn:problem:invalid-request"
    assert answer.json()["detail"].startswith(next(iter(change)))


def test_unknown_resource_is_not_found(api: httpx2.Client) -> None:
    answer = api.post("events", json={**REBOOT, "resources": ["web-0", "nobody"]})

    assert (answer.status_code, answer.json()["vm"]) == (404, "nobody")
    assert api.get("events").json() == {"events": []}


def test_event_can_begin_started(api: httpx2.Client) -> None:
    event = create(api, started=True)

    assert (event["event_status"], event["is_announced"]) == ("Started", False)


def test_event_is_shown_with_its_life_in_any_case(api: httpx2.Client, clock: ClockControl) -> None:
    event_id = create(api)["event_id"]
    clock.advance(timedelta(minutes=1))
    api.post(f"events/{event_id.lower()}/approve")

    shown = api.get(f"events/{event_id.lower()}").json()

    assert shown["event_id"] == event_id
    assert shown["approvals"] == [
        {"approver": "operator", "name": "alice", "approved_at": "2026-01-05T08:01:00Z"}
    ]
    assert [(entry["at"], entry["what"], entry["who"]) for entry in shown["ledger"]] == [
        ("2026-01-05T08:00:00Z", "scheduled", "alice"),
        ("2026-01-05T08:01:00Z", "approved", "alice"),
    ]


def test_event_is_started_and_completed(api: httpx2.Client) -> None:
    event_id = create(api)["event_id"]

    started = api.post(f"events/{event_id}/start").json()
    completed = api.post(
        f"events/{event_id}/complete", json={"outcome": "failed", "reason": "no boot"}
    ).json()

    assert started["event_status"] == "Started"
    assert (completed["event_status"], completed["outcome"]) == ("Completed", "failed")
    assert completed["reason"] == "no boot"


def test_event_is_canceled_with_or_without_a_reason(api: httpx2.Client) -> None:
    first, second = create(api)["event_id"], create(api)["event_id"]

    with_reason = api.post(f"events/{first}/cancel", json={"reason": "not today"}).json()
    without = api.post(f"events/{second}/cancel").json()

    assert (with_reason["event_status"], with_reason["reason"]) == ("Canceled", "not today")
    assert (without["event_status"], without["reason"]) == ("Canceled", "")


@pytest.mark.parametrize("not_before", ["30m", "2026-01-05T08:30:00Z"])
def test_event_is_postponed(api: httpx2.Client, not_before: str) -> None:
    event_id = create(api)["event_id"]

    event = api.post(f"events/{event_id}/postpone", json={"not_before": not_before}).json()

    assert event["not_before"] == "2026-01-05T08:30:00Z"
    assert event["first_not_before"] == "2026-01-05T08:15:00Z"


def test_postponing_past_the_policy_is_refused(api: httpx2.Client) -> None:
    event_id = create(api)["event_id"]

    answer = api.post(f"events/{event_id}/postpone", json={"not_before": "3h"})

    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:forewarn:problem:postpone-refused"


def test_every_started_event_is_completed_at_once(api: httpx2.Client) -> None:
    create(api)
    create(api, resources=["solo"], started=True)
    create(api, resources=["web-1"], started=True)

    completed = api.post("events/complete-all").json()["events"]

    assert [event["resources"] for event in completed] == [["solo"], ["web-1"]]
    assert {event["event_status"] for event in completed} == {"Completed"}
    assert api.post("events/complete-all").json() == {"events": []}


def test_events_are_listed_by_status_virtual_machine_and_limit(api: httpx2.Client) -> None:
    first = create(api)["event_id"]
    second = create(api, resources=["solo"], started=True)["event_id"]
    third = create(api)["event_id"]
    api.post(f"events/{third}/cancel")

    def listed(path: str, **query: Any) -> list[str]:
        return [event["event_id"] for event in api.get(path, params=query).json()["events"]]

    assert listed("events") == [first, second], "those in flight, as event list"
    assert listed("events", status=[*EventStatus]) == [first, second, third]
    assert listed("events", status="Started") == [second]
    assert listed("events", status=["Started", "Canceled"]) == [second, third]
    assert listed("events", vm="WEB-0") == [first]
    assert listed("events", vm="gone") == []
    assert listed("events", limit=1) == [second]
    assert listed("events/history") == [third]
    assert listed("events/history", vm="solo") == []


@pytest.mark.parametrize(
    "query", [{"status": "started"}, {"limit": 0}, {"limit": "x"}, {"limit": 10**6}]
)
def test_bad_filter_is_refused(api: httpx2.Client, query: dict[str, Any]) -> None:
    answer = api.get("events", params=query)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["location"].startswith(next(iter(query)))


@pytest.mark.parametrize("verb", ["approve", "start", "complete", "cancel", "postpone"])
def test_verb_on_an_event_that_never_was_is_not_found(api: httpx2.Client, verb: str) -> None:
    body = {"not_before": "1h"} if verb == "postpone" else None

    answer = api.post(f"events/nope/{verb}", json=body)

    assert (answer.status_code, answer.json()["event_id"]) == (404, "NOPE")


@pytest.mark.parametrize("verb", ["approve", "start", "cancel", "postpone"])
def test_verb_that_comes_too_late_is_refused(api: httpx2.Client, verb: str) -> None:
    event_id = create(api, started=True)["event_id"]
    body = {"not_before": "1h"} if verb == "postpone" else None

    answer = api.post(f"events/{event_id}/{verb}", json=body)

    assert (answer.status_code, answer.json()["event_status"]) == (409, "Started")


def test_scheduled_event_cannot_be_completed(api: httpx2.Client) -> None:
    event_id = create(api)["event_id"]

    assert api.post(f"events/{event_id}/complete").status_code == 409


def test_events_are_listed_by_scope(api: httpx2.Client) -> None:
    for vm in ("web-0", "web-1", "solo"):
        create(api, resources=[vm])

    def listed(scope: str) -> list[list[str]]:
        answer = api.get("events", params={"scope": scope})
        return [event["resources"] for event in answer.json()["events"]]

    assert listed("WEB") == listed("availability-set/web") == [["web-0"], ["web-1"]]
    assert listed("solo") == [["solo"]]
    assert listed("nowhere") == []


def test_history_can_be_narrowed_down(api: httpx2.Client, clock: ClockControl) -> None:
    for event_type, vm in (("Reboot", "web-0"), ("Freeze", "web-1"), ("Reboot", "solo")):
        event = create(api, event_type=event_type, resources=[vm])
        clock.advance(timedelta(minutes=10))
        api.post(f"events/{event['event_id']}/cancel", json={"reason": vm})

    def ended(**query: str) -> list[str]:
        answer = api.get("events/history", params=query)
        assert answer.status_code == 200, answer.text
        return [event["reason"] for event in answer.json()["events"]]

    assert ended() == ["web-0", "web-1", "solo"]
    assert ended(vm="web-1") == ["web-1"]
    assert ended(scope="web") == ["web-0", "web-1"]
    assert ended(event_type="Reboot") == ["web-0", "solo"]
    assert ended(since="08:20") == ["web-1", "solo"]
    assert ended(until="10m ago") == ["web-0"]
    assert ended(since="2026-01-05T08:20:00Z", until="08:30", scope="web") == ["web-1"]


def test_events_of_a_scope_that_is_gone_are_found_by_its_id(api: httpx2.Client) -> None:
    event = create(api, resources=["solo"])
    api.post(f"events/{event['event_id']}/cancel")
    api.delete("virtual-machines/solo")

    answer = api.get("events/history", params={"scope": "virtual-machine/solo"})

    assert len(answer.json()["events"]) == 1


def test_moment_of_the_history_that_is_none_is_refused(api: httpx2.Client) -> None:
    assert api.get("events/history", params={"since": "soon"}).status_code == 422
