"""Maintenances as they are asked for and shown, and what one would do before it is begun."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Final

from pydantic import Field

from forewarn.desk.courses import CourseRequest, CourseView, course_change, describe_course
from forewarn.desk.schemas import EventView, Labels, Names, RequestModel, Seconds, Text, View
from forewarn.desk.services import Services
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.course import Course
from forewarn.domain.event import Share
from forewarn.domain.failures import Failure
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.planning import Capacity, Forecast, Plan, PlannedShare, PlannedStep, summarise
from forewarn.domain.risks import Conflict, Exposure
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.domain.timetable import Stretch
from forewarn.domain.walk import BrakeSummary
from forewarn.domain.windows import Blackout
from forewarn.files.holidays import read_holidays
from forewarn.operations.maintenances import MaintenanceReport
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventType

_SOME: Final = 10
"""How many virtual machines are named that nobody polls for."""


class MaintenanceOrderRequest(CourseRequest):
    """Start a Maintenance of scopes and virtual machines, or of hosts."""

    event_type: EventType
    scopes: Names = Field(default=[])
    virtual_machines: Names = Field(default=[])
    labels: Labels = Field(default={})
    hosts: Names = Field(default=[])
    host_labels: Labels = Field(default={})
    description: Text | None = None
    duration_in_seconds: Seconds | None = None


class PlacesRequest(RequestModel):
    """Names of failed hosts or scopes; default: all of them."""

    places: Names = Field(default=[])


@mirrors(Share)
class ShareView(View):
    """Virtual machines of one update domain of one scope."""


@mirrors(BrakeSummary)
class BrakeView(View):
    """What holds a step, and how that ends: at `until`, by progress, or by hand."""


class StepView(View):
    """What a Maintenance announces together, once nothing holds it."""

    host: str | None
    shares: tuple[ShareView, ...]
    brakes: tuple[BrakeView, ...]


@mirrors(Failure, "place host scope_ids event_ids vms ended_at ending reason is_over")
class FailureView(View):
    """A failure or cancellation, which holds until it is retried or skipped."""


@mirrors(
    HostOperation,
    "operation_id host created_at phase attempt verify_by ended_at outcome reason",
)
class OperationView(View):
    """One attempt at one host, and its progress."""


@mirrors(
    Maintenance,
    "maintenance_id event_type status status_text started_at resumed_at is_paused description "
    "duration_in_seconds resources hosts",
)
class _IntentView(View):
    """The order and the progress of a Maintenance."""

    status: MaintenanceStatus
    status_text: Annotated[
        str, Field(description="The status in words: stuck on what, or waiting for which replica.")
    ]


@mirrors(Maintenance, "schedule finished_at outcome")
class MaintenanceSummaryView(CourseView, _IntentView):
    """One Maintenance in a list."""

    places: dict[Standing, int]
    events_in_flight: int
    events_ended: int
    steps_remaining: int


class MaintenanceView(MaintenanceSummaryView):
    """One Maintenance: what is done, what remains and what holds it."""

    events: tuple[EventView, ...]
    operations: tuple[OperationView, ...]
    remaining: tuple[StepView, ...]
    left_out: Annotated[
        tuple[StepView, ...], Field(description="Steps that never begin: it was aborted.")
    ]
    standings: dict[str, Standing]
    failures: tuple[FailureView, ...]


class BegunMaintenanceView(MaintenanceView):
    """A Maintenance that was just started, with its overlaps with others."""

    warnings: tuple[str, ...]


def maintenance_order(request: MaintenanceOrderRequest, services: Services) -> MaintenanceOrder:
    """Return what *request* asks for; holidays that are over by now are left out."""
    told = request.model_dump(include=set(CourseRequest.model_fields))
    wanted = {field.name for field in fields(MaintenanceOrder)}
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in request.model_dump(include=wanted, exclude_none=True).items()
    }
    return MaintenanceOrder(
        course=course_change(told, _read_holidays(request, services))(Course()), **given
    )


def maintenance_summary(report: MaintenanceReport) -> MaintenanceSummaryView:
    """Return *report* as one line of a list."""
    return fill(MaintenanceSummaryView, report, report.maintenance, **_further(report))


def maintenance_view(report: MaintenanceReport) -> MaintenanceView:
    """Return all of *report*."""
    return fill(
        MaintenanceView,
        report,
        report.maintenance,
        **_further(report),
        remaining=[fill(StepView, stage, stage.step) for stage in report.stages],
        left_out=[fill(StepView, step, brakes=()) for step in report.left_out],
    )


def _further(report: MaintenanceReport) -> dict[str, object]:
    in_flight = sum(event.is_in_flight for event in report.events)
    return {
        **describe_course(report.maintenance.course),
        "status_text": report.state.text,
        "places": Counter(report.standings.values()),
        "events_in_flight": in_flight,
        "events_ended": len(report.events) - in_flight,
        "steps_remaining": len(report.stages),
    }


def _read_holidays(request: CourseRequest, services: Services) -> tuple[Blackout, ...]:
    if request.holidays is None:
        return ()
    today = services.clock.now().date()
    with services.slow_verbs.place():  # a file with many rules takes seconds
        return read_holidays(request.holidays, zone=request.holidays_zone, today=today)


@mirrors(Stretch, "begins starts ends")
class StretchView(View):
    """When a step is announced, starts and ends; null if unknown."""


@mirrors(PlannedShare)
class PlannedShareView(View):
    """One update domain of one scope; `available` of the `members` stay available meanwhile."""


@mirrors(PlannedStep)
class PlannedStepView(View):
    """One step with its times; null if it never begins or the time is unknown."""

    shares: tuple[PlannedShareView, ...]
    earliest: StretchView | None
    latest: StretchView | None


@mirrors(Capacity, "scope_id available members percent")
class CapacityView(View):
    """How many members of a set stay available in its worst step."""


@mirrors(Exposure, "out fleet percent places is_by_host sentence")
class ExposureView(View):
    """The maximum number of machines out at once, and in how many places."""


@mirrors(Forecast, "low high samples sentence")
class ForecastView(View):
    """The period in which the Maintenance is likely to end, from past events."""


@mirrors(Conflict, "steps ready opens closes blackouts sentence")
class ConflictView(View):
    """Steps that could begin earlier if the calendar were open longer."""


class PlanErrorView(View):
    """A reason why the Maintenance cannot be started."""

    type: str
    detail: str


class UnpolledView(View):
    """How many virtual machines have not polled in 24 hours, and some of their names."""

    count: int
    names: tuple[str, ...]


@mirrors(Plan)
class PlanView(View):
    """What a Maintenance would do, and when. It cannot be started while there are errors."""

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
