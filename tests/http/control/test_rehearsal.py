"""?dry_run=true: what would come of it, and nothing of it is written."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from tests.http.conftest import Tables
from tests.http.control.conftest import hold
from tests.http.control.tasks import put_work

from forewarn.control.app import api_routes
from forewarn.control.routes import CAN_BE_DRY
from forewarn.ports.store import Store

FIRST = "00000000-0000-4000-8000-000000000004"
REBOOT = {"event_type": "Reboot", "resources": ["web-0", "web-1"]}
TUESDAYS = {
    "name": "patches",
    "every": "Tue",
    "event_type": "Freeze",
    "scopes": ["web"],
    "windows": ["Tue 22:00-04:00 UTC"],
}
DRY = {"dry_run": "true"}
CHANGES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "events", REBOOT),
    ("POST", "events/complete-all", None),
    ("POST", "events/{event}/approve", None),
    ("POST", "events/{event}/postpone", {"not_before": "30m"}),
    ("POST", "events/{event}/start", None),
    ("POST", "events/{started}/complete", {"outcome": "failed", "reason": "no boot"}),
    ("POST", "events/{event}/cancel", {"reason": "not today"}),
    ("POST", "maintenances", {"event_type": "Freeze", "scopes": ["web"]}),
    ("POST", "maintenances/{maintenance}/pause", None),
    ("POST", "maintenances/{maintenance}/resume", None),
    ("POST", "maintenances/{maintenance}/abort", None),
    ("POST", "maintenances/{held}/retry", {"places": ["solo"]}),
    ("POST", "maintenances/{held}/skip", {}),
    ("POST", "maintenances/{at_work}/complete", {"host": "kvm-1"}),
    ("POST", "maintenances/{at_work}/fail", {"host": "kvm-1"}),
    ("POST", "tasks/settle", {"outcome": "failed", "owner": "db-9"}),
    ("PATCH", "maintenances/{maintenance}", {"at_once": 2}),
    ("POST", "schedules", {**TUESDAYS, "name": "more"}),
    ("POST", "schedules/patches/pause", None),
    ("POST", "schedules/patches/resume", None),
    ("PATCH", "schedules/patches", {"every": "first Tue"}),
    ("DELETE", "schedules/patches", None),
    ("POST", "virtual-machines", {"name": "web-9", "availability_set": "web"}),
    ("DELETE", "virtual-machines/web-1", None),
    ("PATCH", "virtual-machines/web-1", {"zone": "2"}),
    ("PATCH", "hosts/kvm-0", {"labels": {"rack": "a"}}),
    ("PATCH", "scopes/web", {"approval": "all"}),
    ("POST", "virtual-machines/web-1/restart", None),
    ("POST", "virtual-machines/web-1/redeploy", None),
    ("POST", "hosts/kvm-0/close", {"reason": "new kernel"}),
    ("POST", "hosts/kvm-0/open", None),
    ("DELETE", "hosts/kvm-9", None),
]


@pytest.fixture
def ids(api: httpx2.Client, store: Store) -> dict[str, str]:
    """A Scheduled event, a Started one, three Maintenances, a schedule, and an empty host."""
    assert api.post("schedules", json=TUESDAYS).status_code == 201
    api.post("fleet", json={"fleet": {"host": [{"name": "kvm-9"}]}})
    orders = {"event": {}, "started": {"started": True}}
    events = {
        name: api.post("events", json={"event_type": "Reboot", "resources": [vm], **more}).json()[
            "events"
        ][0]["event_id"]
        for (name, more), vm in zip(orders.items(), ("web-0", "solo"), strict=True)
    }
    begun = api.post("maintenances", json={"event_type": "Freeze", "scopes": ["web"]}).json()
    held = api.post("maintenances", json={"event_type": "Freeze", "scopes": ["web"]}).json()
    hold(store, held["maintenance_id"])
    at_work = api.post("maintenances", json={"event_type": "Freeze", "hosts": ["kvm-1"]}).json()
    put_work(store, at_work["maintenance_id"], "kvm-1")
    return {
        **events,
        "at_work": at_work["maintenance_id"],
        "maintenance": begun["maintenance_id"],
        "held": held["maintenance_id"],
    }


@pytest.mark.parametrize(
    ("method", "path", "body"), CHANGES, ids=[f"{method} {path}" for method, path, _ in CHANGES]
)
def test_nothing_is_written_and_nobody_woken(
    api: httpx2.Client,
    tables: Callable[[], Tables],
    wakeups: list[str],
    ids: dict[str, str],
    method: str,
    path: str,
    body: object,
) -> None:
    before, woken, audited = tables(), len(wakeups), audit(api)

    dry = api.request(method, path.format(**ids), params=DRY, json=body)

    assert dry.status_code == 200
    assert (tables(), audit(api)) == (before, audited)
    assert len(wakeups) == woken


@pytest.mark.parametrize(
    ("method", "path", "body"), CHANGES, ids=[f"{method} {path}" for method, path, _ in CHANGES]
)
def test_answer_is_the_one_that_would_come(
    api: httpx2.Client, ids: dict[str, str], method: str, path: str, body: object
) -> None:
    dry = api.request(method, path.format(**ids), params=DRY, json=body)
    real = api.request(method, path.format(**ids), json=body)

    assert real.is_success
    assert without_new_ids(dry.json()) == without_new_ids(real.json())


def audit(api: httpx2.Client) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = api.get("audit").json()["audit"]
    return entries


def without_new_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_new_ids(each)
            for key, each in value.items()
            if key not in {"event_id", "maintenance_id", "vm_id"}
        }
    return [without_new_ids(each) for each in value] if isinstance(value, list) else value


def test_events_are_split_as_they_would_be(api: httpx2.Client) -> None:
    events = api.post("events", params=DRY, json=REBOOT).json()["events"]

    assert [(event["update_domain"], event["resources"]) for event in events] == [
        (0, ["web-0"]),
        (1, ["web-1"]),
    ]
    assert {event["not_before"] for event in events} == {"2026-01-05T08:15:00Z"}


def test_what_would_be_refused_is_refused_and_audited(
    api: httpx2.Client, tables: Callable[[], Tables]
) -> None:
    before, audited = tables(), audit(api)

    dry = api.post("events", params=DRY, json={**REBOOT, "resources": ["nobody"]})

    assert dry.status_code == 404
    assert tables() == before
    assert [each["outcome"] for each in audit(api)[len(audited) :]] == ["refused"]


def test_other_routes_do_not_pretend_to_be_dry(api: httpx2.Client) -> None:
    answer = api.post("clock/advance", params=DRY, json={"duration": "1m"})

    assert answer.status_code == 422


def test_every_route_that_can_be_dry_is_tried() -> None:
    routes = [(method, route) for route in api_routes() for method in route.methods or ()]
    marked = {
        (method, route.path) for method, route in routes if {*CAN_BE_DRY} <= {*route.dependencies}
    }
    tried = {
        (method, route.path)
        for method, route in routes
        for tried_method, path, _ in CHANGES
        if method == tried_method and route.path_regex.match(f"/{path}")
    }

    assert tried == marked
