"""/hosts: what is on them, and whether they take more."""

from typing import Any

import httpx2
import pytest
from tests.executors.host_work import WORK
from tests.host_worker.own_host import put_operation, reserve
from tests.http.conftest import MORNING

from forewarn.domain.names import VmName
from forewarn.ports.store import Store

FLEET = {
    "scale_set": [{"name": "batch"}],
    "virtual_machine": [
        {"name": "batch-0", "scale_set": "batch", "placement_group": "pg1", "host": "kvm-0"},
        {"name": "web-2", "availability_set": "web", "update_domain": 0, "host": "kvm-0"},
    ],
    "host": [{"name": "spare", "labels": {"rack": "a"}}],
}
NEW = {"name": "new", "host": "kvm-0"}
SPARE: dict[str, Any] = {
    "name": "spare",
    "labels": {"rack": "a"},
    "virtual_machines": [],
    "closed_at": None,
    "closed_by": None,
    "closed_reason": None,
    "events_scheduled": 0,
    "events_started": 0,
    "maintenance_ids": [],
}


@pytest.fixture
def hosts(api: httpx2.Client) -> httpx2.Client:
    assert api.post("fleet", json={"fleet": FLEET}).status_code == 200
    return api


def show(api: httpx2.Client, name: str) -> dict[str, Any]:
    answer = api.get(f"hosts/{name}")
    assert answer.status_code == 200
    host: dict[str, Any] = answer.json()
    return host


def test_host_has_its_machines_by_scope_and_update_domain(hosts: httpx2.Client) -> None:
    host = show(hosts, "KVM-0")

    assert host["virtual_machines"] == ["web-0", "batch-0", "web-2"]
    assert host["shares"] == [
        {"scope_id": "availability-set/web", "update_domain": 0, "resources": ["web-0", "web-2"]},
        {"scope_id": "scale-set/batch/pg1", "update_domain": 0, "resources": ["batch-0"]},
    ]


def test_host_without_machines_is_listed_and_shown(hosts: httpx2.Client) -> None:
    listed = hosts.get("hosts").json()["hosts"]

    assert [host["name"] for host in listed] == ["kvm-0", "kvm-1", "spare"]
    assert listed[2] == SPARE
    assert show(hosts, "spare") == {**SPARE, "shares": [], "events": [], "tasks": []}


def test_host_shows_what_it_is_to_fetch(hosts: httpx2.Client, store: Store) -> None:
    put_operation(store, WORK)
    row = reserve(store)

    (task,) = show(hosts, "kvm-0")["tasks"]

    assert row.said.reason.startswith("the host has not fetched it yet")
    assert task == {
        "task": "work",
        "operation_id": WORK.operation_id,
        "status": "offered",
        "offered_at": row.reserved_at.isoformat().replace("+00:00", "Z"),
        "heard_at": None,
        "reason": row.said.reason,
    }


def test_host_has_the_events_of_its_machines_and_their_maintenances(hosts: httpx2.Client) -> None:
    order = {"event_type": "Reboot", "resources": ["web-0", "web-1", "batch-0"]}
    created = hosts.post("events", json=order).json()["events"]
    hosts.post(f"events/{created[0]['event_id']}/start")

    first, second, spare = hosts.get("hosts").json()["hosts"]

    counts = ("events_scheduled", "events_started")
    assert [[host[count] for count in counts] for host in (first, second, spare)] == [
        [1, 1],
        [1, 0],
        [0, 0],
    ]
    assert first["maintenance_ids"] == []
    on_it = show(hosts, "kvm-0")["events"]
    assert [event["resources"] for event in on_it] == [["web-0"], ["batch-0"]]


def test_closed_host_takes_no_machine_until_it_is_opened(hosts: httpx2.Client) -> None:
    closed = hosts.post("hosts/KVM-0/close", json={"reason": "new kernel"})
    refused = [
        hosts.post("virtual-machines", json=NEW),
        hosts.post("fleet", json={"fleet": {"virtual_machine": [NEW]}}),
        hosts.post("fleet", json={"fleet": {"virtual_machine": [NEW]}, "dry_run": True}),
    ]
    opened = hosts.post("hosts/kvm-0/open")

    assert closed.status_code == opened.status_code == 200
    since = "2026-01-05T08:00:00Z"
    assert closed.json()["closed_at"] == since
    assert (closed.json()["closed_by"], closed.json()["closed_reason"]) == ("alice", "new kernel")
    assert opened.json() == show(hosts, "kvm-0")
    assert opened.json()["closed_at"] is None
    for answer in refused:
        assert answer.status_code == 409
        problem = answer.json()
        assert problem["type"] == "urn:forewarn:problem:host-closed"
        assert (problem["host"], problem["vms"]) == ("kvm-0", ["new"])
        assert problem["since"] == "2026-01-05T08:00:00+00:00"
    assert hosts.post("virtual-machines", json=NEW).status_code == 201


def test_fact_is_placed_on_a_closed_host(hosts: httpx2.Client) -> None:
    hosts.post("hosts/kvm-0/close")
    other = {"fleet": {"virtual_machine": [{**NEW, "name": "other"}]}, "as_is": True}

    one = hosts.post("virtual-machines", params={"as_is": True}, json=NEW)
    several = hosts.post("fleet", json=other)

    assert (one.status_code, several.json()["added"]) == (201, ["other"])


def test_closing_twice_with_a_key_is_done_once(hosts: httpx2.Client) -> None:
    key = {"Idempotency-Key": "close-kvm-0"}

    first = hosts.post("hosts/kvm-0/close", json={"reason": "x"}, headers=key)
    hosts.post("hosts/kvm-0/open")
    again = hosts.post("hosts/kvm-0/close", json={"reason": "x"}, headers=key)

    assert first.json() == again.json()
    assert show(hosts, "kvm-0")["closed_at"] is None


@pytest.mark.parametrize("verb", ["close", "open"])
def test_unknown_host_is_not_found(hosts: httpx2.Client, verb: str) -> None:
    assert hosts.get("hosts/no").status_code == 404
    assert hosts.post(f"hosts/no/{verb}").status_code == 404


def test_machine_is_patched_with_a_merge_patch(hosts: httpx2.Client) -> None:
    before = hosts.get("virtual-machines/web-0").json()
    headers = {"Content-Type": "application/merge-patch+json", "Idempotency-Key": "move"}

    changed = hosts.patch(
        "virtual-machines/web-0",
        content=b'{"host": "spare", "labels": {"a": "b"}}',
        headers=headers,
    )

    after = hosts.get("virtual-machines/web-0").json()
    assert changed.status_code == 200
    assert after == {**before, "host": "spare", "labels": {"a": "b"}}


def test_patched_machine_has_its_last_poll(hosts: httpx2.Client, store: Store) -> None:
    store.write(lambda tx: tx.put_polls({VmName("web-0"): MORNING}))

    changed = hosts.patch("virtual-machines/web-0", json={"zone": "2"})

    assert changed.json()["last_polled_at"] == "2026-01-05T08:00:00Z"


def test_machine_in_an_event_is_not_moved_by_a_patch(hosts: httpx2.Client) -> None:
    event = hosts.post("virtual-machines/web-0/restart").json()["event_id"]

    refused = hosts.patch("virtual-machines/web-0", json={"host": "spare"})

    assert (refused.status_code, refused.json()["event_ids"]) == (409, [event])
    assert hosts.patch("virtual-machines/web-0", json={"zone": "2"}).status_code == 200


def test_machine_is_patched_onto_a_closed_host_only_as_a_fact(hosts: httpx2.Client) -> None:
    hosts.post("hosts/spare/close")
    order = {"host": "spare"}

    refused = hosts.patch("virtual-machines/web-0", json=order)
    stated = hosts.patch("virtual-machines/web-0", params={"as_is": True}, json=order)

    assert (refused.status_code, stated.status_code) == (409, 200)


@pytest.mark.parametrize("body", [{"name": "other"}, {"labels": {"a": 1}}, {"color": "red"}])
def test_odd_patch_is_refused(hosts: httpx2.Client, body: object) -> None:
    assert hosts.patch("virtual-machines/web-0", json=body).status_code == 422
