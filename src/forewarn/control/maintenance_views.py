"""Maintenances as they travel over the control API."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from forewarn.control.schemas import EventView, Labels, Names, Seconds, Text, View, event_view
from forewarn.desk.services import Services
from forewarn.domain.blockers import Release
from forewarn.domain.course import GATE_PATIENCE, Course
from forewarn.domain.host_operation import HostPhase, OperationOutcome
from forewarn.domain.maintenance import MaintenanceOutcome, Step
from forewarn.domain.order import MaintenanceOrder
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.domain.walk import Brake, BrakeKind
from forewarn.domain.windows import Blackout, Calendar, describe, read_blackout, read_window
from forewarn.files.holidays import read_holidays
from forewarn.operations.maintenances import MaintenanceReport
from forewarn.protocol.vocabulary import EventType

# All are searched for openings, years ahead, while the order is written down and others wait.
Windows = Annotated[list[Text], Field(max_length=50)]
Blackouts = Annotated[list[Text], Field(max_length=1000)]


_FIELDS: Final = {
    "at_once": "at_once",
    "soak_in_seconds": "soak",
    "min_available": "min_available",
    "gates": "gates",
    "gate_patience_in_seconds": "gate_patience",
    "hold_all": "hold_all",
    "in_order": "in_order",
    "notice_outside": "notice_outside",
}
"""What of a course may change while it is under way, beside its calendar, and its name there."""


class CourseRequest(BaseModel):
    """How a Maintenance is to go about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    canary: Names = []
    at_once: Annotated[StrictInt, Field(ge=1)] | None = None
    soak_in_seconds: Seconds = 0
    min_available: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    gates: Names = []
    gate_patience_in_seconds: Seconds = int(GATE_PATIENCE.total_seconds())
    windows: Windows = []
    blackouts: Blackouts = []
    holidays: Annotated[StrictStr, Field(description="The text of an iCalendar file.")] | None = (
        None
    )
    holidays_zone: Text = "UTC"
    hold_all: StrictBool = True
    in_order: StrictBool = False
    notice_outside: StrictBool = False


class MaintenanceOrderRequest(CourseRequest):
    """Begin a Maintenance of scopes and virtual machines, or of hosts."""

    event_type: EventType
    scopes: Names = []
    virtual_machines: Names = []
    labels: Labels = {}
    hosts: Names = []
    host_labels: Labels = {}
    description: Text | None = None
    duration_in_seconds: Seconds | None = None


class CoursePatch(BaseModel):
    """Change the named fields while it is under way; null sets the default (JSON merge patch)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_once: Annotated[StrictInt, Field(ge=1)] | None = None
    soak_in_seconds: Seconds | None = None
    min_available: Annotated[StrictInt, Field(ge=0, le=100)] | None = None
    gates: Names | None = None
    gate_patience_in_seconds: Seconds | None = None
    windows: Windows | None = None
    blackouts: Blackouts | None = None
    hold_all: StrictBool | None = None
    in_order: StrictBool | None = None
    notice_outside: StrictBool | None = None


class PlacesRequest(BaseModel):
    """Failed hosts or scopes by name; all of them if none is named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    places: Names = []


class ShareView(View):
    """Virtual machines of one update domain of one scope."""

    scope_id: str
    update_domain: int
    resources: tuple[str, ...]


class BrakeView(View):
    """What holds a step back, and how it lets go: at `until`, or by progress or by hand only."""

    kind: BrakeKind
    release: Release
    until: datetime | None
    scope_ids: tuple[str, ...]
    event_ids: tuple[str, ...]
    gate: str
    detail: str


class StepView(View):
    """What a Maintenance announces in one go, once nothing holds it back."""

    host: str | None
    shares: tuple[ShareView, ...]
    brakes: tuple[BrakeView, ...]


class FailureView(View):
    """Something that failed or was canceled, and holds until it is retried or skipped."""

    place: str
    host: str | None
    scope_ids: tuple[str, ...]
    event_ids: tuple[str, ...]
    vms: tuple[str, ...]
    ended_at: datetime | None
    ending: str
    reason: str
    is_over: bool


class OperationView(View):
    """One attempt at one host, and how far it is."""

    operation_id: str
    host: str
    created_at: datetime
    phase: HostPhase
    attempt: int
    verify_by: datetime | None
    ended_at: datetime | None
    outcome: OperationOutcome | None
    reason: str


class _IntentView(View):
    """What a Maintenance is to do, and where it is."""

    maintenance_id: str
    event_type: EventType
    status: MaintenanceStatus
    started_at: datetime
    resumed_at: datetime | None
    is_paused: bool
    description: str
    duration_in_seconds: int | None
    resources: tuple[str, ...]
    hosts: tuple[str, ...]


class CourseView(View):
    """How a Maintenance goes about it."""

    canary: tuple[str, ...]
    at_once: int | None
    soak_in_seconds: int
    min_available: int
    gates: tuple[str, ...]
    gate_patience_in_seconds: int
    windows: tuple[str, ...]
    blackouts: tuple[str, ...]
    hold_all: bool
    in_order: bool
    notice_outside: bool


class MaintenanceSummaryView(CourseView, _IntentView):
    """One Maintenance in a list."""

    schedule: str
    finished_at: datetime | None
    outcome: MaintenanceOutcome | None
    places: dict[Standing, int]
    events_in_flight: int
    events_ended: int
    steps_remaining: int


class MaintenanceView(MaintenanceSummaryView):
    """One Maintenance with what it has done, what remains and what holds it."""

    events: tuple[EventView, ...]
    operations: tuple[OperationView, ...]
    remaining: tuple[StepView, ...]
    left_out: Annotated[
        tuple[StepView, ...], Field(description="Steps that never begin: it was aborted.")
    ]
    standings: dict[str, Standing]
    failures: tuple[FailureView, ...]


class BegunMaintenanceView(MaintenanceView):
    """A Maintenance that was just begun, with what it has in common with others."""

    warnings: tuple[str, ...]


class MaintenancesView(View):
    """Every Maintenance, oldest first."""

    maintenances: tuple[MaintenanceSummaryView, ...]


def maintenance_order(request: MaintenanceOrderRequest, services: Services) -> MaintenanceOrder:
    """Return what *request* asks for; holidays that are over by now are left out."""
    order = MaintenanceOrder(
        event_type=request.event_type,
        scopes=tuple(request.scopes),
        virtual_machines=tuple(request.virtual_machines),
        labels=request.labels,
        hosts=tuple(request.hosts),
        host_labels=request.host_labels,
        duration_in_seconds=request.duration_in_seconds,
        course=_read_course(request, _read_holidays(request, services)),
    )
    return order if request.description is None else replace(order, description=request.description)


def course_change(request: CoursePatch) -> Callable[[Course], Course]:
    """Return what makes the course that *request* asks for out of the one there is."""
    given = request.model_dump(exclude_unset=True, include=set(CoursePatch.model_fields))
    read = CourseRequest(**{key: value for key, value in given.items() if value is not None})
    wanted = _read_course(read, ())
    fields = {name: getattr(wanted, name) for key, name in _FIELDS.items() if key in given}

    def change(course: Course) -> Course:
        now, then = course.calendar, wanted.calendar
        calendar = Calendar(
            windows=then.windows if "windows" in given else now.windows,
            blackouts=then.blackouts if "blackouts" in given else now.blackouts,
        )
        return replace(course, calendar=calendar, **fields)

    return change


def course_view(course: Course) -> CourseView:
    """Return how a Maintenance goes about it."""
    return CourseView(
        canary=course.canary,
        at_once=course.at_once,
        soak_in_seconds=int(course.soak.total_seconds()),
        min_available=course.min_available,
        gates=course.gates,
        gate_patience_in_seconds=int(course.gate_patience.total_seconds()),
        windows=tuple(map(describe, course.calendar.windows)),
        blackouts=tuple(map(describe, course.calendar.blackouts)),
        hold_all=course.hold_all,
        in_order=course.in_order,
        notice_outside=course.notice_outside,
    )


def maintenance_summary(report: MaintenanceReport) -> MaintenanceSummaryView:
    """Return *report* as one line of a list."""
    maintenance = report.maintenance
    in_flight = sum(event.is_in_flight for event in report.events)
    return MaintenanceSummaryView(
        maintenance_id=maintenance.maintenance_id,
        event_type=maintenance.event_type,
        status=report.status,
        started_at=maintenance.started_at,
        resumed_at=maintenance.resumed_at,
        is_paused=maintenance.is_paused,
        description=maintenance.description,
        duration_in_seconds=maintenance.duration_in_seconds,
        resources=maintenance.resources,
        hosts=maintenance.hosts,
        **course_view(maintenance.course).model_dump(),
        schedule=maintenance.schedule,
        finished_at=maintenance.finished_at,
        outcome=maintenance.outcome,
        places=dict(Counter(report.standings.values())),
        events_in_flight=in_flight,
        events_ended=len(report.events) - in_flight,
        steps_remaining=len(report.stages),
    )


def maintenance_view(report: MaintenanceReport) -> MaintenanceView:
    """Return all of *report*."""
    return MaintenanceView(
        **maintenance_summary(report).model_dump(),
        events=tuple(map(event_view, report.events)),
        remaining=tuple(_step_view(stage.step, stage.brakes) for stage in report.stages),
        left_out=tuple(map(_step_view, report.left_out)),
        operations=tuple(map(OperationView.model_validate, report.operations)),
        standings={str(place): each for place, each in report.standings.items()},
        failures=tuple(map(FailureView.model_validate, report.failures)),
    )


def _step_view(step: Step, brakes: Iterable[Brake] = ()) -> StepView:
    return StepView(
        host=step.host,
        shares=tuple(map(ShareView.model_validate, step.shares)),
        brakes=tuple(map(BrakeView.model_validate, brakes)),
    )


def _read_holidays(request: CourseRequest, services: Services) -> tuple[Blackout, ...]:
    if request.holidays is None:
        return ()
    today = services.clock.now().date()
    with services.slow_verbs.place():  # a file with many rules takes seconds
        return read_holidays(request.holidays, zone=request.holidays_zone, today=today)


def _read_course(request: CourseRequest, holidays: tuple[Blackout, ...]) -> Course:
    return Course(
        canary=tuple(request.canary),
        at_once=request.at_once,
        soak=timedelta(seconds=request.soak_in_seconds),
        min_available=request.min_available,
        gates=tuple(request.gates),
        gate_patience=timedelta(seconds=request.gate_patience_in_seconds),
        calendar=Calendar(
            windows=tuple(map(read_window, request.windows)),
            blackouts=(*map(read_blackout, request.blackouts), *holidays),
        ),
        hold_all=request.hold_all,
        in_order=request.in_order,
        notice_outside=request.notice_outside,
    )
