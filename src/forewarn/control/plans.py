"""/maintenances/plan: what a Maintenance would do. It is a POST for its body; nothing changes."""

from datetime import datetime
from typing import Final

from fastapi import APIRouter

from forewarn.control.caller import Viewing
from forewarn.control.maintenance_views import MaintenanceOrderRequest, maintenance_order
from forewarn.control.problems import problem_of
from forewarn.control.schemas import View
from forewarn.domain.planning import Plan, summarise
from forewarn.operations.planning import plan_maintenance
from forewarn.protocol.errors import ForewarnError

router = APIRouter(prefix="/maintenances", tags=["maintenances"])

_SOME: Final = 10
"""How many virtual machines are named that nobody polls for."""


class StretchView(View):
    """When a step begins with its announcement, starts, and ends; null if nobody can say."""

    begins: datetime
    starts: datetime
    ends: datetime | None


class PlannedShareView(View):
    """One update domain of one scope; `available` of its `members` stay up meanwhile."""

    scope_id: str
    update_domain: int
    resources: tuple[str, ...]
    available: int
    members: int


class PlannedStepView(View):
    """One step with its times; null where it never begins, or nobody can say when."""

    number: int
    host: str | None
    shares: tuple[PlannedShareView, ...]
    earliest: StretchView | None
    latest: StretchView | None


class CapacityView(View):
    """How many of a set's members are up in its worst step."""

    scope_id: str
    available: int
    members: int
    percent: int


class ExposureView(View):
    """How many of the fleet's machines are out at once at the most, in how many places."""

    out: int
    fleet: int
    percent: int
    places: int
    is_by_host: bool
    sentence: str


class ForecastView(View):
    """Between when and when all is done, by what events took before."""

    low: datetime
    high: datetime
    samples: int
    sentence: str


class ConflictView(View):
    """Steps that could begin earlier, were the calendar open for longer."""

    steps: tuple[int, ...]
    ready: datetime
    opens: datetime
    closes: datetime | None
    blackouts: tuple[str, ...]
    sentence: str


class PlanErrorView(View):
    """Why the Maintenance cannot be walked: what starting it would be refused with."""

    type: str
    detail: str


class UnpolledView(View):
    """How many virtual machines nobody polls for, never or not for 24 hours, and some of them."""

    count: int
    names: tuple[str, ...]


class PlanView(View):
    """What a Maintenance would do, and when. With errors it cannot be begun."""

    steps: tuple[PlannedStepView, ...]
    capacities: tuple[CapacityView, ...]
    exposure: ExposureView
    warnings: tuple[str, ...]
    earliest: datetime | None
    latest: datetime | None
    forecast: ForecastView | None
    conflicts: tuple[ConflictView, ...]
    errors: tuple[PlanErrorView, ...]
    remarks: tuple[str, ...]
    unpolled: UnpolledView
    summary: tuple[str, ...]


@router.post("/plan", name="maintenance plan")
def plan(caller: Viewing, request: MaintenanceOrderRequest) -> PlanView:
    """Return what a Maintenance would do, with every reason it cannot; nothing is changed."""
    services = caller.services
    order = maintenance_order(request, services)
    context = caller.context()
    made = caller.read(
        lambda reading: plan_maintenance(reading, context, order, gates=services.gates.kinds())
    )
    return _plan_view(made)


def _plan_view(made: Plan) -> PlanView:
    return PlanView(
        steps=tuple(map(PlannedStepView.model_validate, made.steps)),
        capacities=tuple(map(CapacityView.model_validate, made.capacities)),
        exposure=ExposureView.model_validate(made.exposure),
        warnings=made.warnings,
        earliest=made.earliest,
        latest=made.latest,
        forecast=None if made.forecast is None else ForecastView.model_validate(made.forecast),
        conflicts=tuple(map(ConflictView.model_validate, made.conflicts)),
        errors=tuple(map(_error_view, made.errors)),
        remarks=made.remarks,
        unpolled=UnpolledView(count=len(made.unpolled), names=made.unpolled[:_SOME]),
        summary=summarise(made),
    )


def _error_view(error: ForewarnError) -> PlanErrorView:
    problem = problem_of(error)
    return PlanErrorView(type=f"urn:forewarn:problem:{problem.kind}", detail=problem.detail)
