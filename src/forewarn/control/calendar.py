"""/calendar.ics: what is planned, for calendars that subscribe to it (RFC 5545)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from icalendar import Calendar, Event

from forewarn.control.caller import Viewing
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import names_scope
from forewarn.operations.maintenances import UnknownSelectionError
from forewarn.ports.store import LedgerEntry, Reading
from forewarn.protocol.vocabulary import EventStatus

router = APIRouter(tags=["calendar"])

_STATUSES: Final = {
    EventStatus.SCHEDULED: "TENTATIVE",
    EventStatus.STARTED: "CONFIRMED",
    EventStatus.CANCELED: "CANCELLED",
}


class CalendarResponse(Response):
    """An answer that calendars understand."""

    media_type = "text/calendar"


@router.get("/calendar.ics", response_class=CalendarResponse)
def show_calendar(
    caller: Viewing,
    scope: Annotated[str | None, Query(description="Only events of this scope.")] = None,
) -> CalendarResponse:
    """Return the events in flight, and those that were canceled ahead of their time."""
    now = caller.services.clock.now()
    return CalendarResponse(caller.read(lambda reading: _calendar(reading, scope, now)))


def _calendar(reading: Reading, scope: str | None, now: datetime) -> bytes:
    calendar = Calendar()
    calendar.add("prodid", "-//forewarn//Scheduled Events//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "Scheduled Events" if scope is None else f"{scope}: events")
    for event in _of_scope(reading, scope, (*reading.events_in_flight(), *_gone(reading, now))):
        calendar.add_component(_entry(event, reading.ledger(event.event_id)))
    body: bytes = calendar.to_ical()
    return body


def _gone(reading: Reading, now: datetime) -> list[ScheduledEvent]:
    # Who has it in a calendar has to see that it will not be.
    canceled = reading.events(status=[EventStatus.CANCELED])
    return [event for event in canceled if not event.has_reached_not_before(now)]


def _of_scope(
    reading: Reading, scope: str | None, events: Iterable[ScheduledEvent]
) -> Iterable[ScheduledEvent]:
    if scope is None:
        return events
    if not any(names_scope(scope, known) for known in reading.topology().scopes):
        raise UnknownSelectionError(scope)
    return [event for event in events if names_scope(scope, event.scope_id)]


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
