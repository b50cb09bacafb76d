"""The walk through many virtual machines, one update domain at a time.

It keeps no plan of its own. Which steps remain follows from the fleet as it is now and from the
events the Maintenance has created so far, so it can be interrupted after any step and resumed by
anyone who has read both from the store.

The invariant: no scope ever has announced platform events of two update domains in flight because
of a Maintenance. It holds because a step begins only when every scope it touches is quiet, and
because the steps of one scope never overtake each other. A host that has come to carry two update
domains of a scope gets no turn before that is mended.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from math import ceil

from forewarn.domain.course import Course
from forewarn.domain.errors import (
    CapacityError,
    MaintenanceOverError,
    PlanError,
    SharedHostError,
)
from forewarn.domain.event import Draft, ScheduledEvent, Share
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.domain.topology import (
    ScopeKind,
    Topology,
    VirtualMachine,
    share_out,
    split_by_update_domain,
)
from forewarn.protocol.vocabulary import EventSource, EventType


class MaintenanceOutcome(StrEnum):
    """How a Maintenance ended. It is INCOMPLETE if something that failed stays undone."""

    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"


class Resolution(StrEnum):
    """What the operator decided about something that failed or was canceled."""

    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrder:
    """What an operator wants done, and to what: to virtual machines or scopes, or to hosts.

    Those are selected by name, and those that carry all of *labels* or *host_labels* besides.
    """

    event_type: EventType
    scopes: tuple[str, ...] = ()
    virtual_machines: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    host_labels: Mapping[str, str] = field(default_factory=dict)
    description: str = "Host server is undergoing maintenance."
    duration_in_seconds: int | None = None
    course: Course = field(default_factory=Course)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """An operator's intent: for *resources*, or for whatever *hosts* carry when their turn comes.

    *resolutions* are what the operator decided about events and host operations that ended badly,
    by their ids. *schedule* is the name of the one that began it, if any.
    """

    maintenance_id: MaintenanceId
    event_type: EventType
    started_at: datetime
    description: str = ""
    duration_in_seconds: int | None = None
    resources: tuple[VmName, ...] = ()
    hosts: tuple[HostName, ...] = ()
    course: Course = field(default_factory=Course)
    is_paused: bool = False
    is_aborted: bool = False
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    resumed_at: datetime | None = None
    finished_at: datetime | None = None
    schedule: str = ""
    outcome: MaintenanceOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is announced in one go: one update domain of one scope, or one host."""

    host: HostName | None = None
    shares: tuple[Share, ...]
    scope_ids: frozenset[ScopeId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Made once, for every brake asks for it.
        scope_ids = frozenset(share.scope_id for share in self.shares)
        object.__setattr__(self, "scope_ids", scope_ids)

    @property
    def is_safe(self) -> bool:
        """Whether the host carries one update domain of each scope at most."""
        return len(self.scope_ids) == len(self.shares)

    @property
    def place(self) -> HostName | ScopeId:
        """The host, or the one scope, that this is a step of."""
        return self.host or self.shares[0].scope_id


def plan_errors(
    maintenance: Maintenance, topology: Topology, steps: Iterable[Step]
) -> Iterator[PlanError]:
    """Yield everything that keeps *steps* from ever being walked, but for the calendar."""
    sizes = set_sizes(topology)
    for step in steps:
        yield from shared_hosts(step)
        for share in (share for share in step.shares if share.scope_id in sizes):
            lost = lost_capacity(maintenance.course, sizes[share.scope_id], share.resources)
            if lost:
                yield CapacityError(share.scope_id, share.update_domain, lost)


def shared_hosts(step: Step) -> Iterator[SharedHostError]:
    """Yield each scope of which the host of *step* carries two update domains."""
    domains = Counter(share.scope_id for share in step.shares)
    for scope_id, number in domains.items():
        if step.host is not None and number > 1:
            shares = (share for share in step.shares if share.scope_id == scope_id)
            vms = tuple(vm for share in shares for vm in share.resources)
            yield SharedHostError(step.host, scope_id, vms)


def remaining_steps(
    maintenance: Maintenance,
    topology: Topology,
    events: Iterable[ScheduledEvent] = (),
    operations: Iterable[HostOperation] = (),
) -> tuple[Step, ...]:
    """Return the steps that *maintenance* has not begun yet, in order.

    Whatever has left the fleet needs none. A host has one turn, and another one if the first is to
    be retried.
    """
    if maintenance.hosts:
        turns_had = {
            operation.host
            for operation in own_operations(maintenance, operations)
            if not is_retried(maintenance, operation.operation_id)
        }
        hosts = [host for host in maintenance.hosts if host not in turns_had]
        steps = _host_steps(hosts, topology)
    else:
        handled = {
            vm
            for event in own_events(maintenance, events)
            if not is_retried(maintenance, event.event_id)
            for vm in event.resources
        }
        vms = [vm for vm in maintenance.resources if vm not in handled]
        steps = _scope_steps(vms, topology)
    return tuple(sorted(steps, key=lambda step: _turn(maintenance.course, step)))


def is_in_the_way(event: ScheduledEvent) -> bool:
    """Tell whether no step begins in the scope of *event*: it is in flight, and was planned.

    User operations and failures that went straight to Started do not count. Whoever came to a host
    that had started was told at once, but is out because of a Maintenance all the same.
    """
    is_planned = event.is_announced or event.operation_id is not None
    return event.is_in_flight and is_planned and event.event_source is EventSource.PLATFORM


def is_canary(course: Course, part: Step | ScheduledEvent) -> bool:
    """Tell whether *part* is, or was, to go first."""
    scope_ids = part.scope_ids if isinstance(part, Step) else {part.scope_id}
    return part.host in course.canary or not scope_ids.isdisjoint(course.canary)


def canary_parts(
    course: Course, own: Collection[ScheduledEvent], operations: Iterable[HostOperation]
) -> tuple[tuple[ScheduledEvent, ...], tuple[HostOperation, ...]]:
    """Return those of a Maintenance's *own* events and *operations* whose step was to go first.

    By host that is all of a host's events, if only one of them is in a scope that is a canary.
    """
    hosts = {event.host for event in own if event.host and is_canary(course, event)}
    events = tuple(event for event in own if event.host in hosts or is_canary(course, event))
    return events, tuple(each for each in operations if each.host in hosts.union(course.canary))


def set_sizes(topology: Topology) -> Counter[ScopeId]:
    """Return how many are in each set. A standalone virtual machine is in none."""
    return Counter(
        vm.scope_id
        for vm in topology.virtual_machines.values()
        if topology.scopes[vm.scope_id].kind is not ScopeKind.VIRTUAL_MACHINE
    )


def lost_capacity(course: Course, members: int, down: Collection[VmName]) -> str | None:
    """Say how many of *members* are left without those *down*, if they are too few."""
    left, needed = members - len(down), ceil(members * course.min_available / 100)
    if left >= needed:
        return None
    return f"{left} of {members} would stay available, but the minimum is {needed}"


def own_events(
    maintenance: Maintenance, events: Iterable[ScheduledEvent]
) -> Iterator[ScheduledEvent]:
    """Yield those of *events* that *maintenance* has created."""
    return (event for event in events if event.maintenance_id == maintenance.maintenance_id)


def own_operations(
    maintenance: Maintenance, operations: Iterable[HostOperation]
) -> Iterator[HostOperation]:
    """Yield those of *operations* that *maintenance* has begun."""
    return (each for each in operations if each.maintenance_id == maintenance.maintenance_id)


def soaks_until(maintenance: Maintenance, event: ScheduledEvent, *, speed: float) -> datetime:
    """Return until when the scope of *event*, which has ended, is left alone after it.

    What was withdrawn had no impact, so nothing has to soak.
    """
    ended_at = event.ended_at or event.created_at
    return ended_at if event.outcome is None else ended_at + maintenance.course.soak / speed


def draft_events(
    maintenance: Maintenance, step: Step, operation_id: OperationId | None = None
) -> tuple[Draft, ...]:
    """Return the events that announce *step*; by host they are of one host operation."""
    return tuple(
        draft_event(maintenance, share, host=step.host, operation_id=operation_id)
        for share in step.shares
    )


def draft_event(
    maintenance: Maintenance,
    share: Share,
    *,
    host: HostName | None = None,
    operation_id: OperationId | None = None,
) -> Draft:
    """Return the event that announces *maintenance* to *share*."""
    return Draft(
        event_type=maintenance.event_type,
        event_source=EventSource.PLATFORM,
        share=share,
        description=maintenance.description,
        duration_in_seconds=maintenance.duration_in_seconds,
        maintenance_id=maintenance.maintenance_id,
        host=host,
        operation_id=operation_id,
    )


def set_course(maintenance: Maintenance, course: Course) -> Maintenance:
    """Have it go by *course*; unless that says how many, it takes one host at a time."""
    if maintenance.hosts and course.at_once is None:
        course = replace(course, at_once=1)
    return replace(maintenance, course=course)


def pause(maintenance: Maintenance) -> Maintenance:
    """Begin no further step. What is announced takes its course."""
    check_under_way(maintenance)
    return replace(maintenance, is_paused=True)


def resume(maintenance: Maintenance, *, now: datetime) -> Maintenance:
    """Continue after a pause, and ask shut gates again. Failures still hold."""
    check_under_way(maintenance)
    return replace(maintenance, is_paused=False, resumed_at=now)


def abort(maintenance: Maintenance) -> Maintenance:
    """Begin no further step, ever. Announced events are withdrawn, started ones run out."""
    if maintenance.is_aborted:
        raise MaintenanceOverError(maintenance.maintenance_id, "is already aborted")
    check_under_way(maintenance)
    return replace(maintenance, is_aborted=True)


def is_retried(maintenance: Maintenance, key: str) -> bool:
    """Tell whether what ended badly, an event or a host operation, is to be tried again."""
    return maintenance.resolutions.get(key) is Resolution.RETRY


def check_under_way(maintenance: Maintenance) -> None:
    """Refuse to steer a Maintenance that is over."""
    if maintenance.is_aborted or maintenance.finished_at:
        raise MaintenanceOverError(maintenance.maintenance_id)


def _turn(course: Course, step: Step) -> tuple[bool, int]:
    # Canaries first, then by the lowest update domain they touch; the rest stays in fleet order,
    # for a sort is stable.
    domains = (share.update_domain for share in step.shares)
    return not is_canary(course, step), min(domains, default=0)


def _host_steps(hosts: Iterable[HostName], topology: Topology) -> list[Step]:
    carried: dict[HostName, list[VirtualMachine]] = {host: [] for host in hosts}
    for vm in topology.virtual_machines.values():
        if vm.host in carried:
            carried[vm.host].append(vm)
    return [
        Step(host=host, shares=share_out(vms))
        for host, vms in carried.items()
        if host in topology.hosts
    ]


def _scope_steps(vms: Iterable[VmName], topology: Topology) -> list[Step]:
    present = [vm for vm in vms if vm in topology.virtual_machines]
    return [Step(shares=(share,)) for share in split_by_update_domain(topology, present)]
