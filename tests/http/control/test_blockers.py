"""/maintenances/{id}/explain: blockers as sentences and as data, and what becomes of it."""

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from forewarn.executors.simulated import Simulated
from forewarn.operations.context import Context
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId
from forewarn.scheduler.tick import decide_and_record

OTHERS = {
    "availability_set": [{"name": "db"}],
    "virtual_machine": [
        {"name": "db-0", "availability_set": "db", "host": "kvm-0", "update_domain": 0},
        {"name": "db-1", "availability_set": "db", "host": "kvm-9", "update_domain": 1},
    ],
}


@pytest.fixture
def web_team(api: httpx2.Client, app: FastAPI) -> httpx2.Client:
    """A viewer of web only, beside whom there is db."""
    assert api.post("fleet", json={"fleet": OTHERS}).status_code == 200
    order = {"name": "web-team", "role": "viewer", "scopes": ["web"]}
    secret = api.post("tokens", json=order).json()["secret"]
    return TestClient(
        app, base_url="http://control/api/v1/", headers={"Authorization": f"Bearer {secret}"}
    )


def start(api: httpx2.Client, **order: object) -> str:
    answer = api.post("maintenances", json={"event_type": "Freeze", **order})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["maintenance_id"])


def turn(store: Store, app: FastAPI) -> None:
    """Have a scheduler do what is due."""
    context: Context = app.state.services.context("scheduler")
    epoch = store.write(lambda tx: tx.next_epoch())
    store.write(lambda tx: decide_and_record(tx, context, {}, Simulated(), epoch=epoch))


def test_maintenance_is_explained(api: httpx2.Client, app: FastAPI, store: Store) -> None:
    name = start(api, scopes=["web"])
    turn(store, app)
    (event,) = api.get(f"maintenances/{name}").json()["events"]

    answer = api.get(f"maintenances/{name.upper()}/explain")

    assert answer.json() == {
        "maintenance_id": name,
        "status": "running",
        "status_text": "running",
        "blockers": [
            {
                "kind": "approval-of-any",
                "release": "by time",
                "sentence": (
                    f"Event {event['event_id']} in availability-set/web: Not approved yet; "
                    "one approval is enough (web-0). The event starts at 2026-01-05 08:15:00 "
                    "GMT at the latest."
                ),
                "scope_ids": ["availability-set/web"],
                "hosts": [],
                "vms": ["web-0"],
                "event_ids": [event["event_id"]],
                "since": None,
                "until": "2026-01-05T08:15:00Z",
                "about": (
                    "Not approved yet; one approval is enough (web-0). The event starts at "
                    "2026-01-05 08:15:00 GMT at the latest."
                ),
                "places": [],
            }
        ],
        "verdict": {
            "kind": "by-time",
            "sentence": (
                "The maintenance continues automatically, at 2026-01-05 08:15:00 GMT at the latest."
            ),
            "until": "2026-01-05T08:15:00Z",
            "actions": [],
        },
        "not_done": {},
    }


def test_maintenance_that_nobody_started_is_not_explained(api: httpx2.Client) -> None:
    assert api.get("maintenances/none/explain").status_code == 404


def test_what_others_hold_is_said_without_names(
    web_team: httpx2.Client, api: httpx2.Client, app: FastAPI, store: Store
) -> None:
    name = start(api, hosts=["kvm-0", "kvm-1"], at_once=1)
    turn(store, app)
    events = api.get(f"maintenances/{name}").json()["events"]
    (own,) = [event["event_id"] for event in events if event["resources"] == ["web-0"]]
    api.post(f"events/{EventId(own)}/approve")

    found = web_team.get(f"maintenances/{name}/explain")

    assert [blocker["sentence"] for blocker in found.json()["blockers"]] == [
        "The maintenance waits in scopes that this token does not cover.",
        "The next step in availability-set/web waits for an earlier step of this maintenance.",
    ]
    assert not any(name in found.text for name in ("db-0", "kvm-0", "kvm-1"))
    assert "by-time" in found.text


def test_what_somebody_else_has_to_do_is_said_without_names(
    web_team: httpx2.Client, api: httpx2.Client
) -> None:
    name = start(api, scopes=["web", "db"], gates=[])
    api.post(f"maintenances/{name}/pause")
    assert api.get(f"maintenances/{name}/explain").json()["verdict"]["actions"] == [
        f"forewarn maintenance resume {name}"
    ]

    verdict = web_team.get(f"maintenances/{name}/explain").json()["verdict"]

    assert verdict["actions"] == [f"forewarn maintenance resume {name}"]


def test_what_is_not_done_is_said_of_own_scopes(
    web_team: httpx2.Client, api: httpx2.Client
) -> None:
    name = start(api, scopes=["web", "db"])
    api.post(f"maintenances/{name}/abort")

    said = [who.get(f"maintenances/{name}/explain").json()["not_done"] for who in (api, web_team)]

    assert [each.get("availability-set/web") for each in said] == ["skipped", "skipped"]
    assert [len(each) for each in said] == [2, 1]


def test_maintenance_of_others_is_not_explained(
    web_team: httpx2.Client, api: httpx2.Client
) -> None:
    name = start(api, scopes=["db"])

    assert web_team.get(f"maintenances/{name}/explain").status_code == 404
