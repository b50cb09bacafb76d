"""How each virtual machine of the fleet is, in one word: what an operator looks for comes first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.domain.policy import Policy, is_approved
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventStatus


class MachineState(StrEnum):
    """How a virtual machine is; of several that apply, the first counts."""

    HELD = "held"
    STARTED = "started"
    APPROVED = "approved"
    SCHEDULED = "scheduled"
    UNPOLLED = "unpolled"
    IN_SERVICE = "in-service"


_ORDER: Final = {state: number for number, state in enumerate(MachineState)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Involvement:
    """A virtual machine in an event in flight: how it is, and in which."""

    state: MachineState
    event: ScheduledEvent


def find_involved(
    topology: Topology,
    events: Iterable[ScheduledEvent],
    impacts: Mapping[tuple[EventId, VmName], Impact],
    now: datetime,
) -> dict[VmName, Involvement]:
    """Return how the virtual machines are that *events*, all in flight, name.

    Of two events on one virtual machine, the one that needs attention more counts.
    """
    found: dict[VmName, Involvement] = {}
    for event in events:
        state = state_in(event, topology.scopes[event.scope_id].policy, now)
        for vm in event.resources:
            impact = impacts.get((event.event_id, vm))
            own = MachineState.HELD if impact is not None and impact.is_lost else state
            known = found.get(vm)
            if known is None or _ORDER[own] < _ORDER[known.state]:
                found[vm] = Involvement(state=own, event=event)
    return found


def state_of(
    vm: VmName, involved: Mapping[VmName, Involvement], *, is_unpolled: bool
) -> MachineState:
    """Return how *vm* is, which may be *involved* in an event."""
    if vm in involved:
        return involved[vm].state
    return MachineState.UNPOLLED if is_unpolled else MachineState.IN_SERVICE


def state_in(event: ScheduledEvent, policy: Policy, now: datetime) -> MachineState:
    """Return how the virtual machines of *event*, which is in flight, are."""
    if event.event_status is EventStatus.STARTED:
        return MachineState.STARTED if event.overdue_at is None else MachineState.HELD
    if event.has_reached_not_before(now):
        return MachineState.HELD
    return MachineState.APPROVED if is_approved(event, policy) else MachineState.SCHEDULED
