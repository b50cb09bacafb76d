"""Virtual machines as cells: how each is, in a word, a mark and what a pointer or focus tells."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.domain.host_operation import HostOperation
from forewarn.domain.machine_states import Involvement, MachineState, find_involved, state_of
from forewarn.domain.names import HostName, VmName
from forewarn.domain.phrases import say_moment
from forewarn.domain.topology import Topology, VirtualMachine
from forewarn.operations.enabling import find_unpolled
from forewarn.operations.tasks import find_impacts
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventStatus

STATE_LABELS: Final[Mapping[MachineState, str]] = {
    MachineState.IN_SERVICE: "In service",
    MachineState.SCHEDULED: "Scheduled",
    MachineState.APPROVED: "Approved, waiting to start",
    MachineState.STARTED: "Started",
    MachineState.HELD: "Overdue or held",
    MachineState.UNPOLLED: "Not polled for 24 h",
}
"""What each state is called, in the order of the legend."""
STATE_TONES: Final[Mapping[MachineState, str]] = {
    MachineState.IN_SERVICE: "ok",
    MachineState.SCHEDULED: "scheduled",
    MachineState.APPROVED: "waiting",
    MachineState.STARTED: "started",
    MachineState.HELD: "failed",
    MachineState.UNPOLLED: "quiet",
}
"""In which tone a badge says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One virtual machine in a grid, and what is told about it."""

    name: VmName
    state: MachineState
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCount:
    """How many virtual machines are in one state."""

    state: MachineState
    label: str
    tone: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSight:
    """The fleet as a visitor may see it, at one moment."""

    topology: Topology
    involved: Mapping[VmName, Involvement]
    unpolled: frozenset[VmName]
    at_work: Mapping[HostName, HostOperation]

    def state_of(self, vm: VirtualMachine) -> MachineState:
        """Return how *vm* is."""
        return state_of(vm.name, self.involved, is_unpolled=vm.name in self.unpolled)

    def cells(self, vms: Iterable[VirtualMachine], most: int) -> tuple[Cell, ...]:
        """Return *most* of *vms* as cells: those in events first if there are more, else all."""
        listed: Sequence[VirtualMachine] = [*vms]
        if len(listed) > most:
            listed = sorted(listed, key=lambda vm: vm.name not in self.involved)[:most]
        return tuple(self._cell(vm) for vm in listed)

    def count(self, vms: Iterable[VirtualMachine]) -> tuple[StateCount, ...]:
        """Count *vms* by state, in the order of the legend."""
        numbers = Counter(map(self.state_of, vms))
        return tuple(
            StateCount(state=state, label=label, tone=STATE_TONES[state], number=numbers[state])
            for state, label in STATE_LABELS.items()
            if numbers[state]
        )

    def _cell(self, vm: VirtualMachine) -> Cell:
        state = self.state_of(vm)
        return Cell(name=vm.name, state=state, tip=self._tell(vm, state))

    def _tell(self, vm: VirtualMachine, state: MachineState) -> str:
        said = STATE_LABELS[state]
        involved = self.involved.get(vm.name)
        if involved is not None:
            event = involved.event
            said = f"{said}: {event.event_type}"
            if event.event_status is EventStatus.SCHEDULED:
                said = f"{said}, NotBefore {say_moment(event.not_before)}"
            if vm.name in self.unpolled:
                said = f"{said}\n{STATE_LABELS[MachineState.UNPOLLED]}"
        place = f"\nHost {vm.host}" if vm.host else ""
        return f"{vm.name}\n{said}{place}"


def look_at_fleet(reading: Reading, now: datetime) -> FleetSight:
    """Return the fleet with the state of each virtual machine."""
    topology = reading.topology()
    impacts = find_impacts(reading)
    return FleetSight(
        topology=topology,
        involved=find_involved(topology, reading.events_in_flight(), impacts, now),
        unpolled=frozenset(find_unpolled(reading, topology.virtual_machines, now)),
        at_work={each.host: each for each in reading.operations_under_way() if not each.is_over},
    )
