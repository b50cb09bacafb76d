"""Lists in pages."""

import httpx2
import pytest
from tests.http.conftest import MORNING

from forewarn.domain.notification import Notification, Phase
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventId


def pages(api: httpx2.Client, path: str, noun: str, key: str) -> list[list[str]]:
    found = []
    while path:
        answer = api.get(path)
        found.append([each[key] for each in answer.json()[noun]])
        path = answer.links.get("next", {}).get("url", "")
        path = f"http://control{path}" if path else ""
    return found


def announce(api: httpx2.Client) -> str:
    body = {"event_type": "Freeze", "resources": ["solo"]}
    return str(api.post("events", json=body).json()["events"][0]["event_id"])


def test_pages_of_machines_are_the_whole_list(api: httpx2.Client) -> None:
    found = pages(api, "virtual-machines?limit=2", "virtual_machines", "name")

    assert found == [["web-0", "web-1"], ["solo"]]
    assert "link" not in api.get("virtual-machines").headers


def test_pages_of_events_go_back_in_time_and_keep_what_narrows_them(api: httpx2.Client) -> None:
    ids = [announce(api) for _ in range(5)]

    found = pages(api, "events?limit=2&vm=SOLO&status=Scheduled", "events", "event_id")

    assert found == [ids[3:], ids[1:3], ids[:1]]


def test_what_comes_meanwhile_moves_nothing(api: httpx2.Client) -> None:
    ids = [announce(api) for _ in range(4)]
    first = api.get("events?limit=2")

    announce(api)
    second = api.get(f"http://control{first.links['next']['url']}")

    assert [event["event_id"] for event in second.json()["events"]] == ids[:2]
    assert "link" not in second.headers


@pytest.mark.parametrize(
    "path",
    [
        "virtual-machines?after=nobody",
        "events?after=nothing",
        "maintenances?after=none",
        "scenario-runs?after=none",
        "notifications?after=none",
        "availability-sets?after=none",
        "hosts?after=none",
    ],
)
def test_cursor_of_nothing_is_refused(api: httpx2.Client, path: str) -> None:
    assert api.get(path).status_code == 404


@pytest.mark.parametrize("cursor", ["first", "-1", "\u0661", "9" * 19])
def test_cursor_that_is_no_number_is_refused_where_lines_are_numbered(
    api: httpx2.Client, cursor: str
) -> None:
    refused = api.get("audit", params={"after": cursor})

    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("after: is not a valid cursor of this list")


def test_history_has_pages_too(api: httpx2.Client) -> None:
    ids = [announce(api) for _ in range(3)]
    for event_id in ids:
        api.post(f"events/{event_id}/cancel")

    assert pages(api, "events/history?limit=2", "events", "event_id") == [ids[1:], ids[:1]]


def test_pages_of_maintenances_go_back_in_time(api: httpx2.Client) -> None:
    order = {"event_type": "Freeze", "scopes": ["web"]}
    ids = [api.post("maintenances", json=order).json()["maintenance_id"] for _ in range(3)]

    found = pages(api, "maintenances?limit=2", "maintenances", "maintenance_id")

    assert found == [ids[1:], ids[:1]]


def test_pages_of_scenario_runs_go_back_in_time(api: httpx2.Client) -> None:
    order = {"name": "spot-eviction", "virtual_machines": ["solo"]}
    ids = [api.post("scenario-runs", json=order).json()["run_id"] for _ in range(3)]

    assert pages(api, "scenario-runs?limit=2", "scenario_runs", "run_id") == [ids[1:], ids[:1]]


def test_pages_of_the_audit_go_back_in_time_and_keep_what_narrows_them(api: httpx2.Client) -> None:
    ids = [announce(api) for _ in range(3)]
    api.delete("virtual-machines/web-1")

    found = pages(api, "audit?limit=2&action=event%20create", "audit", "subject")

    assert found == [ids[1:], ids[:1]]


def test_pages_of_notifications_go_back_in_time(api: httpx2.Client, store: Store) -> None:
    ids = [f"n-{number}" for number in range(3)]
    event_id = EventId(announce(api))

    def put(tx: Transaction) -> None:
        for each in ids:
            tx.put_notification(
                Notification(
                    notification_id=each,
                    subject=event_id,
                    phase=Phase.SCHEDULED,
                    target="ops",
                    data={},
                    created_at=MORNING,
                    maintenance_time=MORNING,
                    next_attempt_at=MORNING,
                )
            )

    store.write(put)

    found = pages(api, "notifications?limit=2&status=waiting", "notifications", "notification_id")

    assert found == [ids[1:], ids[:1]]


def test_pages_of_places_are_the_whole_list(api: httpx2.Client) -> None:
    api.post("fleet", json={"fleet": {"availability_set": [{"name": "a"}, {"name": "b"}]}})

    assert pages(api, "availability-sets?limit=2", "sets", "name") == [["web", "a"], ["b"]]
    assert pages(api, "hosts?limit=1", "hosts", "name") == [["kvm-0"], ["kvm-1"]]


def test_page_has_a_thousand_unless_another_number_is_asked_for(api: httpx2.Client) -> None:
    many = [{"name": f"vm-{number}"} for number in range(1001)]
    order = {"fleet": {"virtual_machine": many}, "prune": True, "allow_removals": 1000}
    api.post("fleet", json=order)

    found = pages(api, "virtual-machines", "virtual_machines", "name")

    assert [len(page) for page in found] == [1000, 1]
