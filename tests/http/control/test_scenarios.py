"""/scenarios and /scenario-runs."""

from datetime import UTC, datetime

import httpx2
import pytest

from forewarn.executors.simulated import Simulated
from forewarn.operations.context import Context
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.scheduler.tick import decide_and_record

CANCELED = {"name": "canceled-maintenance", "virtual_machines": ["solo"]}
OWN = """
name = "own"
[[step]]
at = "0s"
begin = "Reboot"
label = "bang"
impact = "1m"
[[step]]
at = "1m"
complete = "bang"
"""


def take_steps(store: Store) -> None:
    """Do what the scheduler would do at the beginning of a run."""
    now = datetime(2026, 1, 5, 8, tzinfo=UTC)
    context = Context(who="scheduler", now=now, at=now, new_id=lambda: event_id("0" * 31 + "e"))
    epoch = store.write(lambda tx: tx.next_epoch())
    store.write(lambda tx: decide_and_record(tx, context, {}, Simulated(), epoch=epoch))


def test_built_in_scenarios_are_listed_in_the_words_of_the_file(api: httpx2.Client) -> None:
    scenarios = {each["name"]: each for each in api.get("scenarios").json()["scenarios"]}

    assert len(scenarios) == 9
    assert scenarios["canceled-maintenance"]["steps"] == [
        {
            "at": "0s",
            "announce": "Freeze",
            "label": "1",
            "source": "Platform",
            "description": "Host server is undergoing maintenance.",
            "duration": 9,
            "notice": "15m",
            "impact": "10m",
        },
        {"at": "8m", "cancel": "1"},
    ]
    assert "notice" not in scenarios["hardware-failure"]["steps"][0]
    assert scenarios["hardware-failure"]["steps"][0]["begin"] == "Reboot"
    assert all(each["description"] for each in scenarios.values())


def test_scenario_is_run_reported_and_listed(
    api: httpx2.Client, store: Store, wakeups: list[str]
) -> None:
    begun = api.post("scenario-runs", json={**CANCELED, "speed": 60})
    take_steps(store)

    report = api.get(f"scenario-runs/{begun.json()['run_id'].upper()}").json()
    (listed,) = api.get("scenario-runs").json()["scenario_runs"]
    assert (begun.status_code, wakeups) == (201, ["changed"])
    assert begun.json()["log"] == []
    assert (report["status"], report["speed"], report["steps_remaining"]) == ("running", 60, 1)
    assert report["events"][0]["not_before"] == "2026-01-05T08:00:15Z"
    assert report["labels"] == {"1": [report["events"][0]["event_id"]]}
    assert [(line["what"], line["event_id"]) for line in report["log"]] == [
        ("scheduled", report["events"][0]["event_id"])
    ]
    assert listed == {key: report[key] for key in listed}


def test_scenario_of_your_own_is_sent_as_text(api: httpx2.Client) -> None:
    order = {"toml": OWN, "virtual_machines": ["web-0", "WEB-1"]}

    begun = api.post("scenario-runs", json=order).json()

    assert (begun["name"], begun["resources"]) == ("own", ["web-0", "web-1"])
    assert begun["steps"][-1] == {"at": "1m", "complete": "bang"}


def test_run_is_stopped_with_what_it_has_announced(api: httpx2.Client, store: Store) -> None:
    run_id = api.post("scenario-runs", json=CANCELED).json()["run_id"]
    take_steps(store)

    stopped = api.post(f"scenario-runs/{run_id}/stop").json()
    again = api.post(f"scenario-runs/{run_id}/stop")

    assert (stopped["status"], stopped["steps_remaining"]) == ("stopped", 0)
    assert [event["event_status"] for event in stopped["events"]] == ["Canceled"]
    assert (again.status_code, again.json()["run_id"]) == (409, run_id)
    assert again.json()["type"] == "urn:forewarn:problem:scenario-over"


@pytest.mark.parametrize(
    ("order", "status", "kind"),
    [
        ({"name": "nope"}, 404, "unknown-scenario"),
        ({"virtual_machines": ["nobody"]}, 404, "unknown-virtual-machine"),
        ({"virtual_machines": []}, 422, "invalid-request"),
        ({"virtual_machines": "solo"}, 422, "invalid-request"),
        ({"name": None}, 422, "invalid-request"),
        ({"toml": OWN}, 422, "invalid-request"),
        ({"name": None, "toml": "name = 1"}, 422, "scenario"),
        ({"speed": 0.5}, 422, "invalid-request"),
        ({"speed": "60"}, 422, "invalid-request"),
        ({"speed": True}, 422, "invalid-request"),
        ({"speed": 1e300}, 422, "invalid-request"),
        ({"colour": "red"}, 422, "invalid-request"),
    ],
)
def test_run_that_cannot_be_is_refused(
    api: httpx2.Client, order: dict[str, object], status: int, kind: str
) -> None:
    answer = api.post("scenario-runs", json={**CANCELED, **order})

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert api.get("scenario-runs").json() == {"scenario_runs": []}


def test_bad_file_is_refused_with_its_line(api: httpx2.Client) -> None:
    order = {"toml": OWN.replace("Reboot", "Nap"), "virtual_machines": ["solo"]}

    answer = api.post("scenario-runs", json=order)

    assert (answer.status_code, answer.json()["line"]) == (422, 5)


def test_run_nobody_has_begun_is_not_found(api: httpx2.Client) -> None:
    for answer in (api.get("scenario-runs/nope"), api.post("scenario-runs/nope/stop")):
        assert (answer.status_code, answer.json()["run_id"]) == (404, "nope")


def test_scenarios_need_a_token(anonymous: httpx2.Client) -> None:
    for path in ("scenarios", "scenario-runs"):
        assert anonymous.get(f"/api/v1/{path}").status_code == 401
