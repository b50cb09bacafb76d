"""Idempotency-Key: a request that comes again is done once."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from tests.http.conftest import Tables, Wall

from forewarn.control.app import api_routes
from forewarn.control.routes import IDEMPOTENCY_KEY
from forewarn.ports.changes import StoreChange
from forewarn.ports.store import Store
from forewarn.storage.sqlite import open_sqlite

REBOOT = {"event_type": "Reboot", "resources": ["solo"]}
KEY = {IDEMPOTENCY_KEY: "5f0c-1"}
CREATING = {
    "events": REBOOT,
    "maintenances": {"event_type": "Freeze", "scopes": ["web"]},
    "schedules": {
        "name": "patches",
        "every": "Tue",
        "event_type": "Freeze",
        "scopes": ["web"],
        "windows": ["Tue 22:00-04:00 UTC"],
    },
    "scenario-runs": {"name": "spot-eviction", "virtual_machines": ["solo"]},
    "virtual-machines": {"name": "new"},
    "virtual-machines/solo/restart": None,
    "virtual-machines/solo/redeploy": None,
}
NOT_TAKEN = {
    "tokens",
    "sign-in-links",
    "fleet",
    "clock/advance",
    "notification-targets/{name}/test",
    "gates/{name}/test",
    "maintenances/plan",
    "server/pause",
    "server/resume",
    "server/replicas/hand-over",
    "server/replicas/forget",
}
"""A secret is not kept, a fleet may be declared again, so may a pause, a plan changes nothing, the
others do more than they write."""


@pytest.mark.parametrize("path", CREATING)
def test_same_request_is_done_once_and_answered_the_same(
    api: httpx2.Client, tables: Callable[[], Tables], path: str
) -> None:
    first = api.post(path, json=CREATING[path], headers=KEY)
    after_one = tables()

    again = api.post(path, json=CREATING[path], headers=KEY)

    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert (again.content, again.headers) == (first.content, first.headers)
    assert tables() == after_one


def test_change_of_an_event_is_answered_again_although_it_has_moved_on(api: httpx2.Client) -> None:
    created = api.post("events", json=REBOOT).json()["events"][0]["event_id"]
    headers = {**KEY, "If-Match": api.get(f"events/{created}").headers["etag"]}
    first = api.post(f"events/{created}/start", headers=headers)
    api.post(f"events/{created}/complete")

    again = api.post(f"events/{created}/start", headers=headers)

    assert (again.status_code, again.json()) == (200, first.json())
    assert again.json()["event_status"] == "Started"
    assert api.get(f"events/{created}").json()["event_status"] == "Completed"


def test_key_of_another_request_is_refused_and_changes_nothing(
    api: httpx2.Client, tables: Callable[[], Tables]
) -> None:
    api.post("events", json=REBOOT, headers=KEY)
    before = tables()

    for path, body in (("events", {**REBOOT, "event_type": "Freeze"}), ("maintenances", REBOOT)):
        refused = api.post(path, json=body, headers=KEY)
        assert refused.status_code == 422

    refused = api.post("virtual-machines/solo/restart", headers=KEY)
    assert refused.json()["type"] == "urn:forewarn:problem:idempotency-key-reused"
    assert "Use a new key" in refused.json()["detail"]
    assert tables() == before


def test_key_is_the_callers_own(api: httpx2.Client) -> None:
    made = api.post("tokens", json={"name": "bob", "role": "operator"}).json()
    bob = {**KEY, "Authorization": f"Bearer {made['secret']}"}

    mine = api.post("events", json=REBOOT, headers=KEY).json()
    theirs = api.post("events", json=REBOOT, headers=bob).json()

    assert mine != theirs
    assert api.post("events", json=REBOOT, headers=bob).json() == theirs


def test_token_of_the_same_name_with_other_rights_is_told_nothing(api: httpx2.Client) -> None:
    for scopes, expected in (([], 201), (["web"], 422)):
        order = {"name": "bob", "role": "operator", "scopes": scopes}
        secret = api.post("tokens", json=order).json()["secret"]
        answer = api.post(
            "events", json=REBOOT, headers={**KEY, "Authorization": f"Bearer {secret}"}
        )
        assert answer.status_code == expected
        api.delete("tokens/bob")


def test_refused_request_may_be_put_right_under_the_same_key(api: httpx2.Client) -> None:
    wrong = {**REBOOT, "resources": ["new"]}
    assert api.post("events", json=wrong, headers=KEY).status_code == 404
    api.post("virtual-machines", json={"name": "new"})

    assert api.post("events", json=wrong, headers=KEY).status_code == 201


def test_key_is_kept_for_a_day(api: httpx2.Client, wall: Wall) -> None:
    first = api.post("events", json=REBOOT, headers=KEY).json()

    wall.now += timedelta(hours=24)
    assert api.post("events", json=REBOOT, headers=KEY).json() == first
    wall.now += timedelta(seconds=1)
    second = api.post("events", json=REBOOT, headers=KEY).json()
    assert second != first
    assert api.post("events", json=REBOOT, headers=KEY).json() == second


def test_of_many_at_once_one_is_done(api: httpx2.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(api.post, "events", json=REBOOT, headers=KEY) for _ in range(24)]
        answers = {each.result(60).content for each in asked}

    assert len(answers) == 1
    assert len(api.get("events").json()["events"]) == 1


def test_answer_that_was_lost_in_a_crash_is_given_afterwards(
    api: httpx2.Client, app: FastAPI, store: Store, tmp_path: Path
) -> None:
    """What the files hold right after the commit is what a kill leaves before the answer."""
    left = tmp_path / "left"

    def crash(change: StoreChange) -> None:
        del change
        left.mkdir()
        for file in tmp_path.glob("forewarn.db*"):
            shutil.copy(file, left)

    store.listen(crash)
    lost = api.post("events", json=REBOOT, headers=KEY)

    recovered = open_sqlite(left / "forewarn.db")
    app.state.services = replace(app.state.services, store=recovered)
    again = api.post("events", json=REBOOT, headers=KEY)
    events = api.get("events").json()["events"]
    recovered.close()

    assert again.content == lost.content
    assert [event["event_id"] for event in events] == [lost.json()["events"][0]["event_id"]]


@pytest.mark.parametrize("key", ["", "two words", "é", "k" * 256])
def test_key_that_is_no_key_is_refused(api: httpx2.Client, key: str) -> None:
    refused = api.post("events", json=REBOOT, headers={b"Idempotency-Key": key.encode()})

    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:forewarn:problem:invalid-request"


def test_key_is_refused_where_the_request_would_be_done_again(
    api: httpx2.Client, tables: Callable[[], Tables]
) -> None:
    before = tables()

    for path in NOT_TAKEN:
        refused = api.post(path.format(name="ops"), json={}, headers=KEY)
        assert refused.status_code == 422, path
        assert refused.json()["type"] == "urn:forewarn:problem:idempotency-key-not-taken"
    assert tables() == before


def test_every_other_post_takes_a_key_and_says_so(app: FastAPI) -> None:
    posts = {route.path for route in api_routes() if "POST" in (route.methods or ())}
    paths = app.openapi()["paths"]

    taking = {
        path
        for path in posts
        if any(
            parameter["name"] == IDEMPOTENCY_KEY
            for parameter in paths[f"/api/v1{path}"]["post"].get("parameters", ())
        )
    }

    assert taking == posts - {f"/{path}" for path in NOT_TAKEN}
