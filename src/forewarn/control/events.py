"""/events: announcing them, following them, changing their course, and why they wait."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Annotated, Final, TypedDict, Unpack

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, Field
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Operating, Viewing
from forewarn.control.paging import Paged, Paging
from forewarn.control.routes import CAN_BE_DRY, CHANGES, Key, answer_seen, creates, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.explanations import explain_event_to
from forewarn.desk.schemas import (
    CancelRequest,
    CompleteRequest,
    EventDetailView,
    EventOrderRequest,
    EventsView,
    EventView,
    PostponeRequest,
    View,
    event_detail_view,
    event_view,
    events_view,
)
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.why import Reason
from forewarn.operations.context import Context
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_all_events,
    complete_event,
    create_events,
    find_event,
    postpone_event,
    start_event,
)
from forewarn.operations.inventory import find_vm
from forewarn.operations.repeats import RequestKey
from forewarn.operations.scopes import find_scope_ids
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol import vocabulary
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType
from forewarn.wording.command_lines import say_reason
from forewarn.wording.moments import parse_ahead, parse_past, resolve

router = APIRouter(prefix="/events", tags=["events"], route_class=BodyRoute)

EventIdPath = Annotated[
    EventId, AfterValidator(vocabulary.event_id), Path(description="The EventId, in any case.")
]
Statuses = Annotated[tuple[EventStatus, ...], Query(description="Default: Scheduled and Started.")]
VmQuery = Annotated[str | None, Query()]
ScopeQuery = Annotated[str | None, Query(description="A set, service, scale set or its id.")]
TypeQuery = Annotated[EventType | None, Query()]
Past = Annotated[
    str | None,
    Query(max_length=64, description="2h (ago), 22:00 (the last, in GMT) or 2026-01-05T08:15:00Z."),
]
_COMPLETE: Final = CompleteRequest()
_CANCEL: Final = CancelRequest()
_IN_FLIGHT: Final = tuple(status for status in EventStatus if status.is_visible)
_ENDED: Final = tuple(status for status in EventStatus if not status.is_visible)


class _Narrowing(TypedDict, total=False):
    status: Iterable[EventStatus]
    event_type: EventType | None
    ended: tuple[datetime | None, datetime | None]


@mirrors(Reason, "kind holds sentence vms event_ids since until about")
class ReasonView(View):
    """One fact about an event; the event waits for facts that hold it."""


class ExplanationView(View):
    """Every reason for the state of an event; reasons that hold it come first."""

    event_id: str
    event_status: EventStatus
    is_held: bool
    reasons: tuple[ReasonView, ...]


@router.get("", **lists(EventsView))
def list_events(
    caller: Viewing,
    status: Statuses = (),
    vm: VmQuery = None,
    scope: ScopeQuery = None,
    *,
    paging: Paged,
) -> Response:
    """Return the newest events in flight, or those of *status*; the next page has older ones."""
    return _list(caller, vm, scope, paging, status=status or _IN_FLIGHT)


@router.get("/history", **lists(EventsView))
def list_history(
    caller: Viewing,
    *,
    vm: VmQuery = None,
    scope: ScopeQuery = None,
    event_type: TypeQuery = None,
    since: Past = None,
    until: Past = None,
    paging: Paged,
) -> Response:
    """Return the events that have ended, optionally within a period."""
    now = caller.services.clock.now()
    return _list(
        caller,
        vm,
        scope,
        paging,
        status=_ENDED,
        event_type=event_type,
        ended=(_moment(since, now), _moment(until, now)),
    )


@router.post("", name="event create", **creates(EventsView))
def create(caller: Operating, key: Key, request: EventOrderRequest) -> EventsView:
    """Announce an event, split into one event per update domain."""
    now = caller.context().now
    order = EventOrder(
        event_type=request.event_type,
        resources=tuple(request.resources),
        not_before=None if request.not_before is None else parse_ahead(request.not_before, now),
        duration_in_seconds=request.duration_in_seconds,
        description=request.description,
        started=request.started,
    )
    return caller.write_once(
        key, EventsView, lambda tx, context: events_view(create_events(tx, context, order))
    )


@router.post(
    "/complete-all",
    name="event complete",
    operation_id="complete_all_events",
    dependencies=CAN_BE_DRY,
)
def complete_all(caller: Operating, key: Key) -> EventsView:
    """Complete every Started event."""
    return caller.write_once(
        key, EventsView, lambda tx, context: events_view(complete_all_events(tx, context))
    )


@router.get("/{event_id}", **shows(EventDetailView))
def show_event(caller: Viewing, event_id: EventIdPath) -> Response:
    """Return one event and its history."""
    return answer_seen(caller, lambda reading: _detail(reading, event_id))


@router.post("/{event_id}/approve", name="event approve", dependencies=CHANGES)
def approve(caller: Operating, key: Key, event_id: EventIdPath) -> EventView:
    """Approve an event for all its virtual machines."""
    return _change(caller, key, event_id, approve_event)


@router.post("/{event_id}/postpone", name="event postpone", dependencies=CHANGES)
def postpone(
    caller: Operating, key: Key, event_id: EventIdPath, request: PostponeRequest
) -> EventView:
    """Move an event to a later time, within the policy of its scope."""
    now = caller.context().now
    moment = parse_ahead(request.not_before, now)
    return _change(
        caller,
        key,
        event_id,
        lambda tx, context, wanted: postpone_event(
            tx, context, wanted, resolve(moment, context.now)
        ),
    )


@router.post("/{event_id}/start", name="event start", dependencies=CHANGES)
def start(caller: Operating, key: Key, event_id: EventIdPath) -> EventView:
    """Start an event now, overriding policy, NotBefore and host operation."""
    return _change(caller, key, event_id, start_event)


class CompletedEventView(EventView):
    """One event, after an operator said that its impact is done."""

    impact: str | None = Field(
        description='"done by hand" if the event stays Started until the turn of its host is over.'
    )


@router.post("/{event_id}/complete", name="event complete", dependencies=CHANGES)
def complete(
    caller: Operating, key: Key, event_id: EventIdPath, request: CompleteRequest = _COMPLETE
) -> CompletedEventView:
    """Complete a Started event. While work on its host is to come, only its impact is done."""

    def verb(tx: Transaction, context: Context) -> CompletedEventView:
        event = complete_event(tx, context, event_id, request.outcome, request.reason)
        impact = "done by hand" if event.is_in_flight else None
        return fill(CompletedEventView, event, impact=impact)

    current = partial(_detail, event_id=event_id)
    return caller.write_once(key, CompletedEventView, verb, current=current)


@router.post("/{event_id}/cancel", name="event cancel", dependencies=CHANGES)
def cancel(
    caller: Operating, key: Key, event_id: EventIdPath, request: CancelRequest = _CANCEL
) -> EventView:
    """Withdraw a Scheduled event."""
    verb = partial(cancel_event, reason=request.reason, operation=request.operation)
    return _change(caller, key, event_id, verb)


@router.get("/{event_id}/explain")
def explain(caller: Viewing, event_id: EventIdPath) -> ExplanationView:
    """Return every reason why the event is waiting."""
    found = explain_event_to(caller, event_id)
    return fill(
        ExplanationView,
        found.event,
        is_held=any(reason.holds for reason in found.reasons),
        reasons=[fill(ReasonView, each, sentence=say_reason(each)) for each in found.reasons],
    )


def _change(
    caller: Caller,
    key: RequestKey | None,
    event_id: EventId,
    operation: Callable[[Transaction, Context, EventId], ScheduledEvent],
) -> EventView:
    return caller.write_once(
        key,
        EventView,
        lambda tx, context: event_view(operation(tx, context, event_id)),
        current=lambda reading: _detail(reading, event_id),
    )


def _detail(reading: Reading, event_id: EventId) -> EventDetailView:
    found = find_event(reading, event_id)
    return event_detail_view(found, reading.ledger(found.event_id))


def _list(
    caller: Caller,
    vm: str | None,
    scope: str | None,
    paging: Paging,
    **narrowing: Unpack[_Narrowing],
) -> Response:
    seen = None if paging.after is None else vocabulary.event_id(paging.after)

    def look(reading: Reading) -> tuple[ScheduledEvent, ...]:
        return reading.events(
            vm=None if vm is None else _known_as(reading, vm),
            scope_ids=None if scope is None else _scopes_called(reading, scope),
            older_than=None if seen is None else find_event(reading, seen).event_id,
            limit=paging.limit + 1,
            **narrowing,
        )

    return paging.answer("events", caller.read(look), event_view, "event_id", goes_back=True)


def _moment(text: str | None, now: datetime) -> datetime | None:
    return None if text is None else parse_past(text, now)


def _known_as(reading: Reading, vm: str) -> VmName:
    try:
        return find_vm(reading.topology(), vm).name
    except UnknownVirtualMachineError:
        # It may have left the fleet, and its events stay.
        return VmName(vm)


def _scopes_called(reading: Reading, scope: str) -> tuple[ScopeId, ...]:
    # The same holds for a scope, which is then known by its id.
    return find_scope_ids(reading.topology(), scope) or (ScopeId(scope),)
