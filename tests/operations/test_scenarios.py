from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.tasks import Assigner

from forewarn.domain.errors import ScenarioOverError, UnknownVirtualMachineError
from forewarn.domain.scenario import Scenario, ScenarioRunStatus
from forewarn.files.scenario import ScenarioError, read_scenario
from forewarn.operations.context import Context, Rules, SharedDatabaseError
from forewarn.operations.scenarios import (
    UnknownScenarioError,
    UnknownScenarioRunError,
    find_scenario,
    find_scenario_runs,
    report_scenario_run,
    start_scenario,
    stop_scenario,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventStatus
from forewarn.scheduler.tick import decide_and_record

SCENARIO = read_scenario("""
name = "night"
[[step]]
at = "0s"
announce = "Freeze"
[[step]]
at = "1m"
begin = "Reboot"
[[step]]
at = "1h"
announce = "Redeploy"
""")


def tick(store: Store, context: Context) -> None:
    """Have everything done that is due."""

    def look_and_record(epoch: int) -> bool:
        turn = store.write(lambda tx: decide_and_record(tx, context, {}, Assigner(), epoch=epoch))
        return bool(turn.decisions.actions)

    epoch = store.write(lambda tx: tx.next_epoch())
    while look_and_record(epoch):
        pass


def test_scenario_is_refused_on_a_database_that_others_share(
    fleet: Store, operator: Context
) -> None:
    shared = replace(operator, rules=Rules(is_shared=True))

    with pytest.raises(SharedDatabaseError, match="Scenarios need a server"):
        fleet.write(lambda tx: start_scenario(tx, shared, SCENARIO, ["web-0"]))


def test_scenario_is_begun_with_the_machines_it_happens_to(fleet: Store, operator: Context) -> None:
    hasty = replace(operator, rules=Rules(speed=10))

    run = fleet.write(lambda tx: start_scenario(tx, hasty, SCENARIO, ["WEB-0", "solo", "web-0"], 6))

    assert (run.name, run.resources) == ("night", ("web-0", "solo"))
    assert (run.began_at, run.speed, run.steps) == (operator.now, 60, SCENARIO.steps)
    assert fleet.read(lambda reading: reading.scenario_runs(finished=False)) == (run,)
    last = fleet.read(lambda reading: reading.audit())[-1]
    assert (last.who, last.action, last.subject) == ("alice", "scenario run", run.run_id)


@pytest.mark.parametrize(
    ("vms", "speed", "error"),
    [
        ([], 1, ScenarioError),
        (["nobody"], 1, UnknownVirtualMachineError),
        (["solo"], 0.5, ScenarioError),
        (["solo"], 1_000_001, ScenarioError),
        (["solo"], float("nan"), ScenarioError),
    ],
)
def test_run_that_cannot_be_is_refused(
    fleet: Store, operator: Context, vms: list[str], speed: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        fleet.write(lambda tx: start_scenario(tx, operator, SCENARIO, vms, speed))

    assert fleet.read(lambda reading: reading.scenario_runs()) == ()


def test_report_has_the_events_and_all_that_happened_to_them(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    run = fleet.write(lambda tx: start_scenario(tx, operator, SCENARIO, ["web-0", "web-1"]))
    tick(fleet, operator)
    tick(fleet, later(operator.now + timedelta(minutes=15)))

    report = fleet.read(lambda reading: report_scenario_run(reading, run.run_id))

    assert report.run.status is ScenarioRunStatus.RUNNING
    assert [event.event_type for event in report.events] == ["Freeze"] * 2 + ["Reboot"] * 2
    assert [entry.what for entry in report.log] == ["scheduled"] * 2 + ["started"] * 2


def test_stopped_run_has_no_more_steps_and_what_has_started_goes_on(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    at = later(operator.now + timedelta(minutes=1))
    run = fleet.write(lambda tx: start_scenario(tx, operator, SCENARIO, ["solo"]))
    tick(fleet, at)

    stopped = fleet.write(lambda tx: stop_scenario(tx, at, run.run_id))
    tick(fleet, later(operator.now + timedelta(days=1)))

    freeze, reboot = fleet.read(lambda reading: report_scenario_run(reading, run.run_id)).events
    assert (freeze.event_status, freeze.reason) == ("Canceled", "the scenario was stopped")
    assert reboot.event_status is EventStatus.STARTED
    assert stopped.status is ScenarioRunStatus.STOPPED
    last = fleet.read(lambda reading: reading.audit())[-1]
    assert (last.action, last.subject) == ("scenario stop", run.run_id)
    with pytest.raises(ScenarioOverError):
        fleet.write(lambda tx: stop_scenario(tx, at, run.run_id))


def test_unknown_run_and_scenario_are_refused(fleet: Store, operator: Context) -> None:
    known: dict[str, Scenario] = {"night": SCENARIO}

    assert find_scenario(known, "night") is SCENARIO
    with pytest.raises(UnknownScenarioError, match="'day'"):
        find_scenario(known, "day")
    with pytest.raises(UnknownScenarioRunError, match="'none'"):
        fleet.read(lambda reading: report_scenario_run(reading, "none"))
    with pytest.raises(UnknownScenarioRunError, match="'none'"):
        fleet.write(lambda tx: stop_scenario(tx, operator, "none"))


def test_runs_are_found_page_by_page(fleet: Store, operator: Context) -> None:
    ids = [
        fleet.write(lambda tx: start_scenario(tx, operator, SCENARIO, ["solo"])).run_id
        for _ in range(3)
    ]

    def page(older_than: str | None) -> list[str]:
        found = fleet.read(lambda at: find_scenario_runs(at, older_than=older_than, limit=2))
        return [run.run_id for run in found]

    assert [page(None), page(ids[1])] == [ids[1:], ids[:1]]
    with pytest.raises(UnknownScenarioRunError, match="'none'"):
        page("none")
