"""POST /maintenances/plan: the walk with its times, and all that is wrong with it."""

from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import Tables

FREEZE = {"event_type": "Freeze", "scopes": ["web"], "duration_in_seconds": 60}


@pytest.fixture
def web_team(api: httpx2.Client, app: FastAPI) -> httpx2.Client:
    """A viewer of web only."""
    order = {"name": "web-team", "role": "viewer", "scopes": ["web"]}
    secret = api.post("tokens", json=order).json()["secret"]
    return TestClient(
        app, base_url="http://control/api/v1/", headers={"Authorization": f"Bearer {secret}"}
    )


def test_plan_shows_the_walk(api: httpx2.Client) -> None:
    answer = api.post("maintenances/plan", json=FREEZE)

    assert answer.status_code == 200
    plan = answer.json()
    assert plan["steps"][1] == {
        "number": 2,
        "host": None,
        "shares": [
            {
                "scope_id": "availability-set/web",
                "update_domain": 1,
                "resources": ["web-1"],
                "available": 1,
                "members": 2,
            }
        ],
        "earliest": {
            "begins": "2026-01-05T08:01:00Z",
            "starts": "2026-01-05T08:01:00Z",
            "ends": "2026-01-05T08:02:00Z",
        },
        "latest": {
            "begins": "2026-01-05T09:16:00Z",
            "starts": "2026-01-05T10:31:00Z",
            "ends": "2026-01-05T10:32:00Z",
        },
    }
    assert plan["capacities"] == [
        {"scope_id": "availability-set/web", "available": 1, "members": 2, "percent": 50}
    ]
    assert (plan["earliest"], plan["latest"]) == ("2026-01-05T08:02:00Z", "2026-01-05T10:32:00Z")
    assert plan["forecast"] is None
    assert plan["summary"] == [
        "Steps: 2, for 2 virtual machines.",
        "Unavailable at once: at most 1 of 3 virtual machines (34 %), in 1 scope.",
        "Ends 2026-01-05 08:02:00 GMT at the earliest, 2026-01-05 10:32:00 GMT at the latest.",
        "Minimum available: 50 % of availability-set/web.",
        "No polls in 24 hours from 2 of 2 virtual machines: web-0, web-1.",
    ]


def test_plan_changes_nothing(
    api: httpx2.Client, tables: Callable[[], Tables], wakeups: list[str]
) -> None:
    before = tables()

    api.post("maintenances/plan", json=FREEZE)

    assert tables() == before
    assert wakeups == []


def test_plan_lists_all_that_is_wrong(api: httpx2.Client) -> None:
    order = {**FREEZE, "canary": ["nobody"], "windows": ["Sat 22:00-22:15 Europe/Berlin"]}

    answer = api.post("maintenances/plan", json=order)

    assert answer.status_code == 200
    assert answer.json()["errors"] == [
        {
            "type": "urn:forewarn:problem:unknown-canary",
            "detail": "The canary 'nobody' is not among the selected scopes or hosts.",
        },
        {
            "type": "urn:forewarn:problem:window-too-short",
            "detail": (
                "A step in availability-set/web needs 16 min (15 min notice and 1 min impact), "
                "but the windows are open for at most 15 min "
                "(Sat 22:00-22:15 Europe/Berlin)."
            ),
        },
    ]


def test_plan_tells_where_the_calendar_is_in_the_way(api: httpx2.Client) -> None:
    order = {**FREEZE, "windows": ["daily 22:00-23:00 UTC"]}

    (conflict, *_) = api.post("maintenances/plan", json=order).json()["conflicts"]

    assert conflict["steps"] == [1]
    assert conflict["opens"] == "2026-01-05T22:00:00Z"
    assert "at 2026-01-05 08:00:00 GMT, but the calendar is closed" in conflict["sentence"]


def test_what_is_not_there_cannot_be_planned(api: httpx2.Client) -> None:
    answer = api.post("maintenances/plan", json={**FREEZE, "scopes": ["nowhere"]})

    assert answer.status_code == 404


def test_viewer_of_some_scopes_plans_for_these(web_team: httpx2.Client) -> None:
    assert web_team.post("maintenances/plan", json=FREEZE).status_code == 200
    others = {"event_type": "Freeze", "virtual_machines": ["solo"]}
    assert web_team.post("maintenances/plan", json=others).status_code == 404
