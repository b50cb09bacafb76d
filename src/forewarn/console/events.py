"""/events/{event_id}: the life of one event, what it waits for, and what can be done about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from forewarn.console.milestones import draw_life
from forewarn.console.remedies import Way, find_ways
from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    FormError,
    Page,
    PageRoute,
    Visit,
)
from forewarn.desk.explanations import explain_event_to
from forewarn.domain.event import TRANSITIONS, Approver, Outcome, ScheduledEvent, Trigger
from forewarn.domain.impact import Impact
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, VmName
from forewarn.domain.phrases import say_names
from forewarn.domain.policy import (
    Policy,
    is_approved,
    is_postponable,
    latest_not_before,
    missing_approvals,
)
from forewarn.domain.scenario import likely_impact
from forewarn.domain.why import Reason
from forewarn.operations.context import Context
from forewarn.operations.events import (
    approve_event,
    cancel_event,
    complete_event,
    find_event,
    postpone_event,
    start_event,
)
from forewarn.operations.seen import show_versions
from forewarn.operations.tasks import find_impacts
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventStatus, event_id
from forewarn.wording.moments import parse_ahead, resolve

_RESOURCES: Final = 50
"""How many virtual machines are shown one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLine:
    """One virtual machine of an event: where it is, whether it has approved, and its impact."""

    vm: VmName
    host: HostName | None
    is_here: bool
    approved_at: datetime | None
    is_missing: bool
    impact: Impact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDocument:
    """What virtual machines read in one api-version, and whether this event is in it."""

    version: str
    body: str
    has_event: bool
    is_newest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonLine:
    """One thing to know about an event, and where something can be done about it."""

    reason: Reason
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """All that one look at the store says about an event."""

    event: ScheduledEvent
    policy: Policy
    ledger: tuple[LedgerEntry, ...]
    resources: tuple[ResourceLine, ...]
    maintenance: Maintenance | None
    partners: int
    documents: tuple[ShownDocument, ...]
    incarnation: int


def show_event(visit: Visit) -> Page:
    """Show one event."""
    wanted, now = _wanted(visit), visit.now
    found = visit.read(lambda reading: _look(reading, wanted))
    reasons = explain_event_to(visit.caller, wanted).reasons
    event, rules = found.event, visit.caller.context().rules
    lasts = likely_impact(event, is_simulated=rules.is_simulated, speed=rules.speed)
    return Page(
        title=f"{event.event_type} of {event.resources[0]}",
        template="event.html",
        values={
            "event": event,
            "look": found,
            "milestones": draw_life(event, found.policy, now, lasts),
            "reasons": [ReasonLine(reason=each, ways=_ways(each, event)) for each in reasons],
            "operators": [x for x in event.approvals if x.approver is Approver.OPERATOR],
            "resources": found.resources,
            "more_resources": max(0, len(event.resources) - _RESOURCES),
            "possible": _possible(event, found.policy, now),
            "latest": latest_not_before(event, found.policy, speed=rules.speed),
        },
    )


def _wanted(visit: Visit) -> EventId:
    return event_id(visit.path_values["event_id"])


def _look(reading: Reading, wanted: EventId) -> _Look:
    event = find_event(reading, wanted)
    # An event of long ago may have outlived its scope.
    scope = reading.topology().scopes.get(event.scope_id)
    policy = scope.policy if scope else Policy()
    maintenance_id = event.maintenance_id
    return _Look(
        event=event,
        policy=policy,
        ledger=reading.ledger(event.event_id),
        resources=_resources(reading, event, policy),
        maintenance=reading.maintenance(maintenance_id) if maintenance_id else None,
        partners=_count_partners(reading, event),
        documents=_documents(reading, event) if scope else (),
        incarnation=reading.document(event.scope_id).document_incarnation,
    )


def _resources(reading: Reading, event: ScheduledEvent, policy: Policy) -> tuple[ResourceLine, ...]:
    fleet = reading.topology().virtual_machines
    impacts = find_impacts(reading) if event.is_in_flight else {}
    approved = {each.name: each.approved_at for each in event.approvals}
    is_scheduled = event.event_status is EventStatus.SCHEDULED
    missing = missing_approvals(event, policy.approval) if is_scheduled else ()
    return tuple(
        ResourceLine(
            vm=vm,
            host=fleet[vm].host if vm in fleet else None,
            is_here=vm in fleet,
            approved_at=approved.get(vm),
            is_missing=vm in missing,
            impact=impacts.get((event.event_id, vm)),
        )
        for vm in event.resources[:_RESOURCES]
    )


def _count_partners(reading: Reading, event: ScheduledEvent) -> int:
    """Return how many other events in flight are of the same host operation."""
    if event.operation_id is None or not event.is_in_flight:
        return 0
    return sum(
        other.operation_id == event.operation_id and other.event_id != event.event_id
        for other in reading.events_in_flight()
    )


def _documents(reading: Reading, event: ScheduledEvent) -> tuple[ShownDocument, ...]:
    """Return the documents of its scope, the newest api-version first."""
    shown = show_versions(reading, event.scope_id)
    return tuple(
        ShownDocument(
            version=version,
            body=body.decode("ascii"),
            has_event=event.event_id.encode() in body,
            is_newest=version == NEWEST.name,
        )
        for version, body in reversed(tuple(shown.items()))
    )


def _possible(event: ScheduledEvent, policy: Policy, now: datetime) -> frozenset[Trigger]:
    """Return what can be done to *event* as it is now."""
    possible = {trigger for status, trigger in TRANSITIONS if status is event.event_status}
    if is_approved(event, policy):
        possible.discard(Trigger.APPROVE)
    if not is_postponable(event, policy, now):
        possible.discard(Trigger.POSTPONE)
    return frozenset(possible)


def _ways(reason: Reason, event: ScheduledEvent) -> tuple[Way, ...]:
    """Return where something can be done about *reason*, but on this page."""
    own = f"/events/{event.event_id}"
    return tuple(way for way in find_ways(reason.remedies) if way.href != own)


def _approve(visit: Visit) -> Done:
    return _do(visit, approve_event, "Approved {}.")


def _start(visit: Visit) -> Done:
    return _do(visit, start_event, "Started {}.")


def _postpone(visit: Visit) -> Done:
    said = visit.form.text("not_before")
    if not said:
        raise FormError("Enter the new time.")
    moment = parse_ahead(said, visit.now)

    def verb(tx: Transaction, context: Context, wanted: EventId) -> ScheduledEvent:
        return postpone_event(tx, context, wanted, resolve(moment, context.now))

    return _do(visit, verb, "Postponed {}.")


def _complete(visit: Visit) -> Done:
    outcome = _OUTCOMES.get(visit.form.text("outcome", Outcome.SUCCEEDED))
    if outcome is None:
        raise FormError("Choose whether it succeeded or failed.")
    verb = partial(complete_event, outcome=outcome, reason=visit.form.reason())
    return _do(visit, verb, "Completed {}.")


def _cancel(visit: Visit) -> Done:
    operation = visit.form.is_set("operation")
    verb = partial(cancel_event, reason=visit.form.reason(), operation=operation)
    return _do(visit, verb, "Canceled {}.")


_OUTCOMES: Final[Mapping[str, Outcome]] = {outcome.value: outcome for outcome in Outcome}


def _do(
    visit: Visit,
    verb: Callable[[Transaction, Context, EventId], ScheduledEvent],
    message: str,
) -> Done:
    wanted = _wanted(visit)
    event = visit.caller.write(lambda tx, context: verb(tx, context, wanted))
    return Done(message=message.format(f"{event.event_type} of {say_names(event.resources)}"))


_ACTS: Final[Mapping[Trigger, Callable[[Visit], Done]]] = {
    Trigger.APPROVE: _approve,
    Trigger.POSTPONE: _postpone,
    Trigger.START: _start,
    Trigger.COMPLETE: _complete,
    Trigger.CANCEL: _cancel,
}

ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/events/{event_id}", show=show_event),
    *(
        ActionRoute(
            path=f"/events/{{event_id}}/{trigger}",
            act=act,
            name=f"event {trigger}",
            subject="event_id",
        )
        for trigger, act in _ACTS.items()
    ),
)
