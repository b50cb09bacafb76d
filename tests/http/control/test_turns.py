"""What an operator says of a host: /maintenances/{id}/complete and /fail, /events/{id}/complete."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import HandClock
from tests.http.control.tasks import NODE

from forewarn.desk.services import Services
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import TaskState
from forewarn.executors.simulated import Manual, Simulated
from forewarn.operations.context import Context, Rules
from forewarn.ports.runner import Assigner
from forewarn.ports.store import Store, Transaction
from forewarn.scheduler.tick import decide_and_record

WORK = Rules(host_works=(HostWorkRule(),), node=NODE)
RESERVED = Impact(status=ImpactStatus.NOT_BEGUN)


@pytest.fixture
def with_work(app: FastAPI) -> None:
    """Have every host have work of its own."""
    services: Services = app.state.services

    def context(who: str) -> Context:
        return replace(services.context(who), rules=WORK)

    app.state.services = replace(services, context=context)


def tick(store: Store, app: FastAPI, assigner: Assigner) -> None:
    """Record what is due."""
    context = app.state.services.context("scheduler")
    epoch = store.write(lambda tx: tx.next_epoch())
    for _ in range(3):
        store.write(lambda tx: decide_and_record(tx, context, {}, assigner, epoch=epoch))


def begin(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock, assigner: Assigner
) -> str:
    """Start a Maintenance of kvm-0, and have the impact on web-0 reserved or begun."""
    order = {"event_type": "Reboot", "hosts": ["kvm-0", "kvm-1"], "at_once": 1}
    maintenance_id: str = api.post("maintenances", json=order).json()["maintenance_id"]
    tick(store, app, assigner)
    clock.advance(timedelta(minutes=15))
    tick(store, app, assigner)
    return maintenance_id


def give_to_a_script(store: Store, state: TaskState) -> None:
    """Have what is not over be with a script of db-9."""

    def give(tx: Transaction) -> None:
        for task in tx.tasks():
            tx.put_task(replace(task, runner="command", state=state, said=SAID[state]))

    store.write(give)


SAID = {
    TaskState.RESERVED: RESERVED,
    TaskState.BEGUN: Impact(status=ImpactStatus.RUNNING),
    TaskState.UNKNOWN: Impact(status=ImpactStatus.UNKNOWN, reason="no record"),
}


def events(api: httpx2.Client) -> list[tuple[list[str], str, str | None]]:
    listed: list[dict[str, Any]] = api.get("events").json()["events"]
    return [(each["resources"], each["event_status"], each["outcome"]) for each in listed]


@pytest.mark.parametrize(
    ("verb", "outcome"), [("complete", "succeeded"), ("fail", "failed")], ids=["complete", "fail"]
)
def test_turn_of_a_host_ends_with_nothing_running(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock, verb: str, outcome: str
) -> None:
    maintenance_id = begin(api, app, store, clock, Manual())

    answer = api.post(f"maintenances/{maintenance_id.upper()}/{verb}", json={"host": "KVM-0"})
    tick(store, app, Manual())

    assert answer.status_code == 200, answer.text
    (operation,) = answer.json()["operations"]
    assert (operation["host"], operation["outcome"]) == ("kvm-0", outcome)
    ended = api.get("events/history").json()["events"]
    assert [(each["resources"], each["outcome"]) for each in ended] == [(["web-0"], outcome)]
    (line,) = api.get("audit", params={"action": f"maintenance {verb}"}).json()["audit"]
    assert (line["subject"], line["detail"], line["outcome"]) == (maintenance_id, "kvm-0", "done")


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_running_task_keeps_its_event_started_until_it_ends(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock, verb: str
) -> None:
    maintenance_id = begin(api, app, store, clock, Simulated())

    api.post(f"maintenances/{maintenance_id}/{verb}", json={"host": "kvm-0"})
    tick(store, app, Simulated())
    (task,) = api.get("tasks", params={"maintenance_id": maintenance_id}).json()["tasks"]
    while_running = events(api)
    clock.advance(timedelta(hours=1))
    tick(store, app, Simulated())

    assert (task["vm"], task["state"], task["can_settle"]) == ("web-0", "begun", False)
    assert while_running == [(["web-0"], "Started", None)]
    ended = api.get("events/history").json()["events"]
    assert ended[0]["outcome"] == {"complete": "succeeded", "fail": "failed"}[verb]


def test_host_without_a_turn_is_refused(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock
) -> None:
    maintenance_id = begin(api, app, store, clock, Manual())

    waiting = api.post(f"maintenances/{maintenance_id}/complete", json={"host": "kvm-1"})
    unknown = api.post(f"maintenances/{maintenance_id}/complete", json={"host": "kvm-9"})
    nowhere = api.post("maintenances/none/fail", json={"host": "kvm-0"})

    assert (waiting.status_code, waiting.json()["type"]) == (409, "urn:forewarn:problem:no-turn")
    assert "The turn of host 'kvm-1'" in waiting.json()["detail"]
    assert waiting.json()["maintenance_id"] == maintenance_id
    assert (unknown.status_code, unknown.json()["type"]) == (
        404,
        "urn:forewarn:problem:unknown-place",
    )
    assert nowhere.status_code == 404
    assert events(api) == [(["web-0"], "Started", None)]


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_turn_of_a_host_with_machines_of_others_is_not_ended(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock, verb: str
) -> None:
    api.post("virtual-machines", json={"name": "db-0", "host": "kvm-0"})
    maintenance_id = begin(api, app, store, clock, Manual())
    order = {"name": "web-team", "role": "operator", "scopes": ["web"]}
    secret = api.post("tokens", json=order).json()["secret"]
    headers = {"Authorization": f"Bearer {secret}"}
    web = TestClient(app, base_url="http://control/api/v1/", headers=headers)

    refused = web.post(f"maintenances/{maintenance_id}/{verb}", json={"host": "kvm-0"})

    assert (refused.status_code, refused.json()["vms"]) == (403, ["db-0"])


def test_retry_is_refused_while_a_task_of_the_host_is_not_over(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock
) -> None:
    maintenance_id = begin(api, app, store, clock, Simulated())
    api.post(f"maintenances/{maintenance_id}/fail", json={"host": "kvm-0"})

    refused = api.post(f"maintenances/{maintenance_id}/retry", json={"places": ["kvm-0"]})

    assert (refused.status_code, refused.json()["type"]) == (
        409,
        "urn:forewarn:problem:task-not-over",
    )
    (task,) = api.get("tasks").json()["tasks"]
    assert task["task_id"] in refused.json()["detail"]


@pytest.mark.usefixtures("with_work")
@pytest.mark.parametrize("state", list(SAID))
def test_event_stays_started_while_work_on_its_host_is_to_come(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock, state: TaskState
) -> None:
    begin(api, app, store, clock, Manual())
    give_to_a_script(store, state)
    (event,) = api.get("events").json()["events"]

    answer = api.post(f"events/{event['event_id']}/complete").json()

    assert (answer["event_status"], answer["outcome"]) == ("Started", None)
    assert (answer["impact"], answer["host"]) == ("done by hand", "kvm-0")
    assert events(api) == [(["web-0"], "Started", None)]
    (line,) = api.get("audit", params={"action": "event complete"}).json()["audit"]
    assert line["detail"] == "impact done by hand"
    ledger = api.get(f"events/{event['event_id']}").json()["ledger"]
    assert "completed" not in [entry["what"] for entry in ledger]


@pytest.mark.usefixtures("with_work")
def test_event_of_all_that_stays_started_is_answered_as_such(
    api: httpx2.Client, app: FastAPI, store: Store, clock: HandClock
) -> None:
    begin(api, app, store, clock, Manual())
    solo = {"event_type": "Reboot", "resources": ["solo"], "started": True}
    api.post("events", json=solo)

    answer = api.post("events/complete-all").json()["events"]

    assert [(each["resources"], each["event_status"]) for each in answer] == [
        (["web-0"], "Started"),
        (["solo"], "Completed"),
    ]


def test_event_without_work_to_come_ends(api: httpx2.Client) -> None:
    order = {"event_type": "Reboot", "resources": ["solo"], "started": True}
    (event,) = api.post("events", json=order).json()["events"]

    answer = api.post(f"events/{event['event_id']}/complete").json()

    assert (answer["event_status"], answer["impact"]) == ("Completed", None)
