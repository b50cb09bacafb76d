"""What a Maintenance would do, as it is shown."""

from collections.abc import Callable
from typing import Final

from forewarn.desk.schemas import View
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.planning import Capacity, Forecast, Plan, PlannedShare, PlannedStep, summarise
from forewarn.domain.risks import Conflict, Exposure
from forewarn.domain.timetable import Stretch
from forewarn.protocol.errors import ForewarnError

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


def plan_view(made: Plan, refusal: Callable[[ForewarnError], PlanErrorView]) -> PlanView:
    """Return *made*; *refusal* tells of each error what starting it would be refused with."""
    return fill(
        PlanView,
        made,
        errors=tuple(map(refusal, made.errors)),
        unpolled=UnpolledView(count=len(made.unpolled), names=made.unpolled[:_SOME]),
        summary=summarise(made),
    )
