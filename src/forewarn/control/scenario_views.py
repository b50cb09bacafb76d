"""Scenarios and their runs as they travel over the control API, steps in the words of the file."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictStr, model_validator

from forewarn.control.schemas import EventView, LedgerView, Names, Text, event_view
from forewarn.domain.limits import FASTEST
from forewarn.domain.scenario import (
    Announcement,
    Scenario,
    ScenarioRun,
    ScenarioRunStatus,
    ScenarioStep,
)
from forewarn.operations.scenarios import ScenarioReport
from forewarn.wording.durations import format_duration


class ScenarioRunRequest(BaseModel):
    """Begin a built-in scenario by its name, or one of your own as the text of its file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text | None = None
    toml: Annotated[StrictStr, Field(max_length=1_000_000)] | None = None
    virtual_machines: Annotated[Names, Field(min_length=1)]
    speed: Annotated[float, Field(strict=True, ge=1, le=FASTEST, allow_inf_nan=False)] = 1

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.name is None) == (self.toml is None):
            raise ValueError("give a name or toml, and not both")
        return self


class ScenarioView(BaseModel):
    """A timeline."""

    name: str
    description: str
    steps: tuple[Mapping[str, JsonValue], ...]


class ScenariosView(BaseModel):
    """The built-in scenarios, by name."""

    scenarios: tuple[ScenarioView, ...]


class ScenarioRunSummaryView(BaseModel):
    """One run in a list."""

    run_id: str
    name: str
    status: ScenarioRunStatus
    resources: tuple[str, ...]
    began_at: datetime
    speed: float
    steps_done: int
    steps_remaining: int
    finished_at: datetime | None


class ScenarioLogView(LedgerView):
    """Something that happened to an event of a run."""

    event_id: str


class ScenarioRunView(ScenarioRunSummaryView):
    """One run with its timeline, its events by label, and all that has happened to them."""

    steps: tuple[Mapping[str, JsonValue], ...]
    labels: Mapping[str, tuple[str, ...]]
    events: tuple[EventView, ...]
    log: tuple[ScenarioLogView, ...]


class ScenarioRunsView(BaseModel):
    """Every run, oldest first."""

    scenario_runs: tuple[ScenarioRunSummaryView, ...]


def scenario_view(scenario: Scenario) -> ScenarioView:
    """Return *scenario* as the API shows it."""
    return ScenarioView(
        name=scenario.name,
        description=scenario.description,
        steps=tuple(map(declare_step, scenario.steps)),
    )


def scenario_run_summary(run: ScenarioRun) -> ScenarioRunSummaryView:
    """Return *run* as one line of a list."""
    return ScenarioRunSummaryView(
        run_id=run.run_id,
        name=run.name,
        status=run.status,
        resources=run.resources,
        began_at=run.began_at,
        speed=run.speed,
        steps_done=run.steps_done,
        steps_remaining=0 if run.is_stopped else len(run.steps) - run.steps_done,
        finished_at=run.finished_at,
    )


def scenario_run_view(report: ScenarioReport) -> ScenarioRunView:
    """Return all of *report*."""
    return ScenarioRunView(
        **scenario_run_summary(report.run).model_dump(),
        steps=tuple(map(declare_step, report.run.steps)),
        labels=report.run.events,
        events=tuple(map(event_view, report.events)),
        log=tuple(map(ScenarioLogView.model_validate, report.log)),
    )


def declare_step(step: ScenarioStep) -> dict[str, JsonValue]:
    """Return *step* as a file would say it, leaving nothing to a default but what nobody knows."""
    at: dict[str, JsonValue] = {"at": format_duration(step.at)}
    if not isinstance(step, Announcement):
        return {**at, step.trigger.value: step.label}
    verb = "begin" if step.notice is None else "announce"
    entry: dict[str, JsonValue] = {
        verb: step.event_type.value,
        "label": step.label,
        "source": step.event_source.value,
        "description": step.description,
        "duration": step.duration_in_seconds,
        "notice": None if step.notice is None else format_duration(step.notice),
        "impact": format_duration(step.impact),
    }
    return at | {key: value for key, value in entry.items() if value is not None}
