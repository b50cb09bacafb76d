"""Who listens: when each virtual machine last polled, and whom a Maintenance would not reach."""

from datetime import timedelta
from typing import Any

import httpx2
from tests.http.conftest import MORNING, HandClock

from forewarn.domain.names import VmName
from forewarn.ports.store import Store

DAY = timedelta(hours=24)


def poll(store: Store, **names: timedelta) -> None:
    """Have virtual machines poll so long after the morning; their names have no underscores."""
    polls = {VmName(name.replace("_", "-")): MORNING + when for name, when in names.items()}
    store.write(lambda tx: tx.put_polls(polls))


def plan(api: httpx2.Client, **order: object) -> Any:
    answer = api.post("maintenances/plan", json={"event_type": "Reboot", **order})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_machines_are_listed_with_their_last_poll(api: httpx2.Client, store: Store) -> None:
    poll(store, WEB_0=timedelta(minutes=1))

    listed = api.get("virtual-machines").json()["virtual_machines"]

    assert {vm["name"]: vm["last_polled_at"] for vm in listed} == {
        "web-0": "2026-01-05T08:01:00Z",
        "web-1": None,
        "solo": None,
    }


def test_poll_is_shown_and_leaves_the_tag_alone(api: httpx2.Client, store: Store) -> None:
    before = api.get("virtual-machines/solo")
    poll(store, solo=timedelta(0))
    after = api.get("virtual-machines/SOLO")

    assert (before.json()["last_polled_at"], after.json()["last_polled_at"]) == (
        None,
        "2026-01-05T08:00:00Z",
    )
    assert after.headers["etag"] == before.headers["etag"]
    tag = {"If-Match": before.headers["etag"]}
    assert api.delete("virtual-machines/solo", headers=tag).status_code == 200


def test_plan_counts_and_names_those_nobody_polls_for(
    api: httpx2.Client, store: Store, clock: HandClock
) -> None:
    poll(store, web_0=timedelta(0), solo=timedelta(seconds=1))
    clock.advance(DAY)

    made = plan(api, scopes=["web", "solo"])

    assert made["unpolled"] == {"count": 2, "names": ["web-0", "web-1"]}
    assert "No polls in 24 hours from 2 of 3 virtual machines: web-0, web-1." in made["summary"]


def test_plan_names_ten_at_most(api: httpx2.Client) -> None:
    vms = [{"name": f"vm-{number}"} for number in range(12)]
    api.post("fleet", json={"fleet": {"virtual_machine": vms}})

    unpolled = plan(api, virtual_machines=[vm["name"] for vm in vms])["unpolled"]

    assert (unpolled["count"], len(unpolled["names"])) == (12, 10)


def test_plan_says_nothing_where_everybody_polls(api: httpx2.Client, store: Store) -> None:
    poll(store, solo=timedelta(0))

    made = plan(api, scopes=["solo"])

    assert made["unpolled"] == {"count": 0, "names": []}
    assert not any("polled" in sentence for sentence in made["summary"])
