"""/server: pausing and resuming over the control API."""

import httpx2
import pytest

import forewarn

MORNING = "2026-01-05T08:00:00Z"


def test_server_is_paused_and_resumed(api: httpx2.Client) -> None:
    before = api.get("server").json()
    paused = api.post("server/pause", json={"reason": "storage"}).json()
    shown = api.get("server").json()
    resumed = api.post("server/resume").json()

    assert paused == shown
    assert before == resumed
    assert resumed == {
        "version": forewarn.__version__,
        "is_paused": False,
        "paused_since": None,
        "paused_by": "",
        "pause_reason": "",
        "executor_problem": "",
    }
    assert {**shown, "paused_by": ""} == {
        **resumed,
        "is_paused": True,
        "paused_since": MORNING,
        "pause_reason": "storage",
    }
    assert shown["paused_by"]


@pytest.mark.parametrize("body", [{"reason": 1}, {"why": "x"}])
def test_wrong_order_is_refused_and_changes_nothing(
    api: httpx2.Client, body: dict[str, object]
) -> None:
    assert api.post("server/pause", json=body).status_code == 422
    assert not api.get("server").json()["is_paused"]
