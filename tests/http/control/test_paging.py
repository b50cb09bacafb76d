"""Lists in pages."""

import httpx2
import pytest


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


@pytest.mark.parametrize("path", ["virtual-machines?after=nobody", "events?after=nothing"])
def test_cursor_of_nothing_is_refused(api: httpx2.Client, path: str) -> None:
    assert api.get(path).status_code == 404


def test_history_has_pages_too(api: httpx2.Client) -> None:
    ids = [announce(api) for _ in range(3)]
    for event_id in ids:
        api.post(f"events/{event_id}/cancel")

    assert pages(api, "events/history?limit=2", "events", "event_id") == [ids[1:], ids[:1]]
