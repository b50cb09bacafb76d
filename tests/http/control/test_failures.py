"""/maintenances/{id}/retry and /skip, and canceling all events of a host."""

import httpx2
import pytest
from tests.http.conftest import HandClock

from forewarn.executors.simulated import Simulated
from forewarn.operations.context import Context
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.scheduler.tick import decide_and_record

HOST = {"event_type": "Freeze", "hosts": ["kvm-0"]}


def tick(store: Store, clock: HandClock) -> None:
    """Record what is due."""
    epoch = store.write(lambda tx: tx.next_epoch())
    numbers = iter(range(1000))
    context = Context(
        who="scheduler",
        now=clock.now(),
        at=clock.now(),
        new_id=lambda: event_id(f"{epoch:04x}{next(numbers):028x}"),
    )
    store.write(lambda tx: decide_and_record(tx, context, {}, Simulated(), epoch=epoch))


@pytest.fixture
def held(api: httpx2.Client, store: Store, clock: HandClock) -> str:
    """A Maintenance that is held because its only host was canceled."""
    maintenance_id: str = api.post("maintenances", json=HOST).json()["maintenance_id"]
    tick(store, clock)
    events = api.get("events").json()["events"]
    api.post(f"events/{events[0]['event_id']}/cancel", json={"operation": True})
    tick(store, clock)
    return maintenance_id


def test_failure_is_shown_with_its_host(api: httpx2.Client, held: str) -> None:
    report = api.get(f"maintenances/{held}").json()

    (failure,) = report["failures"]
    assert (report["status"], report["outcome"]) == ("held", None)
    assert (failure["place"], failure["ending"], failure["is_over"]) == (
        "kvm-0",
        "was canceled",
        True,
    )
    assert report["places"] == {"failed": 1}
    assert report["standings"] == {"kvm-0": "failed"}
    assert [operation["outcome"] for operation in report["operations"]] == ["canceled"]


def test_retry_begins_new_events(
    api: httpx2.Client, held: str, store: Store, clock: HandClock
) -> None:
    answer = api.post(f"maintenances/{held}/retry", json={"places": ["KVM-0"]})
    tick(store, clock)

    assert answer.status_code == 200
    assert [step["host"] for step in answer.json()["remaining"]] == ["kvm-0"]
    assert len(api.get("events").json()["events"]) > 0
    audit = api.get("audit", params={"action": "maintenance retry"}).json()["audit"]
    assert [entry["detail"] for entry in audit] == ["kvm-0"]


def test_skip_ends_the_maintenance_as_incomplete(
    api: httpx2.Client, held: str, store: Store, clock: HandClock
) -> None:
    api.post(f"maintenances/{held}/skip", json={})
    tick(store, clock)

    report = api.get(f"maintenances/{held}").json()
    assert (report["status"], report["outcome"]) == ("incomplete", "incomplete")
    assert report["places"] == {"skipped": 1}


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_place_that_the_maintenance_does_not_have_is_refused_with_near_names(
    api: httpx2.Client, held: str, verb: str
) -> None:
    answer = api.post(f"maintenances/{held}/{verb}", json={"places": ["kvm1"]})

    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "Unknown host 'kvm1' in this Maintenance. Did you mean kvm-0?"
    )
    assert answer.json()["maintenance_id"] == held
    assert len(api.get(f"maintenances/{held}").json()["failures"]) == 1


def test_resume_alone_leaves_the_failure(api: httpx2.Client, held: str) -> None:
    resumed = api.post(f"maintenances/{held}/resume").json()

    assert (resumed["status"], len(resumed["failures"])) == ("held", 1)
