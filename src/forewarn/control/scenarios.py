"""/scenarios and /scenario-runs: timelines, and beginning, following and stopping them."""

from operator import attrgetter

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.caller import Administering, Viewing
from forewarn.control.paging import LINKED, Paged
from forewarn.control.routes import Key
from forewarn.control.scenario_views import (
    ScenarioRunRequest,
    ScenarioRunsView,
    ScenarioRunView,
    ScenariosView,
    scenario_run_summary,
    scenario_run_view,
    scenario_view,
)
from forewarn.files.scenario import read_scenario
from forewarn.operations.context import Context
from forewarn.operations.scenarios import (
    find_scenario,
    find_scenario_runs,
    report_scenario_run,
    start_scenario,
    stop_scenario,
)
from forewarn.ports.store import Transaction

router = APIRouter(tags=["scenarios"])


@router.get("/scenarios")
def list_scenarios(caller: Viewing) -> ScenariosView:
    """Return the built-in scenarios."""
    return ScenariosView(scenarios=tuple(map(scenario_view, caller.services.scenarios.values())))


@router.get("/scenario-runs", response_model=ScenarioRunsView, responses=LINKED)
def list_scenario_runs(caller: Viewing, paging: Paged) -> Response:
    """Return the newest runs, oldest first; the next page has older ones."""
    seen = None if paging.after is None else paging.after.lower()
    runs = caller.read(
        lambda reading: find_scenario_runs(reading, older_than=seen, limit=paging.limit + 1)
    )
    return paging.newest("scenario_runs", runs, scenario_run_summary, attrgetter("run_id"))


@router.post("/scenario-runs", status_code=201, name="scenario run")
def run_scenario(caller: Administering, key: Key, request: ScenarioRunRequest) -> ScenarioRunView:
    """Begin a scenario; its events need no minimum notice."""
    scenario = (
        find_scenario(caller.services.scenarios, request.name or "")
        if request.toml is None
        else read_scenario(request.toml)
    )
    vms, speed = request.virtual_machines, request.speed

    def operation(tx: Transaction, context: Context) -> ScenarioRunView:
        run = start_scenario(tx, context, scenario, vms, speed)
        return scenario_run_view(report_scenario_run(tx, run.run_id))

    return caller.write_once(key, ScenarioRunView, operation)


@router.get("/scenario-runs/{run_id}")
def show_scenario_run(caller: Viewing, run_id: str) -> ScenarioRunView:
    """Return one run: its timeline, its events, and all that has happened to them."""
    wanted = run_id.lower()
    return scenario_run_view(caller.read(lambda reading: report_scenario_run(reading, wanted)))


@router.post("/scenario-runs/{run_id}/stop", name="scenario stop")
def stop_scenario_run(caller: Administering, key: Key, run_id: str) -> ScenarioRunView:
    """Stop a run, and cancel its Scheduled events."""

    def operation(tx: Transaction, context: Context) -> ScenarioRunView:
        run = stop_scenario(tx, context, run_id.lower())
        return scenario_run_view(report_scenario_run(tx, run.run_id))

    return caller.write_once(key, ScenarioRunView, operation)
