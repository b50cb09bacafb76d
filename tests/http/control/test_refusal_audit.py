"""Every change and every refusal of one leaves a line; a flood of refusals leaves a number."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs
from tests.http.conftest import MORNING, TOKEN, HandClock, Tables, Wall
from tests.http.control.conftest import hold
from tests.http.control.tasks import put_work
from tests.http.control.test_problems import full_disk

from forewarn.control import authentication
from forewarn.control.app import api_routes
from forewarn.desk.refusals import (
    CALLERS_PER_MINUTE,
    LINES_OF_ALL,
    LINES_PER_MINUTE,
    NOBODY,
    FloodGate,
    Refusals,
)
from forewarn.desk.services import Services
from forewarn.ports.entries import REFUSED
from forewarn.ports.store import Store

MINUTE = timedelta(minutes=1)
EVENT = "00000000-0000-4000-8000-0000000000FF"


def audit(api: httpx2.Client, **filters: object) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = api.get("audit", params=filters).json()["audit"]  # type: ignore[arg-type]
    return entries


def _change_places(api: httpx2.Client) -> None:
    api.patch("virtual-machines/new", json={"zone": "2"})
    api.patch("hosts/kvm-0", json={"labels": {"rack": "a"}})
    api.patch("scopes/solo", json={"approval": "all"})
    api.post("hosts/kvm-0/close")
    api.post("hosts/kvm-0/open")
    api.post("fleet", json={"fleet": {"host": [{"name": "kvm-9"}]}})
    api.delete("hosts/kvm-9")
    api.post("virtual-machines/new/restart")
    api.post("virtual-machines/solo/redeploy")


def _steer_schedule(api: httpx2.Client, order: dict[str, object]) -> None:
    tuesdays = {"name": "patches", "every": "Tue", "windows": ["Tue 22:00-04:00 UTC"]}
    api.post("schedules", json={**order, **tuesdays})
    api.patch("schedules/patches", json={"at_once": 2})
    for verb in ("pause", "resume"):
        api.post(f"schedules/patches/{verb}")
    api.delete("schedules/patches")


def _steer_maintenances(api: httpx2.Client, store: Store, freeze: Mapping[str, object]) -> None:
    maintenance = api.post("maintenances", json=freeze).json()["maintenance_id"]
    api.patch(f"maintenances/{maintenance}", json={"at_once": 2})
    hold(store, maintenance)
    api.post(f"maintenances/{maintenance}/retry", json={})
    second = api.post("maintenances", json=freeze).json()["maintenance_id"]
    hold(store, second)
    api.post(f"maintenances/{second}/skip", json={})
    by_host = api.post("maintenances", json={"event_type": "Freeze", "hosts": ["kvm-1"]}).json()
    for verb in ("complete", "fail"):
        put_work(store, by_host["maintenance_id"], "kvm-1")
        api.post(f"maintenances/{by_host['maintenance_id']}/{verb}", json={"host": "kvm-1"})
    for verb in ("pause", "resume", "abort"):
        api.post(f"maintenances/{maintenance}/{verb}")
        if verb != "abort":
            api.post(f"server/{verb}", json={} if verb == "pause" else None)


def test_every_change_is_written_under_the_name_of_its_route(
    api: httpx2.Client, clock: HandClock, store: Store
) -> None:
    def announce(**order: object) -> str:
        body = {"event_type": "Reboot", "resources": ["web-0"], **order}
        created: str = api.post("events", json=body).json()["events"][0]["event_id"]
        return created

    event = announce()
    api.post(f"events/{event}/postpone", json={"not_before": "1h"})
    api.post(f"events/{event}/approve")
    api.post(f"events/{event}/start")
    api.post(f"events/{event}/complete")
    api.post(f"events/{announce()}/cancel")
    api.post("virtual-machines", json={"name": "new"})
    _change_places(api)
    freeze: dict[str, object] = {"event_type": "Freeze", "scopes": ["web"]}
    _steer_maintenances(api, store, freeze)
    _steer_schedule(api, freeze)
    put_work(store, "none", "kvm-1")
    api.post("tasks/settle", json={"outcome": "done", "host": "kvm-1"})
    api.post("server/replicas/forget", json={"name": "db-9"})
    order = {"name": "spot-eviction", "virtual_machines": ["web-1"]}
    run = api.post("scenario-runs", json=order).json()["run_id"]
    api.post(f"scenario-runs/{run}/stop")
    api.put("virtual-machines/solo/faults/status", json={"status": 500})
    api.delete("virtual-machines/solo/faults/status")
    api.post("clock/advance", json={"duration": "1s"})
    api.post("tokens", json={"name": "ada", "role": "viewer"})
    api.delete("tokens/ada")
    api.post("sign-in-links")
    api.delete("virtual-machines/web-1")

    done = audit(api)
    assert {entry["action"] for entry in done} == {
        route.name
        for route in api_routes()
        # These need a target or a gate: test_notifications.py, test_gates.py.
        if route.methods != {"GET"} and not route.name.startswith(("notification ", "gate "))
        # The first changes nothing, and the second needs another replica: test_server.py.
    } - {"maintenance plan", "replica hand-over"}
    assert {entry["outcome"] for entry in done} == {"done"}
    assert {(entry["who"], entry["where"]) for entry in done} == {("alice", "testclient")}
    assert clock.now() > MORNING


@pytest.mark.parametrize(
    ("asked", "body", "status", "line"),
    [
        (f"POST events/{EVENT}/approve", None, 404, ("event approve", EVENT)),
        ("POST virtual-machines/nobody/restart", None, 404, ("vm restart", "nobody")),
        ("POST virtual-machines", {"name": "solo"}, 409, ("vm add", "-")),
        ("POST events", {}, 422, ("event create", "-")),
        ("POST fleet", {"fleet": {"x": 1}}, 422, ("fleet apply", "-")),
        ("PUT virtual-machines/solo/faults/status", None, 422, ("fault set", "solo")),
        ("POST nowhere", None, 404, ("-", "/api/v1/nowhere")),
        ("DELETE fleet", None, 405, ("-", "/api/v1/fleet")),
    ],
)
def test_refused_change_leaves_one_line_and_nothing_else(
    api: httpx2.Client,
    tables: Callable[[], Tables],
    asked: str,
    body: object,
    status: int,
    line: tuple[str, str],
) -> None:
    before, rows = audit(api), tables()

    answer = api.request(*asked.split(), json=body)

    assert answer.status_code == status
    (*same, last) = audit(api)
    assert same == before
    assert tables() == rows
    assert (last["action"], last["subject"]) == line
    assert (last["who"], last["where"], last["outcome"]) == ("alice", "testclient", "refused")
    assert last["detail"] == f"{answer.json()['title']}: {answer.json()['detail']}"
    assert last["at"] == last["maintenance_time"] == "2026-01-05T08:00:00Z"


def test_stranger_without_a_token_is_written_as_nobody(api: httpx2.Client) -> None:
    refused = api.post(
        "virtual-machines/solo/restart", headers={"Authorization": "Bearer open-says-me"}
    )

    assert refused.status_code == 401
    last = audit(api)[-1]
    assert (last["who"], last["action"], last["subject"]) == (NOBODY, "vm restart", "solo")
    assert "open-says-me" not in str(last)


def test_refused_reading_is_not_written(api: httpx2.Client) -> None:
    before = audit(api)

    api.get("virtual-machines/nobody")
    api.get("clock", headers={"Authorization": "Bearer wrong"})

    assert audit(api) == before


def test_what_strangers_say_cannot_move_a_cursor_or_grow_without_end(api: httpx2.Client) -> None:
    api.post(f"virtual-machines/%1b[2J{'x' * 5000}/restart")
    secret = "fw_" + "s" * 43
    api.delete(f"tokens/{secret}")

    odd, misplaced = audit(api)[-2:]
    assert odd["subject"].startswith("?[2Jxxx")
    assert len(odd["subject"]) == 128
    assert len(odd["detail"]) <= 512
    assert misplaced["subject"] == "fw_…"
    assert secret not in str(misplaced)


def refuse(api: httpx2.Client, secret: str, times: int = 1) -> None:
    """Have so many changes refused, all from the address that every caller here has."""
    headers = {"Authorization": f"Bearer {secret}"}
    for _ in range(times):
        assert api.post("virtual-machines/nobody/restart", headers=headers).status_code >= 400


def refused_lines(api: httpx2.Client) -> Counter[tuple[str, str, str]]:
    lines = audit(api, limit=1000)
    return Counter(
        (line["who"], line["actor"], line["where"]) for line in lines if line["outcome"] == REFUSED
    )


@pytest.mark.parametrize(
    ("is_known", "who", "where"), [(True, "alice", ""), (False, NOBODY, "testclient")]
)
def test_flood_of_refusals_leaves_so_many_lines_and_a_number(
    api: httpx2.Client, wall: Wall, *, is_known: bool, who: str, where: str
) -> None:
    secret = TOKEN if is_known else "fw_not-a-token"
    before = len(audit(api))

    refuse(api, secret, LINES_PER_MINUTE + 7)
    assert len(audit(api)) == before + LINES_PER_MINUTE
    wall.now += MINUTE

    last = audit(api)[-1]
    assert (last["who"], last["where"], last["outcome"]) == (who, where, "refused")
    assert last["detail"] == "7 more refusals within a minute, not listed individually."
    assert len(audit(api)) == before + LINES_PER_MINUTE + 1
    refuse(api, secret)
    assert audit(api)[-1]["subject"] == "nobody"


def test_flood_without_a_valid_token_hides_no_refusal_of_a_token_at_the_same_address(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "EXCESS_SECONDS", 0.0)
    revoked = api.post("tokens", json={"name": "ada", "role": "viewer"}).json()["secret"]
    api.delete("tokens/ada")
    ada = api.post("tokens", json={"name": "ada", "role": "viewer"}).json()["secret"]

    refuse(api, "fw_not-a-token", LINES_PER_MINUTE)
    refuse(api, revoked, LINES_PER_MINUTE)
    refuse(api, ada)
    refuse(api, TOKEN)

    assert refused_lines(api) == {
        (NOBODY, "unknown", "testclient"): LINES_PER_MINUTE,
        ("ada", "operator", "testclient"): 1,
        ("alice", "operator", "testclient"): 1,
    }


def test_flood_of_a_token_hides_no_refusal_of_others(api: httpx2.Client, wall: Wall) -> None:
    ada = api.post("tokens", json={"name": "ada", "role": "viewer"}).json()["secret"]

    refuse(api, ada, LINES_PER_MINUTE + 3)
    refuse(api, TOKEN)
    refuse(api, "fw_not-a-token")
    wall.now += MINUTE
    audit(api)

    assert refused_lines(api) == {
        ("ada", "operator", "testclient"): LINES_PER_MINUTE,
        ("ada", "operator", ""): 1,
        ("alice", "operator", "testclient"): 1,
        (NOBODY, "unknown", "testclient"): 1,
    }


def test_addresses_without_a_token_use_up_nothing_that_tokens_need(services: Services) -> None:
    refusals = Refusals(services)

    for number in range(LINES_OF_ALL + CALLERS_PER_MINUTE):
        refusals.note_and_wait(refusals.entry(f"10.0.{number % 250}.{number // 250}", ""))
    refusals.note_and_wait(refusals.entry("10.0.0.1", "", who="ada", is_valid=True))

    lines = services.store.read(lambda reading: reading.audit(limit=1000))
    written = [line.who for line in lines if line.outcome == REFUSED]
    assert written.count("ada") == 1
    assert len(written) <= LINES_OF_ALL + 1


def test_gate_tells_only_so_many_addresses_apart() -> None:
    gate = FloodGate()

    admitted = sum(
        gate.admit(f"10.0.{number // 250}.{number % 250}", MORNING) for number in range(5000)
    )

    assert admitted == CALLERS_PER_MINUTE + LINES_PER_MINUTE
    assert gate.settle(MORNING) == {}
    unwritten = gate.settle(MORNING + MINUTE)
    assert unwritten == {NOBODY: 5000 - CALLERS_PER_MINUTE - LINES_PER_MINUTE}
    assert gate.settle(MORNING + MINUTE) == {}


def test_what_was_only_counted_is_written_at_the_end() -> None:
    gate = FloodGate()
    for _ in range(LINES_PER_MINUTE + 1):
        gate.admit("10.0.0.1", MORNING)

    assert gate.settle() == {"10.0.0.1": 1}


def test_refusal_is_answered_also_when_it_cannot_be_written(
    api: httpx2.Client, tmp_path: Path
) -> None:
    with full_disk(tmp_path / "forewarn.db-wal"), capture_logs() as logs:
        answer = api.post("virtual-machines/nobody/restart")

    assert answer.status_code == 404
    assert "refusal_not_audited" in {line["event"] for line in logs}


@pytest.mark.parametrize(
    ("filters", "subjects"),
    [
        ({"who": "alice", "action": "vm remove"}, ["web-1", "solo"]),
        ({"since": "2026-01-05T09:00:00Z", "who": "alice"}, ["solo"]),
        ({"since": "2026-01-05T10:00:00%2B01:00", "who": "alice"}, ["solo"]),
        ({"who": "bob"}, []),
        ({"action": "vm remove", "limit": "1"}, ["solo"]),
    ],
)
def test_audit_is_filtered(
    api: httpx2.Client, wall: Wall, filters: dict[str, str], subjects: list[str]
) -> None:
    api.delete("virtual-machines/web-1")
    wall.now += timedelta(hours=1)
    api.delete("virtual-machines/solo")

    query = "&".join(f"{name}={value}" for name, value in filters.items())
    entries = api.get(f"audit?{query}").json()["audit"]

    assert [entry["subject"] for entry in entries] == subjects


def test_time_without_a_zone_is_refused(api: httpx2.Client) -> None:
    assert api.get("audit", params={"since": "2026-01-05T09:00:00"}).status_code == 422


def test_lines_of_all_addresses_together_are_bounded() -> None:
    gate = FloodGate()

    written = sum(gate.admit(f"10.0.{number}.1", MORNING) for number in range(100) for _ in "12345")

    assert written == LINES_OF_ALL
    assert sum(gate.settle().values()) == 500 - LINES_OF_ALL
