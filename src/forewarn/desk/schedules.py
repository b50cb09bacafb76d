"""Schedules as they are asked for and shown."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from forewarn.desk.courses import CoursePatch, CourseView, describe_course, patch_course
from forewarn.desk.maintenances import MaintenanceOrderRequest, maintenance_order
from forewarn.desk.schemas import Text, View
from forewarn.desk.services import Services
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.recurrence import Opening, describe_recurrence, read_recurrence
from forewarn.domain.schedule import Occurrence, Schedule, ScheduleError, explain_wait, upcoming
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.windows import Blackout, describe
from forewarn.operations.pausing import find_pause
from forewarn.operations.schedules import ScheduleOrder
from forewarn.ports.store import Reading

UPCOMING: Final = 10
"""How many of the next dates are shown by default."""


def _describe(blackout: object) -> object:
    return describe(blackout) if isinstance(blackout, Blackout) else blackout


class ScheduleOrderRequest(MaintenanceOrderRequest):
    """Start a Maintenance automatically when a window opens on one of the days."""

    name: Text
    every: Text = Field(description="For example day, Tue, first Tue, last Sun, day 15 or 2 weeks.")
    from_date: Text | None = Field(
        default=None, description="For example 2026-12-31; default: today."
    )
    until_date: Text | None = Field(default=None, description="Last day; default: none.")


@mirrors(Opening)
class OpeningView(View):
    """One date, and the blackout that cancels it, if any."""

    blackout: Annotated[str | None, BeforeValidator(_describe)]


@mirrors(Occurrence)
class OccurrenceView(View):
    """The outcome of one date: a Maintenance, or the reason for none."""


class SchedulePatch(CoursePatch):
    """Change the named fields of a schedule; null sets the default (JSON merge patch)."""

    every: Text = ""
    until_date: Text | None = None


@mirrors(
    MaintenanceOrder,
    "event_type scopes virtual_machines labels hosts host_labels description duration_in_seconds",
)
class OrderView(CourseView):
    """What each date orders; labels are resolved at that time."""


@mirrors(Schedule, "name status every zone from_date until_date created_at maintenance_id")
class ScheduleSummaryView(View):
    """One schedule in a list."""

    every: str
    zone: str
    next: OpeningView | None
    last: OccurrenceView | None
    waits_for: Annotated[
        str, Field(description="Why a date that is due has not started; else empty.")
    ]
    order: OrderView


class ScheduleView(ScheduleSummaryView):
    """One schedule with its next dates and last outcomes."""

    upcoming: tuple[OpeningView, ...]
    occurrences: tuple[OccurrenceView, ...]


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
    until, course = _read_date(request.until_date), patch_course(request)

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
    return fill(ScheduleSummaryView, schedule, **_further(schedule, now, pause))


def schedule_view(
    reading: Reading, schedule: Schedule, now: datetime, count: int = UPCOMING
) -> ScheduleView:
    """Return all of *schedule*, with the next *count* dates after *now*."""
    further = _further(schedule, now, find_pause(reading))
    return fill(ScheduleView, schedule, **further, upcoming=upcoming(schedule, now, count))


def _further(schedule: Schedule, now: datetime, pause: ServerPause | None) -> dict[str, object]:
    order = schedule.order
    return {
        "every": describe_recurrence(schedule.every),
        "zone": schedule.timetable.zone,
        "next": schedule.next_opening,
        "last": schedule.occurrences[-1] if schedule.occurrences else None,
        "waits_for": explain_wait(schedule, pause, now),
        "order": fill(OrderView, order, **describe_course(order.course)),
    }


def _read_date(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ScheduleError(f"{text[:40]!r} is not a valid date; use YYYY-MM-DD.") from None
