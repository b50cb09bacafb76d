"""/scenarios and /scenario-runs: timelines, and beginning, following and stopping them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Self

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, JsonValue, StrictStr, model_validator
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import Key, lists
from forewarn.desk.schemas import EventView, LedgerView, Names, RequestModel, Text, View
from forewarn.desk.shapes import fill, mirrors, several
from forewarn.domain.limits import FASTEST
from forewarn.domain.scenario import Scenario, ScenarioRun, ScenarioStep
from forewarn.files.scenario import declare_step, read_scenario
from forewarn.operations.context import Context
from forewarn.operations.scenarios import (
    ScenarioReport,
    find_scenario,
    find_scenario_runs,
    report_scenario_run,
    start_scenario,
    stop_scenario,
)
from forewarn.ports.store import Transaction

router = APIRouter(tags=["scenarios"], route_class=BodyRoute)


def _declare(steps: Iterable[ScenarioStep | Mapping[str, JsonValue]]) -> list[object]:
    return [step if isinstance(step, Mapping) else declare_step(step) for step in steps]


Steps = Annotated[tuple[Mapping[str, JsonValue], ...], BeforeValidator(_declare)]
"""The steps of a timeline in the words of the file."""


class ScenarioRunRequest(RequestModel):
    """Start a built-in scenario by name, or your own from the text of its file."""

    name: Text | None = None
    toml: Annotated[StrictStr, Field(max_length=1_000_000)] | None = None
    virtual_machines: Annotated[Names, Field(min_length=1)]
    speed: Annotated[float, Field(strict=True, ge=1, le=FASTEST, allow_inf_nan=False)] = 1

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.name is None) == (self.toml is None):
            raise ValueError("give either name or toml, not both")
        return self


@mirrors(Scenario)
class ScenarioView(View):
    """A scenario and its timeline."""

    steps: Steps


class ScenariosView(View):
    """The built-in scenarios, by name."""

    scenarios: tuple[ScenarioView, ...]


@mirrors(
    ScenarioRun,
    "run_id name status resources began_at speed steps_done steps_remaining finished_at",
)
class ScenarioRunSummaryView(View):
    """One run in a list."""


class ScenarioLogView(LedgerView):
    """One change of an event in a run."""

    event_id: str


class ScenarioRunView(ScenarioRunSummaryView):
    """One run with its timeline, its events by label, and their history."""

    steps: Steps
    labels: Mapping[str, tuple[str, ...]]
    events: tuple[EventView, ...]
    log: tuple[ScenarioLogView, ...]


_RUNS: Final = several("scenario_runs", ScenarioRunSummaryView, "Every run, oldest first.")


@router.get("/scenarios")
def list_scenarios(caller: Viewing) -> ScenariosView:
    """Return the built-in scenarios."""
    return ScenariosView.model_validate({"scenarios": tuple(caller.services.scenarios.values())})


@router.get("/scenario-runs", **lists(_RUNS))
def list_scenario_runs(caller: Viewing, paging: Paged) -> Response:
    """Return the newest runs, oldest first; the next page has older ones."""
    seen = None if paging.after is None else paging.after.lower()
    runs = caller.read(
        lambda reading: find_scenario_runs(reading, older_than=seen, limit=paging.limit + 1)
    )
    return paging.answer(
        "scenario_runs", runs, ScenarioRunSummaryView.model_validate, "run_id", goes_back=True
    )


@router.post("/scenario-runs", status_code=201, name="scenario run")
def run_scenario(caller: Administering, key: Key, request: ScenarioRunRequest) -> ScenarioRunView:
    """Start a scenario; its events need no minimum notice."""
    scenario = (
        find_scenario(caller.services.scenarios, request.name or "")
        if request.toml is None
        else read_scenario(request.toml)
    )
    vms, speed = request.virtual_machines, request.speed

    def operation(tx: Transaction, context: Context) -> ScenarioRunView:
        run = start_scenario(tx, context, scenario, vms, speed)
        return _view(report_scenario_run(tx, run.run_id))

    return caller.write_once(key, ScenarioRunView, operation)


@router.get("/scenario-runs/{run_id}")
def show_scenario_run(caller: Viewing, run_id: str) -> ScenarioRunView:
    """Return one run: its timeline, its events and their history."""
    wanted = run_id.lower()
    return _view(caller.read(lambda reading: report_scenario_run(reading, wanted)))


@router.post("/scenario-runs/{run_id}/stop", name="scenario stop")
def stop_scenario_run(caller: Administering, key: Key, run_id: str) -> ScenarioRunView:
    """Stop a run and cancel its Scheduled events."""

    def operation(tx: Transaction, context: Context) -> ScenarioRunView:
        run = stop_scenario(tx, context, run_id.lower())
        return _view(report_scenario_run(tx, run.run_id))

    return caller.write_once(key, ScenarioRunView, operation)


def _view(report: ScenarioReport) -> ScenarioRunView:
    return fill(ScenarioRunView, report, report.run, labels=report.run.events)
