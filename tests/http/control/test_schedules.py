"""/schedules: Maintenances that begin by themselves."""

from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from icalendar import Calendar
from tests.http.conftest import HandClock

from forewarn.domain.decisions import decide
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.schedules import meet_occurrences
from forewarn.operations.snapshots import look
from forewarn.ports.store import Store, Transaction

PATCHES: dict[str, Any] = {
    "name": "patches",
    "every": "first Tue",
    "event_type": "Reboot",
    "hosts": ["kvm-0"],
    "at_once": 2,
    "windows": ["Tue 22:00-04:00 Europe/Berlin"],
    "blackouts": ["2026-03-03 Europe/Berlin Fair"],
}


def test_schedule_is_created_with_its_next_dates(api: httpx2.Client, wakeups: list[str]) -> None:
    created = api.post("schedules", json=PATCHES)

    assert created.status_code == 201
    made = created.json()
    assert (made["name"], made["status"], made["every"]) == ("patches", "active", "first Tue")
    assert (made["from_date"], made["until_date"]) == ("2026-01-05", None)
    assert made["zone"] == "Europe/Berlin"
    assert made["order"]["hosts"] == ["kvm-0"]
    assert made["order"]["windows"] == PATCHES["windows"]
    assert made["order"]["at_once"] == 2
    assert len(made["upcoming"]) == 10
    assert made["upcoming"][0] == made["next"]
    assert made["next"] == {
        "day": "2026-01-06",
        "opens_at": "2026-01-06T21:00:00Z",
        "closes_at": "2026-01-07T03:00:00Z",
        "blackout": None,
    }
    assert made["upcoming"][2]["blackout"] == "2026-03-03 Europe/Berlin Fair"
    assert made["last"] is None
    assert wakeups == ["changed"]


@pytest.mark.parametrize(
    ("change", "status", "kind", "said"),
    [
        ({"every": "fist Tue"}, 422, "recurrence", "'fist Tue' is not a valid recurrence"),
        ({"windows": []}, 422, "schedule", "A schedule needs a window"),
        ({"windows": ["Sat 22:00-04:00 UTC"]}, 422, "schedule", "never falls on a day"),
        ({"until_date": "2025-01-01"}, 422, "schedule", "ends on 2025-01-01, before it begins"),
        ({"from_date": "soon"}, 422, "schedule", "'soon' is not a valid date"),
        ({"name": "a b"}, 422, "invalid-name", "'a b'"),
        ({"name": "Taken"}, 409, "schedule-name-taken", "'TAKEN'"),
        ({"hosts": ["kvm-9"]}, 404, "unknown-host", "kvm-9"),
        ({"hosts": [], "host_labels": {"a": "b"}}, 404, "unknown-host-labels", "a=b"),
        ({"windows": ["Tue 22:00-22:05 UTC"]}, 422, "window-too-short", "Tue 22:00-22:05 UTC"),
    ],
)
def test_schedule_that_would_not_work_is_refused(
    api: httpx2.Client, change: dict[str, Any], status: int, kind: str, said: str
) -> None:
    api.post("schedules", json={**PATCHES, "name": "TAKEN"})

    refused = api.post("schedules", json={**PATCHES, **change})

    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert said in problem["detail"]
    assert len(api.get("schedules").json()["schedules"]) == 1


def test_schedule_is_shown_with_as_many_dates_as_asked_for(api: httpx2.Client) -> None:
    api.post("schedules", json={**PATCHES, "until_date": "2026-12-31"})

    shown = api.get("schedules/PATCHES?upcoming=24")

    assert len(shown.json()["upcoming"]) == 12
    assert api.get("schedules/patches?upcoming=0").status_code == 422
    unchanged = api.get(
        "schedules/patches?upcoming=24", headers={"If-None-Match": shown.headers["etag"]}
    )
    assert unchanged.status_code == 304
    assert api.get("schedules/nothing").json()["type"] == "urn:forewarn:problem:unknown-schedule"


def test_schedules_come_in_pages(api: httpx2.Client) -> None:
    for name in ("c", "a", "b"):
        api.post("schedules", json={**PATCHES, "name": name})

    first = api.get("schedules?limit=2")
    second = api.get(first.links["next"]["url"].removeprefix("/api/v1/"))

    names = [[each["name"] for each in page.json()["schedules"]] for page in (first, second)]
    assert names == [["c", "a"], ["b"]]
    assert "next" not in second.links


def test_schedule_is_paused_and_resumed_by_whoever_knows_its_state(api: httpx2.Client) -> None:
    api.post("schedules", json=PATCHES)
    seen = api.get("schedules/patches").headers["etag"]

    paused = api.post("schedules/patches/pause", headers={"If-Match": seen})
    late = api.post("schedules/patches/pause", headers={"If-Match": seen})
    resumed = api.post("schedules/Patches/resume")

    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    assert late.status_code == 412
    assert resumed.json()["status"] == "active"


def test_schedule_is_removed(api: httpx2.Client) -> None:
    api.post("schedules", json=PATCHES)

    removed = api.delete("schedules/patches")

    assert (removed.status_code, removed.json()["name"]) == (200, "patches")
    assert api.delete("schedules/patches").status_code == 404
    assert api.get("schedules").json() == {"schedules": []}


def test_what_became_of_a_date_is_shown_by_the_schedule_and_the_maintenance(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock
) -> None:
    api.post("schedules", json=PATCHES)
    api.post("clock/advance", json={"duration": "37h"})

    def meet(tx: Transaction) -> None:
        context = app.state.services.context("scheduler")
        seen = look(tx, context)
        meet_occurrences(tx, context, seen, decide(seen, context.now).occurrences)

    store.write(meet)

    shown = api.get("schedules/patches").json()
    (occurrence,) = shown["occurrences"]
    assert occurrence == shown["last"]
    assert (occurrence["outcome"], occurrence["reason"]) == ("started", "")
    assert shown["maintenance_id"] == occurrence["maintenance_id"]
    begun = api.get(f"maintenances/{occurrence['maintenance_id']}").json()
    assert (begun["schedule"], begun["hosts"]) == ("patches", ["kvm-0"])
    assert begun["description"].endswith("(schedule patches)")
    assert clock.now().isoformat() == "2026-01-06T21:00:00+00:00"


def test_token_that_is_limited_to_scopes_has_no_schedules(
    api: httpx2.Client, app: FastAPI, store: Store
) -> None:
    api.post("schedules", json=PATCHES)
    context = app.state.services.context("alice")
    wanted = TokenOrder(name="web", role=Role.OPERATOR, scopes=("web",))
    store.write(lambda tx: create_token(tx, context, wanted, "fw_web"))
    api.headers["Authorization"] = "Bearer fw_web"

    assert api.get("schedules").json() == {"schedules": []}
    assert api.get("schedules/patches").status_code == 404
    assert api.post("schedules/patches/pause").status_code == 404
    web = {**PATCHES, "name": "mine", "hosts": [], "scopes": ["web"]}
    assert api.post("schedules", json=web).status_code == 403


def test_schedule_says_that_it_waits_for_the_paused_server(api: httpx2.Client) -> None:
    api.post("schedules", json=PATCHES)
    api.post("server/pause", json={"reason": "storage"})
    before = api.get("schedules/patches").json()["waits_for"]
    api.post("clock/advance", json={"duration": "37h"})

    shown = api.get("schedules/patches").json()
    (listed,) = api.get("schedules").json()["schedules"]

    assert before == ""
    assert "The server has been paused by alice" in shown["waits_for"]
    assert listed["waits_for"] == shown["waits_for"]


def test_calendar_has_the_next_dates_of_each_schedule(api: httpx2.Client) -> None:
    api.post("schedules", json={**PATCHES, "description": "new kernels"})

    calendar = Calendar.from_ical(api.get("calendar.ics").text)
    of_scope = Calendar.from_ical(api.get("calendar.ics", params={"scope": "web"}).text)
    api.post("schedules/patches/pause")
    paused = Calendar.from_ical(api.get("calendar.ics").text)

    dates = calendar.walk("VEVENT")
    assert len(dates) == 10
    assert len({str(each["uid"]) for each in dates}) == 10
    assert str(dates[0]["summary"]) == "Schedule: Reboot maintenance of schedule patches"
    assert (str(dates[0]["description"]), str(dates[0]["status"])) == ("new kernels", "TENTATIVE")
    opened, closed = dates[0].decoded("dtstart"), dates[0].decoded("dtend")
    assert opened == datetime(2026, 1, 6, 21, tzinfo=UTC)
    assert closed == datetime(2026, 1, 7, 3, tzinfo=UTC)
    assert str(dates[2]["summary"]).startswith("Blackout: no Reboot maintenance")
    assert (str(dates[2]["status"]), "Fair" in str(dates[2]["description"])) == ("CANCELLED", True)
    assert not of_scope.walk("VEVENT")
    assert not paused.walk("VEVENT")


def test_fields_of_a_schedule_are_patched_and_the_others_stay(api: httpx2.Client) -> None:
    before = api.post("schedules", json={**PATCHES, "until_date": "2026-12-31"}).json()

    changed = api.patch("schedules/PATCHES", json={"every": "Tue", "at_once": 4})
    cleared = api.patch("schedules/patches", json={"until_date": None, "blackouts": None}).json()

    after = changed.json()
    assert changed.status_code == 200
    assert (after["every"], after["until_date"]) == ("Tue", "2026-12-31")
    assert after["order"] == {**before["order"], "at_once": 4}
    assert cleared["until_date"] is None
    assert cleared["order"] == {**after["order"], "blackouts": []}
    assert api.get("schedules/patches").json() == cleared


@pytest.mark.parametrize(
    "body", [{"every": "fist Tue"}, {"windows": []}, {"every": None}, {"hosts": ["kvm-1"]}]
)
def test_odd_patch_of_a_schedule_is_refused(api: httpx2.Client, body: object) -> None:
    before = api.post("schedules", json=PATCHES).json()

    assert api.patch("schedules/patches", json=body).status_code == 422
    assert api.get("schedules/patches").json() == before
