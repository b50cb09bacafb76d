"""/server: pausing and resuming over the control API."""

import httpx2
import pytest

import forewarn
from forewarn.ports.store import Store

MORNING = "2026-01-05T08:00:00Z"


def test_server_is_paused_and_resumed(api: httpx2.Client) -> None:
    before = api.get("server").json()
    paused = api.post("server/pause", json={"reason": "storage"}).json()
    shown = api.get("server").json()
    resumed = api.post("server/resume").json()

    assert paused.items() <= shown.items()
    assert resumed.items() <= before.items()
    assert resumed == {
        "version": forewarn.__version__,
        "is_paused": False,
        "paused_since": None,
        "paused_by": "",
        "pause_reason": "",
        "executor_problem": "",
    }
    assert {**paused, "paused_by": ""} == {
        **resumed,
        "is_paused": True,
        "paused_since": MORNING,
        "pause_reason": "storage",
    }
    assert paused["paused_by"]


def test_server_shows_its_database_and_its_replicas(api: httpx2.Client, store: Store) -> None:
    before = api.get("server").json()
    store.write(lambda tx: tx.next_epoch())
    after = api.get("server").json()

    assert before["database"] == "forewarn.db"
    assert before["database_time"] == MORNING
    assert before["replicas"] == [
        {
            "name": "kvm-1",
            "address": "http://127.0.0.1:8170",
            "version": "1.2",
            "settings": {"notice": "always"},
            "started_at": MORNING,
            "seen_at": MORNING,
            "changes_behind": 0,
            "lag_in_milliseconds": 0,
            "is_present": True,
            "is_leader": False,
            "is_answering": True,
        }
    ]
    assert (before["lease_epoch"], after["lease_epoch"]) == (0, 1)
    assert after["replicas"][0]["is_leader"]


@pytest.mark.parametrize("body", [{"reason": 1}, {"why": "x"}])
def test_wrong_order_is_refused_and_changes_nothing(
    api: httpx2.Client, body: dict[str, object]
) -> None:
    assert api.post("server/pause", json=body).status_code == 422
    assert not api.get("server").json()["is_paused"]
