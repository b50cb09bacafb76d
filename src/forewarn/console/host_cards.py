"""Hosts as cards: what each carries, whether it is closed, and what is being done to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from forewarn.console.cells import Cell, FleetSight, StateCount
from forewarn.console.grids import Block, split_block
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.names import HostName, MaintenanceId
from forewarn.domain.topology import Host, VirtualMachine

_MOST_ON_CARD: Final = 120
"""How many virtual machines of one host are shown at most."""

_PHASES: Final[Mapping[HostPhase, str]] = {
    HostPhase.ANNOUNCED: "Maintenance announced",
    HostPhase.IMPACT: "Impacts on virtual machines under way",
    HostPhase.WORK: "Work on the host under way",
    HostPhase.VERIFY: "Checking that the host is back",
    HostPhase.RETURN: "Returning virtual machines",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCard:
    """A host; or, without one, the virtual machines that are on none."""

    host: Host | None
    number: int
    counts: tuple[StateCount, ...]
    cells: tuple[Cell, ...]
    more: int
    work: str = ""
    is_at_work: bool = False
    maintenance_ids: tuple[MaintenanceId, ...] = ()


def group_by_host(vms: Iterable[VirtualMachine], *, hosts: Iterable[HostName]) -> list[Block]:
    """Return *vms* by host, in fleet order; those without come last. All *hosts* are shown."""
    groups: dict[HostName, list[VirtualMachine]] = {name: [] for name in hosts}
    homeless: list[VirtualMachine] = []
    for vm in vms:
        (homeless if vm.host is None else groups.setdefault(vm.host, [])).append(vm)
    blocks = [Block(key=name, vms=carried) for name, carried in groups.items()]
    return [*blocks, *split_block(Block(key=None, vms=homeless))]


def make_card(sight: FleetSight, block: Block) -> HostCard:
    """Return *block* as it is shown."""
    cells = sight.cells(block.vms, _MOST_ON_CARD if block.key else len(block.vms))
    host = sight.topology.hosts[HostName(block.key)] if block.key else None
    operation = sight.at_work.get(host.name) if host else None
    return HostCard(
        host=host,
        number=len(block.vms),
        counts=sight.count(block.vms),
        cells=cells,
        more=len(block.vms) - len(cells),
        work=_PHASES.get(operation.phase, "") if operation else "",
        is_at_work=operation is not None and operation.phase is not HostPhase.ANNOUNCED,
        maintenance_ids=_maintenances(sight, block, operation),
    )


def _maintenances(
    sight: FleetSight, block: Block, operation: HostOperation | None
) -> tuple[MaintenanceId, ...]:
    involved = (sight.involved.get(vm.name) for vm in block.vms)
    found = [each.event.maintenance_id for each in involved if each is not None]
    own = operation.maintenance_id if operation else None
    return tuple(each for each in dict.fromkeys([own, *found]) if each is not None)
