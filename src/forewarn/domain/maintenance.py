"""The walk through many virtual machines, one update domain at a time.

It keeps no plan of its own. Which steps remain follows from the fleet as it is now and from the
events the Maintenance has created so far, so it can be interrupted after any step and resumed by
anyone who has read both from the store.

The invariant: no scope ever has announced platform events of two update domains in flight because
of a Maintenance. It holds because a step begins only when every scope it touches is quiet, and
because the steps of one scope never overtake each other.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from forewarn.domain.errors import EmptySelectionError, SharedHostError
from forewarn.domain.event import Draft, Outcome, ScheduledEvent, Share
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.topology import Topology, split_by_update_domain
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType


class MaintenanceStatus(StrEnum):
    """Where a Maintenance is."""

    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    ABORTING = "aborting"
    ABORTED = "aborted"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """An operator's intent: for *resources*, or for whatever *hosts* carry when their turn comes.

    *released* are the events that ended badly and that the operator has looked after.
    """

    maintenance_id: MaintenanceId
    event_type: EventType
    description: str = ""
    duration_in_seconds: int | None = None
    resources: tuple[VmName, ...] = ()
    hosts: tuple[HostName, ...] = ()
    hold_all: bool = False
    is_paused: bool = False
    is_aborted: bool = False
    released: frozenset[EventId] = frozenset()
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is announced in one go: one update domain of one scope, or one host."""

    host: HostName | None = None
    shares: tuple[Share, ...]

    @property
    def scope_ids(self) -> frozenset[ScopeId]:
        return frozenset(share.scope_id for share in self.shares)


def plan(maintenance: Maintenance, topology: Topology) -> tuple[Step, ...]:
    """Return every step of *maintenance* in order, or the reason it cannot be walked."""
    steps = remaining_steps(maintenance, topology, events=())
    if not steps:
        raise EmptySelectionError
    _check_hosts(steps)
    return steps


def remaining_steps(
    maintenance: Maintenance, topology: Topology, events: Iterable[ScheduledEvent]
) -> tuple[Step, ...]:
    """Return the steps for which *maintenance* has not created events yet, in order."""
    handled = {
        (event.host, vm) for event in own_events(maintenance, events) for vm in event.resources
    }
    if maintenance.hosts:
        steps = _host_steps(maintenance.hosts, topology, handled)
    else:
        steps = _scope_steps(maintenance.resources, topology, handled)
    # Ascending update domains; the sort is stable, so the rest stays in fleet order.
    return tuple(sorted(steps, key=lambda step: min(part.update_domain for part in step.shares)))


def next_steps(
    maintenance: Maintenance,
    topology: Topology,
    events: Collection[ScheduledEvent],
    occupied: dict[ScopeId, set[int]],
) -> tuple[Step, ...]:
    """Return the steps that may be announced now, all of them together.

    *events* are all that *maintenance* has created, *occupied* is what anybody has in flight.
    """
    if maintenance.is_paused or maintenance.is_aborted:
        return ()
    held = held_scopes(maintenance, events).keys()
    if held and maintenance.hold_all:
        return ()
    own = {event.scope_id for event in own_events(maintenance, events) if event.is_in_flight}
    busy = held | own
    allowed = []
    for step in remaining_steps(maintenance, topology, events):
        if busy.isdisjoint(step.scope_ids) and not _would_overlap(step, occupied):
            allowed.append(step)
        # Also when it has to wait: later steps of its scopes must not overtake it.
        busy |= step.scope_ids
    return tuple(allowed)


def occupied_domains(events: Iterable[ScheduledEvent]) -> dict[ScopeId, set[int]]:
    """Return the update domains of each scope that have something announced in flight.

    User operations and failures that went straight to Started do not count: nobody planned them.
    """
    occupied: dict[ScopeId, set[int]] = {}
    for event in events:
        if event.is_in_flight and event.is_announced and event.event_source is EventSource.PLATFORM:
            occupied.setdefault(event.scope_id, set()).add(event.update_domain)
    return occupied


def own_events(
    maintenance: Maintenance, events: Iterable[ScheduledEvent]
) -> Iterator[ScheduledEvent]:
    """Yield those of *events* that *maintenance* has created."""
    return (event for event in events if event.maintenance_id == maintenance.maintenance_id)


def held_scopes(
    maintenance: Maintenance, events: Iterable[ScheduledEvent]
) -> dict[ScopeId, ScheduledEvent]:
    """Return the scopes that do not go on, each with an event that failed or was canceled."""
    return {event.scope_id: event for event in _unreleased(maintenance, events)}


def status(
    maintenance: Maintenance, topology: Topology, events: Collection[ScheduledEvent]
) -> MaintenanceStatus:
    """Say where *maintenance* is, from the same facts the walk goes by."""
    in_flight = any(event.is_in_flight for event in own_events(maintenance, events))
    if maintenance.is_aborted:
        return MaintenanceStatus.ABORTING if in_flight else MaintenanceStatus.ABORTED
    remaining = remaining_steps(maintenance, topology, events)
    if not remaining:
        return MaintenanceStatus.RUNNING if in_flight else MaintenanceStatus.COMPLETED
    if maintenance.is_paused:
        return MaintenanceStatus.PAUSED
    held = held_scopes(maintenance, events).keys()
    every_step_held = not any(held.isdisjoint(step.scope_ids) for step in remaining)
    if held and not in_flight and (every_step_held or maintenance.hold_all):
        return MaintenanceStatus.HELD
    return MaintenanceStatus.RUNNING


def draft_events(maintenance: Maintenance, step: Step) -> tuple[Draft, ...]:
    """Return the events that announce *step*."""
    return tuple(
        Draft(
            event_type=maintenance.event_type,
            event_source=EventSource.PLATFORM,
            share=share,
            description=maintenance.description,
            duration_in_seconds=maintenance.duration_in_seconds,
            maintenance_id=maintenance.maintenance_id,
            host=step.host,
        )
        for share in step.shares
    )


def pause(maintenance: Maintenance) -> Maintenance:
    """Begin no further step. What is announced takes its course."""
    return replace(maintenance, is_paused=True)


def resume(maintenance: Maintenance, events: Iterable[ScheduledEvent]) -> Maintenance:
    """Go on, also in the scopes that hold: the operator has looked after what failed there."""
    looked_after = {event.event_id for event in _unreleased(maintenance, events)}
    return replace(maintenance, is_paused=False, released=maintenance.released | looked_after)


def abort(maintenance: Maintenance) -> Maintenance:
    """Begin no further step, ever. Announced events are withdrawn, started ones run out."""
    return replace(maintenance, is_aborted=True)


def _host_steps(
    hosts: Iterable[HostName],
    topology: Topology,
    handled: Collection[tuple[HostName | None, VmName]],
) -> list[Step]:
    carried: dict[HostName, list[VmName]] = {host: [] for host in hosts}
    for vm in topology.virtual_machines.values():
        if vm.host in carried and (vm.host, vm.name) not in handled:
            carried[vm.host].append(vm.name)
    return [
        Step(host=host, shares=shares)
        for host, names in carried.items()
        for shares in _safe_together(split_by_update_domain(topology, names))
    ]


def _scope_steps(
    resources: Iterable[VmName],
    topology: Topology,
    handled: Collection[tuple[HostName | None, VmName]],
) -> list[Step]:
    # A virtual machine that has left the fleet since needs no maintenance.
    names = [
        vm for vm in resources if vm in topology.virtual_machines and (None, vm) not in handled
    ]
    return [Step(shares=(share,)) for share in split_by_update_domain(topology, names)]


def _safe_together(shares: Iterable[Share]) -> list[tuple[Share, ...]]:
    # One group unless the host carries two update domains of a scope. `plan` refuses that, but a
    # virtual machine may move during the walk, and then the second domain has to come later.
    groups: list[dict[ScopeId, Share]] = []
    for share in sorted(shares, key=lambda share: share.update_domain):
        group = next((group for group in groups if share.scope_id not in group), None)
        if group is None:
            group = {}
            groups.append(group)
        group[share.scope_id] = share
    return [tuple(group.values()) for group in groups]


def _check_hosts(steps: Iterable[Step]) -> None:
    seen: dict[tuple[HostName, ScopeId], tuple[VmName, ...]] = {}
    for step in steps:
        if step.host is None:
            continue
        for share in step.shares:
            others = seen.setdefault((step.host, share.scope_id), share.resources)
            if others is not share.resources:
                raise SharedHostError(step.host, share.scope_id, (*others, *share.resources))


def _would_overlap(step: Step, occupied: dict[ScopeId, set[int]]) -> bool:
    return any(occupied.get(share.scope_id, set()) - {share.update_domain} for share in step.shares)


def _unreleased(
    maintenance: Maintenance, events: Iterable[ScheduledEvent]
) -> Iterator[ScheduledEvent]:
    return (
        event
        for event in own_events(maintenance, events)
        if event.event_id not in maintenance.released
        and (event.outcome is Outcome.FAILED or event.event_status is EventStatus.CANCELED)
    )
