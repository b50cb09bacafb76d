"""/server: pausing and resuming over the control API, and its replicas."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import httpx2
import pytest
from fastapi import FastAPI
from tests.http import conftest
from tests.http.conftest import Tables, Wall
from tests.http.control.tasks import put_impact, put_owner
from tests.replicas import ITSELF

import forewarn
from forewarn.domain.task import TaskState
from forewarn.operations.incidents import Incident, note_incident
from forewarn.ports.replicas import KnownReplica, ReplicaIdentity, RollCall
from forewarn.ports.store import Store

MORNING = "2026-01-05T08:00:00Z"
OTHER = ReplicaIdentity(
    replica_id="two", name="db-8", address="http://db-8:8170", version="1.2", settings={}
)


def test_server_is_paused_and_resumed(api: httpx2.Client) -> None:
    before = api.get("server").json()
    paused = api.post("server/pause", json={"reason": "storage"}).json()
    shown = api.get("server").json()
    resumed = api.post("server/resume").json()

    assert paused.items() <= shown.items()
    assert resumed.items() <= before.items()
    assert resumed == {
        "version": forewarn.__version__,
        "is_paused": False,
        "paused_since": None,
        "paused_by": "",
        "pause_reason": "",
    }
    assert {**paused, "paused_by": ""} == {
        **resumed,
        "is_paused": True,
        "paused_since": MORNING,
        "pause_reason": "storage",
    }
    assert paused["paused_by"]


def test_server_shows_its_database_and_its_replicas(api: httpx2.Client, store: Store) -> None:
    before = api.get("server").json()
    store.write(lambda tx: tx.next_epoch())
    after = api.get("server").json()

    assert before["database"] == "forewarn.db"
    assert before["database_time"] == MORNING
    assert before["replicas"] == [
        {
            "name": "kvm-1",
            "node": "one",
            "address": "http://127.0.0.1:8170",
            "version": "1.2",
            "settings": {"notice": "always"},
            "started_at": MORNING,
            "seen_at": MORNING,
            "changes_behind": 0,
            "lag_in_milliseconds": 0,
            "is_present": True,
            "is_leader": False,
            "is_answering": True,
        }
    ]
    assert (before["lease_epoch"], after["lease_epoch"]) == (0, 1)
    assert after["replicas"][0]["is_leader"]


def test_server_shows_what_is_wrong(api: httpx2.Client, store: Store) -> None:
    incident = Incident(at=conftest.MORNING, sentence="It burned.", hint="put it out")
    store.write(lambda tx: note_incident(tx, incident))

    lease, burned = (
        each for each in api.get("server").json()["findings"] if each["verdict"] != "ok"
    )

    assert lease["check"] == "scheduler lease"
    assert burned == {
        "check": "tasks",
        "verdict": "fail",
        "sentence": "2026-01-05 08:00:00 GMT: It burned.",
        "hint": "put it out",
    }


def test_server_tells_the_role_of_the_token(api: httpx2.Client) -> None:
    secret = api.post("tokens", json={"name": "grafana", "role": "viewer"}).json()["secret"]

    shown = api.get("server", headers={"Authorization": f"Bearer {secret}"}).json()

    assert (api.get("server").json()["role"], shown["role"]) == ("admin", "viewer")


@pytest.mark.parametrize("body", [{"reason": 1}, {"why": "x"}])
def test_wrong_order_is_refused_and_changes_nothing(
    api: httpx2.Client, body: dict[str, object]
) -> None:
    assert api.post("server/pause", json=body).status_code == 422
    assert not api.get("server").json()["is_paused"]


def known(
    identity: ReplicaIdentity, *, leads: bool = False, is_silent: bool = False
) -> KnownReplica:
    now = conftest.MORNING
    seen_at = now - timedelta(seconds=10) if is_silent else now
    return KnownReplica(identity=identity, started_at=now, seen_at=seen_at, is_leader=leads)


@dataclass(frozen=True)
class Several:
    """Replicas, of which kvm-1 is asked."""

    replicas: tuple[KnownReplica, ...]
    itself: ReplicaIdentity = ITSELF

    def call_roll(self) -> RollCall:
        return RollCall(at=conftest.MORNING, epoch=3, replicas=self.replicas)

    def report(self) -> None: ...

    def leave(self) -> None: ...

    def is_following(self) -> bool:
        return True


def among(app: FastAPI, *replicas: KnownReplica) -> list[str]:
    """Have the server be among *replicas*; return what it is told."""
    told: list[str] = []
    services = app.state.services
    app.state.services = replace(
        services, replicas=Several(replicas), hand_over=lambda: told.append("hand over")
    )
    return told


def test_leader_hands_over(api: httpx2.Client, app: FastAPI) -> None:
    told = among(app, known(ITSELF, leads=True), known(OTHER))

    answer = api.post("server/replicas/hand-over")

    assert (answer.json(), told) == ({"name": "kvm-1"}, ["hand over"])
    (line,) = api.get("audit", params={"action": "replica hand-over"}).json()["audit"]
    assert (line["who"], line["subject"], line["outcome"]) == ("alice", "kvm-1", "done")


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ((known(ITSELF, leads=True),), "There is no other replica that could lead."),
        (
            (known(ITSELF, leads=True), known(OTHER, is_silent=True)),
            "There is no other replica that could lead.",
        ),
        (
            (known(ITSELF), known(OTHER, leads=True)),
            (
                "This replica does not lead. "
                "Replica db-8 at http://db-8:8170 leads; send the request there."
            ),
        ),
        (
            (known(ITSELF), known(OTHER)),
            "This replica does not lead. No replica leads at the moment; try again.",
        ),
    ],
)
def test_hand_over_is_refused_if_it_cannot_be(
    api: httpx2.Client, app: FastAPI, replicas: tuple[KnownReplica, ...], said: str
) -> None:
    told = among(app, *replicas)

    refused = api.post("server/replicas/hand-over")

    assert (refused.status_code, refused.json()["type"]) == (
        409,
        "urn:forewarn:problem:hand-over-refused",
    )
    assert (refused.json()["detail"], told) == (said, [])


def test_server_of_a_database_file_has_nobody_to_hand_over_to(
    api: httpx2.Client, store: Store
) -> None:
    store.write(lambda tx: tx.next_epoch())

    refused = api.post("server/replicas/hand-over")

    assert "There is no other replica that could lead." in refused.json()["detail"]


def test_replica_that_is_gone_is_forgotten_with_its_tasks(api: httpx2.Client, store: Store) -> None:
    event_ids = [start(api, vm) for vm in ("web-0", "solo")]
    put_owner(store)
    for event_id, vm, state in zip(
        event_ids, ("web-0", "solo"), (TaskState.BEGUN, TaskState.RESERVED), strict=True
    ):
        put_impact(store, event_id, vm, state)

    answer = api.post("server/replicas/forget", json={"name": "DB-9"})
    again = api.post("server/replicas/forget", json={"name": "db-9"})

    begun = f"{event_ids[0]}/web-0"
    assert answer.json() == {"tasks": [begun]}
    listed = {each["task_id"]: each for each in api.get("tasks").json()["tasks"]}
    assert (listed[begun]["state"], listed[begun]["can_settle"]) == ("unknown", True)
    assert listed[begun]["reason"] == "replica db-9 was forgotten by alice"
    assert listed[f"{event_ids[1]}/solo"]["state"] == "reserved"
    assert (again.status_code, again.json()["type"]) == (404, "urn:forewarn:problem:unknown-owner")
    done, _ = api.get("audit", params={"action": "replica forget"}).json()["audit"]
    assert (done["who"], done["subject"], done["outcome"]) == ("alice", "db-9", "done")


def test_replica_that_may_only_be_away_is_not_forgotten(
    api: httpx2.Client, store: Store, wall: Wall, tables: Callable[[], Tables]
) -> None:
    put_impact(store, start(api, "web-0"), "web-0", TaskState.BEGUN)
    put_owner(store, heard_at=wall.now)
    before = tables()
    grace = timedelta(minutes=5)

    wall.now += grace - timedelta(seconds=1)
    refused = api.post("server/replicas/forget", json={"name": "db-9"})
    assert tables() == before
    wall.now += timedelta(seconds=1)
    done = api.post("server/replicas/forget", json={"name": "db-9"})

    assert (refused.status_code, refused.json()["type"]) == (
        409,
        "urn:forewarn:problem:owner-present",
    )
    assert "it was heard of at 2026-01-05 08:00:00 GMT and may still" in refused.json()["detail"]
    assert done.status_code == 200


@pytest.mark.parametrize("body", [{}, {"name": 1}, {"name": "db-9", "why": "fire"}])
def test_wrong_name_forgets_nobody(
    api: httpx2.Client, store: Store, body: dict[str, object]
) -> None:
    put_owner(store)

    assert api.post("server/replicas/forget", json=body).status_code == 422
    assert store.read(lambda reading: len(reading.owners())) == 1


def start(api: httpx2.Client, vm: str) -> str:
    order = {"event_type": "Reboot", "resources": [vm], "started": True}
    (event,) = api.post("events", json=order).json()["events"]
    return str(event["event_id"])
