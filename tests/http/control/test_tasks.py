"""/tasks: what is not over, and an operator's word for what is unknown."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import MORNING, Tables
from tests.http.control.tasks import put_by_hand, put_impact, put_owner, put_work

from forewarn.domain.names import HostName
from forewarn.domain.task import TaskState
from forewarn.ports.store import Store

DB_0 = {"name": "db-0", "host": "kvm-0"}


def start(api: httpx2.Client, vm: str) -> str:
    order = {"event_type": "Reboot", "resources": [vm], "started": True}
    (event,) = api.post("events", json=order).json()["events"]
    return str(event["event_id"])


def tasks(api: httpx2.Client, **query: str) -> list[dict[str, Any]]:
    answer = api.get("tasks", params=query)
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = answer.json()["tasks"]
    return listed


def settle(api: httpx2.Client, *task_ids: str, **more: str) -> httpx2.Response:
    return api.post("tasks/settle", json={"outcome": "done", "task_ids": task_ids, **more})


@pytest.fixture
def stranded(api: httpx2.Client, store: Store) -> str:
    """The id of a task that db-9 had begun before it went away for good."""
    event_id = start(api, "web-0")
    put_owner(store)
    put_impact(store, event_id, "web-0", TaskState.UNKNOWN, host=HostName("kvm-0"))
    return f"{event_id}/web-0"


@pytest.fixture
def at_work(api: httpx2.Client, store: Store) -> str:
    """A Maintenance of kvm-0, on which db-9 was at work when it went away for good."""
    order = {"event_type": "Freeze", "hosts": ["kvm-0"]}
    maintenance: str = api.post("maintenances", json=order).json()["maintenance_id"]
    put_work(store, maintenance, "kvm-0")
    return maintenance


def test_task_is_listed_with_its_owner(api: httpx2.Client, stranded: str) -> None:
    assert tasks(api) == [
        {
            "task_id": stranded,
            "state": "unknown",
            "runner": "command",
            "owner": "db-9",
            "owner_away_since": "2026-01-05T07:00:00Z",
            "vm": "web-0",
            "host": "kvm-0",
            "maintenance_id": None,
            "reserved_at": "2026-01-05T08:00:00Z",
            "begun_at": "2026-01-05T08:00:00Z",
            "times_out_at": None,
            "reason": "db-9 is away",
            "can_settle": True,
        }
    ]


def test_task_that_is_over_is_not_listed(api: httpx2.Client, store: Store) -> None:
    put_impact(store, start(api, "web-0"), "web-0", TaskState.ENDED)

    assert tasks(api) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, {"web-0", "work"}),
        ({"host": "KVM-0"}, {"work"}),
        ({"host": "kvm-1"}, set()),
        ({"owner": "DB-9"}, {"web-0", "work"}),
        ({"owner": "db-8"}, set()),
        ({"maintenance_id": "at work"}, {"work"}),
        ({"maintenance_id": "at work", "owner": "db-8"}, set()),
        ({"maintenance_id": "none"}, set()),
    ],
)
def test_tasks_are_those_that_fit_everything_that_is_asked_for(
    api: httpx2.Client, store: Store, at_work: str, query: dict[str, str], found: set[str]
) -> None:
    put_impact(store, start(api, "web-0"), "web-0", TaskState.UNKNOWN)
    if query.get("maintenance_id") == "at work":
        query = {**query, "maintenance_id": at_work.upper()}

    assert {each["task_id"].rpartition("/")[2] for each in tasks(api, **query)} == found


def test_unknown_task_is_settled_and_audited(api: httpx2.Client, stranded: str) -> None:
    settled = settle(api, stranded)

    assert settled.json() == {"tasks": [{"task_id": stranded, "state": "settled"}]}
    assert tasks(api) == []
    (line,) = api.get("audit", params={"action": "task settle"}).json()["audit"]
    assert (line["who"], line["subject"], line["detail"]) == ("alice", stranded, "done")


def test_task_that_is_done_by_hand_is_settled(api: httpx2.Client, store: Store) -> None:
    event_id = start(api, "web-0")
    put_by_hand(store, event_id, "web-0")

    assert settle(api, f"{event_id}/web-0").status_code == 200


def test_selection_settles_what_can_be_settled(
    api: httpx2.Client, store: Store, at_work: str
) -> None:
    running = start(api, "web-0")
    put_impact(store, running, "web-0", TaskState.BEGUN, host=HostName("kvm-0"))

    settled = settle(api, host="kvm-0", maintenance_id=at_work, owner="db-9")
    of_host = settle(api, host="kvm-0")

    assert settled.json() == {"tasks": [{"task_id": "o-1/work", "state": "settled"}]}
    assert of_host.json() == {"tasks": []}
    assert [each["task_id"] for each in tasks(api)] == [f"{running}/web-0"]


@pytest.mark.parametrize(
    ("state", "heard", "problem"),
    [
        (TaskState.RESERVED, timedelta(hours=-1), "it has not begun"),
        (TaskState.BEGUN, timedelta(hours=-1), "db-9 is carrying it out"),
        (TaskState.BEGUN, timedelta(), "db-9 is carrying it out"),
        (TaskState.UNKNOWN, timedelta(seconds=-9), "db-9 is carrying it out"),
    ],
)
def test_task_that_may_still_run_is_refused_with_all_others(
    api: httpx2.Client,
    store: Store,
    tables: Callable[[], Tables],
    state: TaskState,
    heard: timedelta,
    problem: str,
) -> None:
    by_hand, event_id = start(api, "solo"), start(api, "web-0")
    put_by_hand(store, by_hand, "solo")
    put_owner(store, heard_at=MORNING + heard)
    put_impact(store, event_id, "web-0", state)
    before = tables()

    refused = settle(api, f"{by_hand}/solo", f"{event_id}/web-0")

    assert (refused.status_code, refused.json()["type"]) == (
        409,
        "urn:forewarn:problem:not-settleable",
    )
    assert problem in refused.json()["detail"]
    assert tables() == before


def test_owner_that_cannot_know_is_not_waited_for(api: httpx2.Client, store: Store) -> None:
    """It is there, and has said itself that its records do not tell."""
    event_id = start(api, "web-0")
    put_owner(store, heard_at=MORNING)
    put_impact(store, event_id, "web-0", TaskState.UNKNOWN, details={"is_final": True})

    assert settle(api, f"{event_id}/web-0").status_code == 200


def test_task_that_is_over_or_never_was_is_unknown(api: httpx2.Client, stranded: str) -> None:
    settle(api, stranded)

    for task_id in (stranded, "none/web-0"):
        refused = settle(api, task_id)
        assert (refused.status_code, refused.json()["type"]) == (
            404,
            "urn:forewarn:problem:unknown-task",
        )


@pytest.mark.parametrize(
    "body",
    [
        {"outcome": "done"},
        {"outcome": "done", "task_ids": []},
        {"outcome": "begun", "host": "kvm-0"},
        {"host": "kvm-0"},
    ],
)
def test_request_without_an_end_or_a_selection_settles_nothing(
    api: httpx2.Client, stranded: str, body: dict[str, object]
) -> None:
    refused = api.post("tasks/settle", json=body)

    assert (refused.status_code, refused.json()["type"]) == (
        422,
        "urn:forewarn:problem:invalid-request",
    )
    assert [each["task_id"] for each in tasks(api)] == [stranded]


@pytest.fixture
def web(api: httpx2.Client, app: FastAPI) -> httpx2.Client:
    """An operator of web only, beside whom there is db-0 on kvm-0."""
    assert api.post("virtual-machines", json=DB_0).status_code == 201
    order = {"name": "web-team", "role": "operator", "scopes": ["web"]}
    secret = api.post("tokens", json=order).json()["secret"]
    return TestClient(
        app, base_url="http://control/api/v1/", headers={"Authorization": f"Bearer {secret}"}
    )


def test_tasks_of_other_scopes_are_not_there(
    api: httpx2.Client, web: httpx2.Client, store: Store, stranded: str
) -> None:
    other = start(api, "db-0")
    put_impact(store, other, "db-0", TaskState.UNKNOWN)

    listed = tasks(web)
    refused = settle(web, f"{other}/db-0")

    assert [each["task_id"] for each in listed] == [stranded]
    assert refused.status_code == 404
    assert settle(web, stranded).status_code == 200
    assert [each["task_id"] for each in tasks(api)] == [f"{other}/db-0"]


def test_work_on_a_shared_host_is_shown_without_its_reason_and_not_settled(
    web: httpx2.Client, store: Store
) -> None:
    put_work(store, "m-1", "kvm-0")

    (listed,) = tasks(web)
    refused = settle(web, "o-1/work")

    assert (listed["task_id"], listed["host"], listed["reason"]) == ("o-1/work", "kvm-0", "")
    assert (refused.status_code, refused.json()["vms"]) == (403, ["db-0"])
