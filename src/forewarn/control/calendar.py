"""/calendar.ics: what is planned, for calendars that subscribe to it (RFC 5545)."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from icalendar import Calendar, Event

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.domain.event import ScheduledEvent, Share
from forewarn.domain.names import names_place
from forewarn.domain.phrases import say_moment, say_names
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.recurrence import Opening
from forewarn.domain.schedule import Schedule, upcoming
from forewarn.domain.windows import describe
from forewarn.operations.context import Context
from forewarn.operations.planning import foresee_steps
from forewarn.operations.scopes import find_scopes
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.store import Reading
from forewarn.protocol.controls import without_controls
from forewarn.protocol.vocabulary import EventStatus

router = APIRouter(tags=["calendar"], route_class=BodyRoute)

_STATUSES: Final = {
    EventStatus.SCHEDULED: "TENTATIVE",
    EventStatus.STARTED: "CONFIRMED",
    EventStatus.CANCELED: "CANCELLED",
}


_DATES: Final = 10
"""How many of the next dates of each schedule are shown."""


class CalendarResponse(Response):
    """An answer that calendars understand."""

    media_type = "text/calendar"


@router.get("/calendar.ics", response_class=CalendarResponse)
def show_calendar(
    caller: Viewing,
    scope: Annotated[str | None, Query(description="Only events of this scope.")] = None,
) -> CalendarResponse:
    """Return events in flight or canceled early, future steps, and schedules."""
    context = caller.context()
    return CalendarResponse(caller.read(lambda reading: _calendar(reading, scope, context)))


def _calendar(reading: Reading, scope: str | None, context: Context) -> bytes:
    calendar = Calendar()
    calendar.add("prodid", "-//forewarn//Scheduled Events//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "Scheduled Events" if scope is None else f"{scope}: events")
    _check_scope(reading, scope)
    for event in (*reading.events_in_flight(), *_gone(reading, context.now)):
        if scope is None or names_place(scope, event.scope_id):
            calendar.add_component(_entry(event, reading.ledger(event.event_id)))
    for foreseen in foresee_steps(reading, context):
        if scope is None or any(names_place(scope, each) for each in foreseen.step.scope_ids):
            calendar.add_component(_foreseen_entry(foreseen, context.now))
    # Labels may select any scope by then, so the calendar of one scope has no schedules.
    for schedule in reading.schedules() if scope is None else ():
        if not schedule.is_paused:
            for opening in upcoming(schedule, context.now, _DATES):
                calendar.add_component(_opening_entry(schedule, opening, context.now))
    return without_controls(calendar.to_ical().decode()).encode()


def _gone(reading: Reading, now: datetime) -> list[ScheduledEvent]:
    # Who has it in a calendar has to see that it will not be.
    canceled = reading.events(status=[EventStatus.CANCELED])
    return [event for event in canceled if not event.has_reached_not_before(now)]


def _check_scope(reading: Reading, scope: str | None) -> None:
    if scope is not None:
        find_scopes(reading.topology(), scope)


def _entry(event: ScheduledEvent, ledger: tuple[LedgerEntry, ...]) -> Event:
    entry = Event()
    entry.add("uid", event.event_id)
    entry.add("dtstart", event.started_at or event.not_before)
    if event.duration_in_seconds is not None:
        entry.add("duration", timedelta(seconds=event.duration_in_seconds))
    entry.add("summary", f"{event.event_type} of {', '.join(event.resources)}")
    entry.add("description", event.description)
    entry.add("location", event.scope_id)
    entry.add("status", _STATUSES[event.event_status])
    # Every change is a line of the ledger, so both only ever rise.
    entry.add("sequence", len(ledger) - 1)
    entry.add("dtstamp", ledger[-1].at)
    return entry


def _foreseen_entry(foreseen: ForeseenStep, now: datetime) -> Event:
    maintenance, step, likely = foreseen.maintenance, foreseen.step, foreseen.likely
    vms = [vm for share in step.shares for vm in share.resources]
    entry = Event()
    # The step keeps it however often its times change; once announced, there are events instead.
    entry.add("uid", f"{maintenance.maintenance_id}/{step.host or _place(step.shares[0])}")
    entry.add("dtstart", likely.starts)
    if likely.ends is not None:
        entry.add("dtend", likely.ends)
    entry.add("summary", f"Forecast: {maintenance.event_type} of {step.host or say_names(vms)}")
    entry.add(
        "description",
        f"Not announced yet. Maintenance {maintenance.maintenance_id} is expected to announce it "
        f"at {say_moment(likely.begins)}; this may change. Virtual machines: {say_names(vms)}.",
    )
    entry.add("location", ", ".join(sorted(step.scope_ids)))
    entry.add("status", "TENTATIVE")
    entry.add("sequence", int((now - maintenance.started_at).total_seconds()))
    entry.add("dtstamp", now)
    return entry


def _opening_entry(schedule: Schedule, opening: Opening, now: datetime) -> Event:
    entry = Event()
    entry.add("uid", f"schedule/{schedule.name}/{opening.opens_at.isoformat()}")
    entry.add("dtstart", opening.opens_at)
    entry.add("dtend", opening.closes_at)
    what = f"{schedule.order.event_type} maintenance of schedule {schedule.name}"
    if opening.blackout is None:
        entry.add("summary", f"Schedule: {what}")
        entry.add("description", schedule.order.description)
    else:
        entry.add("summary", f"Blackout: no {what}")
        entry.add("description", f"Skipped: {describe(opening.blackout)}")
    entry.add("status", "TENTATIVE" if opening.blackout is None else "CANCELLED")
    entry.add("sequence", int((now - schedule.created_at).total_seconds()))
    entry.add("dtstamp", now)
    return entry


def _place(share: Share) -> str:
    return f"{share.scope_id}/{share.update_domain}"
