"""Schedules as they travel over the control API."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated, Final

from pydantic import Field

from forewarn.control.maintenance_views import (
    CoursePatch,
    CourseView,
    MaintenanceOrderRequest,
    course_change,
    course_view,
    maintenance_order,
)
from forewarn.control.schemas import Text, View
from forewarn.desk.services import Services
from forewarn.domain.order import MaintenanceOrder
from forewarn.domain.recurrence import Opening, describe_recurrence, read_recurrence
from forewarn.domain.schedule import (
    Occurrence,
    OccurrenceOutcome,
    Schedule,
    ScheduleError,
    ScheduleStatus,
    explain_wait,
    upcoming,
)
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.windows import describe
from forewarn.operations.pausing import find_pause
from forewarn.operations.schedules import ScheduleOrder
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventType

UPCOMING: Final = 10
"""How many of the next dates are shown by default."""


class ScheduleOrderRequest(MaintenanceOrderRequest):
    """Begin a Maintenance by itself each time a window opens on one of the days."""

    name: Text
    every: Text = Field(description="Such as day, Tue, first Tue, last Sun, day 15 or 2 weeks.")
    from_date: Text | None = Field(default=None, description="Such as 2026-12-31; else today.")
    until_date: Text | None = Field(default=None, description="The last day, if there is one.")


class OpeningView(View):
    """One date, and the blackout that keeps it free, if any."""

    day: date
    opens_at: datetime
    closes_at: datetime
    blackout: str | None


class OccurrenceView(View):
    """What became of one date: a Maintenance, or the reason why not."""

    opens_at: datetime
    met_at: datetime
    outcome: OccurrenceOutcome
    reason: str
    maintenance_id: str | None


class SchedulePatch(CoursePatch):
    """Change the named fields of a schedule; null sets the default (JSON merge patch)."""

    every: Text = ""
    until_date: Text | None = None


class OrderView(CourseView):
    """What is ordered each time; labels are looked up then."""

    event_type: EventType
    scopes: tuple[str, ...]
    virtual_machines: tuple[str, ...]
    labels: dict[str, str]
    hosts: tuple[str, ...]
    host_labels: dict[str, str]
    description: str
    duration_in_seconds: int | None


class ScheduleSummaryView(View):
    """One schedule in a list."""

    name: str
    status: ScheduleStatus
    every: str
    zone: str
    from_date: date
    until_date: date | None
    created_at: datetime
    maintenance_id: str | None
    next: OpeningView | None
    last: OccurrenceView | None
    waits_for: Annotated[
        str, Field(description="Why a date that is due has not started; else empty.")
    ]
    order: OrderView


class ScheduleView(ScheduleSummaryView):
    """One schedule with its next dates, and what became of the last ones."""

    upcoming: tuple[OpeningView, ...]
    occurrences: tuple[OccurrenceView, ...]


class SchedulesView(View):
    """Every schedule, oldest first."""

    schedules: tuple[ScheduleSummaryView, ...]


def schedule_order(request: ScheduleOrderRequest, services: Services) -> ScheduleOrder:
    """Return what *request* asks for; holidays that are over by now are left out."""
    return ScheduleOrder(
        name=request.name,
        order=maintenance_order(request, services),
        every=read_recurrence(request.every),
        from_date=_read_date(request.from_date),
        until_date=_read_date(request.until_date),
    )


def schedule_change(request: SchedulePatch) -> Callable[[Schedule], Schedule]:
    """Return what makes the schedule that *request* asks for out of the one there is."""
    given = request.model_fields_set
    every = read_recurrence(request.every) if "every" in given else None
    until, course = _read_date(request.until_date), course_change(request)

    def change(schedule: Schedule) -> Schedule:
        return replace(
            schedule,
            order=replace(schedule.order, course=course(schedule.order.course)),
            every=every or schedule.every,
            until_date=until if "until_date" in given else schedule.until_date,
        )

    return change


def schedule_summary(
    schedule: Schedule, now: datetime, pause: ServerPause | None
) -> ScheduleSummaryView:
    """Return *schedule* as one line of a list; *pause* is that of the server, if it is paused."""
    opening = schedule.next_opening
    return ScheduleSummaryView(
        name=schedule.name,
        status=schedule.status,
        every=describe_recurrence(schedule.every),
        zone=schedule.timetable.zone,
        from_date=schedule.from_date,
        until_date=schedule.until_date,
        created_at=schedule.created_at,
        maintenance_id=schedule.maintenance_id,
        next=None if opening is None else _opening_view(opening),
        last=_occurrence_view(schedule.occurrences[-1]) if schedule.occurrences else None,
        waits_for=explain_wait(schedule, pause, now),
        order=_order_view(schedule.order),
    )


def schedule_view(
    reading: Reading, schedule: Schedule, now: datetime, count: int = UPCOMING
) -> ScheduleView:
    """Return all of *schedule*, with the next *count* dates after *now*."""
    return ScheduleView(
        **schedule_summary(schedule, now, find_pause(reading)).model_dump(),
        upcoming=tuple(map(_opening_view, upcoming(schedule, now, count))),
        occurrences=tuple(map(_occurrence_view, schedule.occurrences)),
    )


def _read_date(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ScheduleError(f"{text[:40]!r} is not a date; write 2026-12-31.") from None


def _opening_view(opening: Opening) -> OpeningView:
    return OpeningView(
        day=opening.day,
        opens_at=opening.opens_at,
        closes_at=opening.closes_at,
        blackout=None if opening.blackout is None else describe(opening.blackout),
    )


def _occurrence_view(occurrence: Occurrence) -> OccurrenceView:
    return OccurrenceView.model_validate(occurrence)


def _order_view(order: MaintenanceOrder) -> OrderView:
    return OrderView(
        **course_view(order.course).model_dump(),
        event_type=order.event_type,
        scopes=order.scopes,
        virtual_machines=order.virtual_machines,
        labels=dict(order.labels),
        hosts=order.hosts,
        host_labels=dict(order.host_labels),
        description=order.description,
        duration_in_seconds=order.duration_in_seconds,
    )
