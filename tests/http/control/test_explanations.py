"""/events/{event_id}/explain: reasons as sentences and as data."""

import httpx2
from tests.http.control.tasks import put_impact, put_owner

from forewarn.domain.task import TaskState
from forewarn.ports.store import Store

REBOOT = {"event_type": "Reboot", "resources": ["web-0"]}


def create(api: httpx2.Client, **order: object) -> str:
    (event,) = api.post("events", json={**REBOOT, **order}).json()["events"]
    return str(event["event_id"])


def test_scheduled_event_is_explained(api: httpx2.Client) -> None:
    event_id = create(api)

    answer = api.get(f"events/{event_id.lower()}/explain")

    assert answer.json() == {
        "event_id": event_id,
        "event_status": "Scheduled",
        "is_held": True,
        "reasons": [
            {
                "kind": "approval-of-any",
                "holds": True,
                "sentence": "Not approved yet; one approval is enough (web-0).",
                "vms": ["web-0"],
                "event_ids": [],
                "since": None,
                "until": "2026-01-05T08:15:00Z",
                "about": "",
            },
            {
                "kind": "not-before",
                "holds": False,
                "sentence": "The event starts at 2026-01-05 08:15:00 GMT at the latest.",
                "vms": [],
                "event_ids": [],
                "since": None,
                "until": "2026-01-05T08:15:00Z",
                "about": "",
            },
            {
                "kind": "postponable",
                "holds": False,
                "sentence": "The event can be postponed to 2026-01-05 09:15:00 GMT at the latest.",
                "vms": [],
                "event_ids": [],
                "since": None,
                "until": "2026-01-05T09:15:00Z",
                "about": "",
            },
        ],
    }


def test_what_the_owner_of_the_impact_said_reaches_the_explanation(
    api: httpx2.Client, store: Store
) -> None:
    event_id = create(api, started=True)
    put_owner(store)
    put_impact(store, event_id, "web-0", TaskState.UNKNOWN)

    answer = api.get(f"events/{event_id}/explain").json()

    assert [reason["about"] for reason in answer["reasons"]] == ["db-9 is away"]


def test_event_that_never_existed_is_not_found(api: httpx2.Client) -> None:
    answer = api.get("events/602D9444-D2CD-49C7-8624-8643E7171297/explain")

    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:forewarn:problem:unknown-event"
