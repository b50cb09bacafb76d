"""/maintenances/plan: what a Maintenance would do. It is a POST for its body; nothing changes."""

from typing import Final

from fastapi import APIRouter

from forewarn.control.caller import Viewing
from forewarn.control.maintenance_views import MaintenanceOrderRequest, maintenance_order
from forewarn.control.problems import problem_of
from forewarn.control.schemas import View
from forewarn.control.shapes import fill, mirrors
from forewarn.domain.planning import (
    Capacity,
    Forecast,
    Plan,
    PlannedShare,
    PlannedStep,
    summarise,
)
from forewarn.domain.risks import Conflict, Exposure
from forewarn.domain.timetable import Stretch
from forewarn.operations.planning import plan_maintenance
from forewarn.protocol.errors import ForewarnError

router = APIRouter(prefix="/maintenances", tags=["maintenances"])

_SOME: Final = 10
"""How many virtual machines are named that nobody polls for."""


@mirrors(Stretch, "begins starts ends")
class StretchView(View):
    """When a step begins with its announcement, starts, and ends; null if nobody can say."""


@mirrors(PlannedShare)
class PlannedShareView(View):
    """One update domain of one scope; `available` of its `members` stay up meanwhile."""


@mirrors(PlannedStep)
class PlannedStepView(View):
    """One step with its times; null where it never begins, or nobody can say when."""

    shares: tuple[PlannedShareView, ...]
    earliest: StretchView | None
    latest: StretchView | None


@mirrors(Capacity, "scope_id available members percent")
class CapacityView(View):
    """How many of a set's members are up in its worst step."""


@mirrors(Exposure, "out fleet percent places is_by_host sentence")
class ExposureView(View):
    """How many of the fleet's machines are out at once at the most, in how many places."""


@mirrors(Forecast, "low high samples sentence")
class ForecastView(View):
    """Between when and when all is done, by what events took before."""


@mirrors(Conflict, "steps ready opens closes blackouts sentence")
class ConflictView(View):
    """Steps that could begin earlier, were the calendar open for longer."""


class PlanErrorView(View):
    """Why the Maintenance cannot be walked: what starting it would be refused with."""

    type: str
    detail: str


class UnpolledView(View):
    """How many virtual machines nobody polls for, never or not for 24 hours, and some of them."""

    count: int
    names: tuple[str, ...]


@mirrors(Plan)
class PlanView(View):
    """What a Maintenance would do, and when. With errors it cannot be begun."""

    steps: tuple[PlannedStepView, ...]
    capacities: tuple[CapacityView, ...]
    exposure: ExposureView
    forecast: ForecastView | None
    conflicts: tuple[ConflictView, ...]
    errors: tuple[PlanErrorView, ...]
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
    return fill(
        PlanView,
        made,
        errors=tuple(map(_error_view, made.errors)),
        unpolled=UnpolledView(count=len(made.unpolled), names=made.unpolled[:_SOME]),
        summary=summarise(made),
    )


def _error_view(error: ForewarnError) -> PlanErrorView:
    problem = problem_of(error)
    return PlanErrorView(type=f"urn:forewarn:problem:{problem.kind}", detail=problem.detail)
