"""ETag, If-Match and If-None-Match on everything that can be changed."""

from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from tests.http.conftest import Tables

REBOOT = {"event_type": "Reboot", "resources": ["solo"]}
MAINTENANCE = {"event_type": "Freeze", "scopes": ["web"]}


@pytest.fixture
def event(api: httpx2.Client) -> str:
    return str(api.post("events", json=REBOOT).json()["events"][0]["event_id"])


def tag(api: httpx2.Client, path: str) -> str:
    return api.get(path).headers["etag"]


@pytest.mark.parametrize(
    "path",
    ["fleet", "virtual-machines/solo", "hosts/kvm-0", "scopes/web", "events/{}", "maintenances/{}"],
)
def test_what_the_caller_has_is_not_sent_again(api: httpx2.Client, event: str, path: str) -> None:
    if path.startswith("maintenances"):
        event = api.post("maintenances", json=MAINTENANCE).json()["maintenance_id"]
    place = path.format(event)
    known = tag(api, place)

    assert known.startswith('"'), "it is strong"
    for condition in (known, f'"other", {known}', f"W/{known}", "*"):
        answer = api.get(place, headers={"If-None-Match": condition})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known)
    assert api.get(place, headers={"If-None-Match": '"other"'}).status_code == 200


def test_tag_changes_with_what_it_is_about(api: httpx2.Client, event: str) -> None:
    before = {path: tag(api, path) for path in ("fleet", f"events/{event}")}

    api.post(f"events/{event}/approve")
    api.post("virtual-machines", json={"name": "new"})

    assert all(tag(api, path) != known for path, known in before.items())


@pytest.mark.parametrize(
    ("change", "body", "about"),
    [
        ("POST events/{}/approve", None, "events/{}"),
        ("POST events/{}/start", None, "events/{}"),
        ("POST events/{}/cancel", {"reason": "no"}, "events/{}"),
        ("POST virtual-machines/web-0/restart", None, "virtual-machines/web-0"),
        ("DELETE virtual-machines/web-0", None, "virtual-machines/web-0"),
        ("PATCH virtual-machines/web-0", {"zone": "2"}, "virtual-machines/web-0"),
        ("PATCH hosts/kvm-0", {"labels": {"rack": "a"}}, "hosts/kvm-0"),
        ("PATCH scopes/web", {"approval": "all"}, "scopes/web"),
        ("POST hosts/kvm-0/close", {"reason": "no"}, "hosts/kvm-0"),
        ("POST hosts/kvm-0/open", None, "hosts/kvm-0"),
        ("POST fleet", {"fleet": {"virtual_machine": [{"name": "new"}]}}, "fleet"),
        ("POST fleet", {"fleet": {}, "dry_run": True}, "fleet"),
    ],
)
def test_change_of_something_else_than_was_read_is_refused_and_changes_nothing(
    api: httpx2.Client,
    tables: Callable[[], Tables],
    event: str,
    change: str,
    body: object,
    about: str,
) -> None:
    method, path = change.format(event).split()
    before, known = tables(), tag(api, about.format(event))

    for condition in ('"other"', f"W/{known}"):
        refused = api.request(method, path, json=body, headers={"If-Match": condition})
        assert refused.status_code == 412
        assert refused.json()["type"] == "urn:forewarn:problem:precondition-failed"
    assert tables() == before
    done = api.request(method, path, json=body, headers={"If-Match": f'"other", {known}'})
    assert done.is_success, done.text


def test_any_state_may_be_asked_for(api: httpx2.Client, event: str) -> None:
    anything = {"If-Match": "*"}

    assert api.post(f"events/{event}/approve", headers=anything).status_code == 200
    nothing = event.replace(event[0], "F")
    assert api.post(f"events/{nothing}/approve", headers=anything).status_code == 404


def test_of_two_who_have_read_the_same_only_one_changes_it(api: httpx2.Client, event: str) -> None:
    headers = {"If-Match": tag(api, f"events/{event}")}

    first = api.post(f"events/{event}/approve", headers=headers)
    second = api.post(f"events/{event}/cancel", headers=headers)

    assert (first.status_code, second.status_code) == (200, 412)
    assert api.get(f"events/{event}").json()["event_status"] == "Scheduled"


def test_description_tells_which_routes_take_conditions_and_have_tags(app: FastAPI) -> None:
    taking: dict[str, set[str]] = {"If-Match": set(), "If-None-Match": set(), "ETag": set()}
    for path, verbs in app.openapi()["paths"].items():
        for verb, operation in verbs.items():
            place = f"{verb.upper()} {path.removeprefix('/api/v1/')}"
            for parameter in operation.get("parameters", ()):
                taking.get(parameter["name"], set()).add(place)
            if "ETag" in operation["responses"].get("200", {}).get("headers", ()):
                assert "304" in operation["responses"]
                taking["ETag"].add(place)

    tagged = {
        "GET events/{event_id}",
        "GET fleet",
        "GET hosts/{name}",
        "GET maintenances/{maintenance_id}",
        "GET schedules/{name}",
        "GET scopes/{name}",
        "GET virtual-machines/{name}",
    }
    events = {
        f"POST events/{{event_id}}/{verb}"
        for verb in ("approve", "postpone", "start", "complete", "cancel")
    }
    steering = {
        f"POST maintenances/{{maintenance_id}}/{verb}"
        for verb in ("pause", "resume", "retry", "complete", "fail", "skip", "abort")
    }
    assert taking["If-None-Match"] == taking["ETag"] == tagged
    assert taking["If-Match"] == events | steering | {
        "POST fleet",
        "POST hosts/{name}/close",
        "POST hosts/{name}/open",
        "POST schedules/{name}/pause",
        "POST schedules/{name}/resume",
        "DELETE schedules/{name}",
        "PATCH schedules/{name}",
        "POST virtual-machines/{name}/restart",
        "POST virtual-machines/{name}/redeploy",
        "DELETE virtual-machines/{name}",
        "PATCH virtual-machines/{name}",
        "PATCH hosts/{name}",
        "DELETE hosts/{name}",
        "PATCH scopes/{name}",
        "PATCH maintenances/{maintenance_id}",
    }
