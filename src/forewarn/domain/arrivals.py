"""Virtual machines that come to a host while a Maintenance is at it.

Whoever comes to a host whose operation is announced joins it, with an event and full notice of its
own, and the others wait for that. Onto a host whose operation has started nothing is placed. What
has happened already cannot be refused; then the virtual machine is told at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from forewarn.domain.errors import ConflictError
from forewarn.domain.event import Draft, ScheduledEvent, Share, schedule, start_unannounced
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.maintenance import (
    Maintenance,
    draft_event,
    is_in_the_way,
    lost_capacity,
    set_sizes,
)
from forewarn.domain.names import HostName, VmName
from forewarn.domain.phrases import say_names
from forewarn.domain.policy import usual_notice
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology, split_by_update_domain
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Virtual machines of one update domain of one scope that come to a host in an operation."""

    operation: HostOperation
    maintenance: Maintenance
    share: Share


class HostUnderWayError(ConflictError):
    """A host that takes nobody while a Maintenance is at it."""

    def __init__(self, joining: Joining, reason: str) -> None:
        self.host = joining.operation.host
        self.vms = joining.share.resources
        self.maintenance_id = joining.maintenance.maintenance_id
        super().__init__(
            f"{self.host} is in maintenance {self.maintenance_id}: {reason}. Choose another host "
            f"for {say_names(self.vms)}, wait until the maintenance ends, or record an existing "
            "placement with `as_is`."
        )


def arrivals(before: Topology, after: Topology) -> dict[HostName, list[VmName]]:
    """Return who comes to each host between *before* and *after*: is new, or was elsewhere."""
    known = before.virtual_machines
    coming: dict[HostName, list[VmName]] = {}
    for name in after.revision_of(before).put.virtual_machines:
        vm = after.virtual_machines[name]
        if vm.host is not None and (name not in known or known[name].host != vm.host):
            coming.setdefault(vm.host, []).append(name)
    return coming


def find_joining(snapshot: Snapshot, after: Topology) -> tuple[Joining, ...]:
    """Return who joins a host operation when the fleet of *snapshot* becomes *after*."""
    operations = {
        operation.host: operation
        for operation in snapshot.operations.values()
        if _is_under_way(operation, snapshot) and not _is_withdrawn(operation, snapshot)
    }
    coming = arrivals(snapshot.topology, after) if operations else {}
    return tuple(
        Joining(
            operation=operations[host],
            maintenance=snapshot.maintenances[operations[host].maintenance_id],
            share=share,
        )
        for host, vms in coming.items()
        if host in operations
        for share in split_by_update_domain(after, _untold(vms, operations[host], snapshot))
    )


def _untold(
    vms: Iterable[VmName], operation: HostOperation, snapshot: Snapshot
) -> tuple[VmName, ...]:
    """Return who is in no event of *operation*: whoever it moved away and returns knows of it."""
    return tuple(
        vm
        for vm in vms
        if all(
            event.operation_id != operation.operation_id
            for event in snapshot.in_flight_on.get(vm, ())
        )
    )


def refusals(
    joining: Iterable[Joining], snapshot: Snapshot, after: Topology
) -> Iterator[HostUnderWayError]:
    """Yield why those who join may not be placed there, as far as they may not."""
    for each in joining:
        if each.operation.phase is not HostPhase.ANNOUNCED:
            yield HostUnderWayError(each, "it has started")
        elif _meets_another_update_domain(each, snapshot):
            yield HostUnderWayError(
                each, f"another update domain of {each.share.scope_id} has maintenance announced"
            )
        elif lost := _lost_capacity(each, snapshot, after):
            yield HostUnderWayError(each, f"in {each.share.scope_id}, {lost}")


def join(
    joining: Joining, after: Topology, *, event_id: EventId, now: datetime, speed: float
) -> ScheduledEvent:
    """Return the event that tells those who join: with full notice, or straight as Started."""
    draft: Draft = draft_event(
        joining.maintenance,
        joining.share,
        host=joining.operation.host,
        operation_id=joining.operation.operation_id,
    )
    if joining.operation.phase is not HostPhase.ANNOUNCED:
        return start_unannounced(draft, event_id=event_id, now=now)
    policy = after.scopes[joining.share.scope_id].policy
    notice = usual_notice(draft.event_type, policy, speed=speed)
    return schedule(draft, event_id=event_id, now=now, notice=notice)


def _is_under_way(operation: HostOperation, snapshot: Snapshot) -> bool:
    """Tell whether *operation* is not over, or something of it still runs on the host."""
    return not operation.is_over or operation.operation_id in snapshot.open_of


def _is_withdrawn(operation: HostOperation, snapshot: Snapshot) -> bool:
    """Tell whether nothing happens on the host: *operation* was withdrawn before it started."""
    if operation.phase is not HostPhase.ANNOUNCED:
        return False
    # Its end is recorded by the next decision; until then nobody may bring it back to life.
    is_canceled = not any(
        event.is_in_flight and event.operation_id == operation.operation_id
        for event in snapshot.events.values()
    )
    return is_canceled or snapshot.maintenances[operation.maintenance_id].is_aborted


def _meets_another_update_domain(joining: Joining, snapshot: Snapshot) -> bool:
    share = joining.share
    return any(
        event.scope_id == share.scope_id and event.update_domain != share.update_domain
        for event in filter(is_in_the_way, snapshot.events.values())
    )


def _lost_capacity(joining: Joining, snapshot: Snapshot, after: Topology) -> str | None:
    course, share = joining.maintenance.course, joining.share
    members = set_sizes(after)[share.scope_id] if course.min_available else 0
    down = {
        vm
        for event in snapshot.events.values()
        if event.is_in_flight and event.scope_id == share.scope_id
        for vm in event.resources
    }
    return lost_capacity(course, members, down.union(share.resources)) if members else None
