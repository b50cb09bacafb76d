"""Which events may start, and which of two goes first: a virtual machine has one impact at a time.

An event starts when none of its virtual machines is in another event that has started, and where
the calendar of its Maintenance lets it. The events of a host operation start together, so they wait
together. Of two that could start at the same moment, the older one does.

Operators and failures can start an event beside another one all the same. Then the impact on a
virtual machine that both name begins when that of the other is over; the older one goes first.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from forewarn.domain.actions import StartReason
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_facts import operation_at_work
from forewarn.domain.names import OperationId, VmName
from forewarn.domain.openings import next_start
from forewarn.domain.policy import is_approved
from forewarn.domain.snapshot import Snapshot
from forewarn.protocol.vocabulary import EventId, EventStatus


def due_starts(snapshot: Snapshot, now: datetime) -> dict[EventId, StartReason]:
    """Return the events that start now, each with the reason that it may."""
    together: dict[OperationId | EventId, list[ScheduledEvent]] = {}
    for event in snapshot.events.values():
        if event.event_status is EventStatus.SCHEDULED and not is_withdrawn(event, snapshot):
            together.setdefault(event.operation_id or event.event_id, []).append(event)
    occupied = {*snapshot.started_on, *snapshot.lingering_on}
    starts: dict[EventId, StartReason] = {}
    for events in together.values():
        reasons = [start_reason(event, snapshot, now) for event in events]
        vms = {vm for event in events for vm in event.resources}
        is_free = all(reasons) and occupied.isdisjoint(vms)
        if is_free and next_start(events[0], snapshot, now) == now:
            occupied |= vms
            starts |= {
                event.event_id: reason
                for event, reason in zip(events, reasons, strict=True)
                if reason
            }
    return starts


def start_reason(event: ScheduledEvent, snapshot: Snapshot, now: datetime) -> StartReason | None:
    """Return why *event* may start, as far as that is up to itself."""
    if is_approved(event, snapshot.topology.scopes[event.scope_id].policy):
        return StartReason.APPROVED
    if event.has_reached_not_before(now):
        return StartReason.NOT_BEFORE_REACHED
    return None


def is_withdrawn(event: ScheduledEvent, snapshot: Snapshot) -> bool:
    """Tell whether *event* never starts, as its Maintenance was aborted."""
    maintenance = snapshot.maintenances.get(event.maintenance_id) if event.maintenance_id else None
    return maintenance is not None and maintenance.is_aborted


def impacts_ahead(
    event: ScheduledEvent, vm: VmName, started: Iterable[ScheduledEvent], snapshot: Snapshot
) -> tuple[ScheduledEvent, ...]:
    """Return which of the events *started* on *vm*, oldest first, have their impact before *event*.

    An impact that is reserved ends first, whichever event is older: its owner begins it any moment.
    """
    ahead, is_older = [], True
    for other in started:
        impact = snapshot.impacts.get((other.event_id, vm))
        if other.event_id == event.event_id:
            is_older = False
        elif is_older if impact is None else not impact.is_over:
            ahead.append(other)
    return tuple(ahead)


def events_ahead(
    event: ScheduledEvent, snapshot: Snapshot, starting: Collection[EventId]
) -> tuple[ScheduledEvent, ...]:
    """Return which events have to end before *event*, which is Scheduled, can start.

    Another one that is Scheduled is in the way only at the moment at which it starts: *starting*
    is what `due_starts` says.
    """
    return tuple(
        rival
        for rival in rivals_of(event, snapshot)
        if rival.event_status is EventStatus.STARTED or rival.event_id in starting
    )


def rivals_of(event: ScheduledEvent, snapshot: Snapshot) -> tuple[ScheduledEvent, ...]:
    """Return the other events in flight on virtual machines of *event*, the oldest first."""
    on_vms = (other for vm in event.resources for other in snapshot.in_flight_on.get(vm, ()))
    rivals = {other.event_id: other for other in on_vms if other.event_id != event.event_id}
    return tuple(sorted(rivals.values(), key=lambda other: other.created_at))


def partners_of(event: ScheduledEvent, snapshot: Snapshot) -> tuple[ScheduledEvent, ...]:
    """Return the other events that start together with *event*."""
    if event.operation_id is None:
        return ()
    return tuple(
        other
        for other in snapshot.events_of.get(event.operation_id, ())
        if other.event_status is EventStatus.SCHEDULED and other.event_id != event.event_id
    )


def needing_somebody(event: ScheduledEvent, snapshot: Snapshot) -> tuple[EventId, ...]:
    """Return the events that an operator has to complete, or *event* never ends."""
    if event.event_status is EventStatus.STARTED:
        return tuple(dict.fromkeys(_needing_somebody(event, snapshot)))
    found = (
        event_id
        for each in (event, *partners_of(event, snapshot))
        for vm in each.resources
        for other in snapshot.started_on.get(vm, ())
        for event_id in _needing_somebody(other, snapshot)
    )
    return tuple(dict.fromkeys(found))


def impacts_awaited(
    event: ScheduledEvent, snapshot: Snapshot
) -> dict[VmName, tuple[ScheduledEvent, ...]]:
    """Return whose impact has to be over before that of *event* begins, where there is one."""
    return {
        vm: ahead
        for vm in event.resources
        if (event.event_id, vm) not in snapshot.impacts
        and (ahead := impacts_ahead(event, vm, snapshot.started_on[vm], snapshot))
    }


def _needing_somebody(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[EventId]:
    awaited = impacts_awaited(event, snapshot)
    for vm in event.resources:
        for each in awaited.get(vm, (event,)):
            impact = snapshot.impacts.get((each.event_id, vm))
            # What is done by hand is done by the work on the host, where it has some.
            is_host_work = (
                impact is not None and impact.is_by_hand and operation_at_work(each, snapshot)
            )
            if impact is not None and impact.needs_somebody and not is_host_work:
                yield each.event_id
