"""/maintenances and /clock."""

from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from forewarn.desk.services import AT_ONCE

FREEZE = {"event_type": "Freeze"}
HOLIDAYS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20260501
SUMMARY:Labour Day
END:VEVENT
END:VCALENDAR
"""


def test_maintenance_is_begun_reported_and_listed(api: httpx2.Client, wakeups: list[str]) -> None:
    begun = api.post("maintenances", json={**FREEZE, "scopes": ["web"], "duration_in_seconds": 9})

    report = begun.json()
    assert begun.status_code == 201
    assert report.pop("warnings") == []
    assert (report["status"], report["resources"]) == ("running", ["web-0", "web-1"])
    assert report["description"] == "Host server is undergoing maintenance."
    assert [step["shares"][0]["update_domain"] for step in report["remaining"]] == [0, 1]
    assert api.get(f"maintenances/{report['maintenance_id'].upper()}").json() == report
    (listed,) = api.get("maintenances").json()["maintenances"]
    assert listed == {key: report[key] for key in listed}
    assert listed["steps_remaining"] == 2
    assert wakeups == ["changed"]


def test_maintenance_that_is_begun_twice_warns_of_the_first(api: httpx2.Client) -> None:
    order = {**FREEZE, "hosts": ["kvm-0", "kvm-1"]}
    first = api.post("maintenances", json=order).json()

    planned = api.post("maintenances/plan", json=order).json()
    rehearsed = api.post("maintenances", json=order, params={"dry_run": True}).json()
    second = api.post("maintenances", json=order).json()

    name = first["maintenance_id"]
    said = f"2 hosts are also part of Maintenance {name}, which is still under way."
    assert (first["warnings"], rehearsed["warnings"], second["warnings"]) == ([], [said], [said])
    assert planned["warnings"][-1] == said


def test_maintenance_takes_hosts_or_virtual_machines(api: httpx2.Client) -> None:
    by_host = api.post("maintenances", json={**FREEZE, "hosts": ["KVM-0"]}).json()
    by_vm = api.post(
        "maintenances", json={**FREEZE, "virtual_machines": ["solo"], "description": "Disk"}
    ).json()

    assert (by_host["hosts"], by_host["resources"]) == (["kvm-0"], [])
    assert (by_vm["resources"], by_vm["description"]) == (["solo"], "Disk")


@pytest.mark.parametrize(
    ("order", "status", "kind"),
    [
        ({}, 422, "empty-selection"),
        ({"hosts": ["kvm-0"], "scopes": ["web"]}, 422, "plan"),
        ({"hosts": ["kvm-9"]}, 404, "unknown-host"),
        ({"scopes": ["nope"]}, 404, "unknown-selection"),
        ({"virtual_machines": ["nope"]}, 404, "unknown-virtual-machine"),
        ({"virtual_machines": "solo"}, 422, "invalid-request"),
        ({"event_type": "Nap"}, 422, "invalid-request"),
        ({"labels": {"tier": "none"}}, 404, "unknown-labels"),
        ({"host_labels": {"row": "none"}}, 404, "unknown-host-labels"),
        ({"labels": ["tier"]}, 422, "invalid-request"),
        ({"scopes": ["web"], "gates": ["smoke"]}, 404, "gate-not-found"),
        ({"scopes": ["web"], "canary": ["solo"]}, 422, "unknown-canary"),
        ({"scopes": ["web"], "at_once": 0}, 422, "invalid-request"),
        ({"scopes": ["web"], "soak_in_seconds": -1}, 422, "invalid-request"),
        ({"scopes": ["web"], "min_available": 101}, 422, "invalid-request"),
        ({"scopes": ["web"], "min_available": 75}, 422, "capacity"),
        ({"scopes": ["web"], "windows": ["sometimes"]}, 422, "window"),
        ({"scopes": ["web"], "windows": ["Sat 22:00-22:10 UTC"]}, 422, "window-too-short"),
        ({"scopes": ["web"], "blackouts": ["yesterday"]}, 422, "blackout"),
        ({"scopes": ["web"], "holidays": "nothing"}, 422, "holidays"),
        ({"scopes": ["web"], "holidays": HOLIDAYS, "holidays_zone": "Mars"}, 422, "unknown-zone"),
    ],
)
def test_maintenance_that_cannot_be_is_refused(
    api: httpx2.Client, order: dict[str, object], status: int, kind: str
) -> None:
    answer = api.post("maintenances", json={**FREEZE, **order})

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert api.get("maintenances").json() == {"maintenances": []}


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("maintenances", {}),
        ("maintenances/plan", {}),
        ("schedules", {"name": "spring", "every": "Tue", "windows": ["Tue 22:00-04:00 UTC"]}),
    ],
)
def test_holidays_are_read_a_few_at_a_time(
    app: FastAPI, api: httpx2.Client, path: str, more: dict[str, object]
) -> None:
    order = {**FREEZE, "scopes": ["web"], **more}
    with ExitStack() as stack:
        for _ in range(AT_ONCE):
            stack.enter_context(app.state.services.slow_verbs.place())

        refused = api.post(path, json={**order, "holidays": HOLIDAYS})
        taken = api.post(path, json=order)

    assert (refused.status_code, taken.is_success) == (429, True)


def test_maintenance_has_up_to_50_windows(api: httpx2.Client) -> None:
    windows = [f"daily 02:{minute:02}-06:00 UTC" for minute in range(51)]

    refused = api.post("maintenances", json={**FREEZE, "scopes": ["web"], "windows": windows})
    taken = api.post("maintenances", json={**FREEZE, "scopes": ["web"], "windows": windows[1:]})

    assert refused.status_code == 422
    assert "windows: it has more than 50 items" in refused.json()["detail"]
    assert taken.status_code == 201


def test_host_with_two_update_domains_is_refused_by_name(api: httpx2.Client) -> None:
    moved = {"name": "web-1", "availability_set": "web", "host": "kvm-0"}
    api.post("fleet", json={"fleet": {"virtual_machine": [moved]}})

    answer = api.post("maintenances", json={**FREEZE, "hosts": ["kvm-0"]})

    assert (answer.status_code, answer.json()["vms"]) == (422, ["web-0", "web-1"])


def test_maintenance_tells_its_course(api: httpx2.Client) -> None:
    course = {
        "canary": ["availability-set/web"],
        "at_once": 2,
        "soak_in_seconds": 1800,
        "min_available": 50,
        "gates": [],
        "gate_patience_in_seconds": 60,
        "windows": ["Sat,Sun 22:00-06:00 Europe/Berlin"],
        "hold_all": True,
    }
    order = {"canary": ["WEB"], "blackouts": ["2026-12-24 UTC Eve"], "holidays": HOLIDAYS}

    begun = api.post("maintenances", json={**FREEZE, "scopes": ["web"], **course, **order}).json()

    assert {key: begun[key] for key in course} == course
    assert begun["blackouts"] == ["2026-12-24 UTC Eve", "2026-05-01 UTC Labour Day"]
    assert (begun["status"], begun["started_at"]) == ("waiting", "2026-01-05T08:00:00Z")
    assert begun["remaining"][0]["brakes"] == [
        {
            "kind": "calendar",
            "release": "by time",
            "until": "2026-01-10T21:00:00Z",
            "scope_ids": [],
            "event_ids": [],
            "gate": "",
            "detail": "",
        }
    ]


def test_maintenance_is_paused_resumed_and_aborted(api: httpx2.Client, wakeups: list[str]) -> None:
    begun = api.post("maintenances", json={**FREEZE, "scopes": ["web"]}).json()
    path = f"maintenances/{begun['maintenance_id'].upper()}"

    statuses = []
    for verb in ("pause", "resume", "abort"):
        answer = api.post(f"{path}/{verb}")
        assert (answer.status_code, answer.json()) == (200, api.get(path).json())
        statuses.append(answer.json()["status"])
    too_late = api.post(f"{path}/pause")

    assert statuses == ["paused", "running", "aborting"]
    assert (too_late.status_code, too_late.json()["type"]) == (
        409,
        "urn:forewarn:problem:maintenance-over",
    )
    actions = [entry["action"] for entry in api.get("audit").json()["audit"]]
    assert actions[1:] == [
        "maintenance start",
        "maintenance pause",
        "maintenance resume",
        "maintenance abort",
        "maintenance pause",
    ]
    assert len(wakeups) == 4


@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
def test_maintenance_nobody_has_begun_is_not_steered(api: httpx2.Client, verb: str) -> None:
    assert api.post(f"maintenances/nope/{verb}").status_code == 404


def test_steering_is_refused_when_the_maintenance_has_changed(api: httpx2.Client) -> None:
    begun = api.post("maintenances", json={**FREEZE, "scopes": ["web"]}).json()
    path = f"maintenances/{begun['maintenance_id']}"
    tag = api.get(path).headers["etag"]
    api.post(f"{path}/pause")

    answer = api.post(f"{path}/resume", headers={"If-Match": tag})

    assert answer.status_code == 412
    assert api.get(path).json()["status"] == "paused"


def test_maintenance_nobody_has_begun_is_not_found(api: httpx2.Client) -> None:
    answer = api.get("maintenances/nope")

    assert (answer.status_code, answer.json()["maintenance_id"]) == (404, "nope")


def test_clock_is_shown_and_advanced(api: httpx2.Client) -> None:
    assert api.get("clock").json() == {
        "kind": "virtual",
        "now": "2026-01-05T08:00:00Z",
        "jumps": [],
    }

    assert api.post("clock/advance", json={"duration": "1h30m"}).json() == {
        "kind": "virtual",
        "now": "2026-01-05T09:30:00Z",
        "jumps": [],
    }


@pytest.mark.parametrize(
    ("duration", "kind"),
    [
        ("soon", "duration"),
        ("-5m", "duration"),
        ("", "duration"),
        ("4000d", "moment"),
        (15, "invalid-request"),
        (None, "invalid-request"),
    ],
)
def test_bad_duration_is_refused(api: httpx2.Client, duration: object, kind: str) -> None:
    answer = api.post("clock/advance", json={"duration": duration})

    assert (answer.status_code, answer.json()["type"]) == (422, f"urn:forewarn:problem:{kind}")


def test_real_clock_is_not_advanced(api: httpx2.Client, clock: Any) -> None:
    clock.kind = "real"

    answer = api.post("clock/advance", json={"duration": "1m"})

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:forewarn:problem:clock")


@pytest.mark.parametrize(("limit", "rows"), [(1, 1), (1000, 2)])
def test_audit_tells_what_was_done(api: httpx2.Client, limit: int, rows: int) -> None:
    api.delete("virtual-machines/solo")

    audit = api.get("audit", params={"limit": limit}).json()["audit"]

    assert len(audit) == rows
    assert audit[-1] == {
        "at": "2026-01-05T08:00:00Z",
        "maintenance_time": "2026-01-05T08:00:00Z",
        "who": "alice",
        "actor": "operator",
        "where": "testclient",
        "action": "vm remove",
        "subject": "solo",
        "outcome": "done",
        "detail": "",
    }
