"""/maintenances and /clock."""

from typing import Any

import httpx2
import pytest

FREEZE = {"event_type": "Freeze"}


def test_maintenance_is_begun_reported_and_listed(api: httpx2.Client, wakeups: list[str]) -> None:
    begun = api.post("maintenances", json={**FREEZE, "scopes": ["web"], "duration_in_seconds": 9})

    report = begun.json()
    assert begun.status_code == 201
    assert (report["status"], report["resources"]) == ("running", ["web-0", "web-1"])
    assert report["description"] == "Host server is undergoing maintenance."
    assert [step["shares"][0]["update_domain"] for step in report["remaining"]] == [0, 1]
    assert api.get(f"maintenances/{report['maintenance_id'].upper()}").json() == report
    (listed,) = api.get("maintenances").json()["maintenances"]
    assert listed == {key: report[key] for key in listed}
    assert listed["steps_remaining"] == 2
    assert wakeups == ["changed"]


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
    ],
)
def test_maintenance_that_cannot_be_is_refused(
    api: httpx2.Client, order: dict[str, object], status: int, kind: str
) -> None:
    answer = api.post("maintenances", json={**FREEZE, **order})

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert api.get("maintenances").json() == {"maintenances": []}


def test_host_with_two_update_domains_is_refused_by_name(api: httpx2.Client) -> None:
    moved = {"name": "web-1", "availability_set": "web", "host": "kvm-0"}
    api.post("fleet", json={"fleet": {"virtual_machine": [moved]}})

    answer = api.post("maintenances", json={**FREEZE, "hosts": ["kvm-0"]})

    assert (answer.status_code, answer.json()["vms"]) == (422, ["web-0", "web-1"])


def test_maintenance_nobody_has_begun_is_not_found(api: httpx2.Client) -> None:
    answer = api.get("maintenances/nope")

    assert (answer.status_code, answer.json()["maintenance_id"]) == (404, "nope")


def test_clock_is_shown_and_advanced(api: httpx2.Client) -> None:
    assert api.get("clock").json() == {"kind": "virtual", "now": "2026-01-05T08:00:00Z"}

    assert api.post("clock/advance", json={"duration": "1h30m"}).json() == {
        "kind": "virtual",
        "now": "2026-01-05T09:30:00Z",
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
        "where": "testclient",
        "action": "vm remove",
        "subject": "solo",
        "outcome": "done",
        "detail": "",
    }
