"""Scopes as grids: update domains side by side, fault domains below each other in each of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.console.cells import Cell, FleetSight, StateCount
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine

MOST_CELLS: Final = 480
"""How many virtual machines of one scope are shown at most; the page says how many more there are.
"""
ON_ONE_PAGE: Final = 600
MOST_BLOCKS: Final = 24
"""How many virtual machines, and how many scopes or hosts, make a page full."""
_ALL_SHOWN: Final = 20
"""Up to how many domains a scope also shows those without virtual machines."""
_MOST_COLUMNS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The virtual machines of one fault domain within an update domain."""

    fault_domain: int
    cells: tuple[Cell, ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainColumn:
    """One update domain of a scope."""

    update_domain: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGrid:
    """A scope with its domains. Standalone virtual machines share grids without domains."""

    scope: DeliveryScope | None
    number: int
    counts: tuple[StateCount, ...]
    columns: tuple[DomainColumn, ...] = ()
    cells: tuple[Cell, ...] = ()
    first: int = 1
    more: int = 0

    @property
    def entry(self) -> VmName | None:
        """The virtual machine at which the Tab key stops."""
        slots = (slot for column in self.columns for slot in column.slots)
        return next((slot.cells[0].name for slot in slots if slot.cells), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a page takes in as a whole: the chosen virtual machines of a scope, or of a host.

    *key* is None for those that are in no set, or on no host. *first* counts them from 1, if there
    are several blocks of these.
    """

    key: ScopeId | HostName | None
    vms: Sequence[VirtualMachine]
    first: int = 1

    @property
    def size(self) -> int:
        """How many cells it takes."""
        return min(len(self.vms), MOST_CELLS)


def group_by_scope(
    sight: FleetSight, vms: Iterable[VirtualMachine], *, with_empty: Iterable[DeliveryScope]
) -> list[Block]:
    """Return *vms* by scope, in fleet order; scopes *with_empty* also if none of them is there.

    Standalone virtual machines come last, together.
    """
    groups: dict[ScopeId, list[VirtualMachine]] = {}
    for vm in vms:
        groups.setdefault(vm.scope_id, []).append(vm)
    shown = {*groups, *(scope.scope_id for scope in with_empty)}
    scopes = sight.topology.scopes
    alone: list[VirtualMachine] = []
    blocks: list[Block] = []
    for scope_id in sorted(shown, key=_places(scopes).__getitem__):
        if scopes[scope_id].kind is ScopeKind.VIRTUAL_MACHINE:
            alone += groups.get(scope_id, ())
        else:
            blocks.append(Block(key=scope_id, vms=groups.get(scope_id, ())))
    return [*blocks, *split_block(Block(key=None, vms=alone))]


def _places(keys: Iterable[ScopeId]) -> dict[ScopeId, int]:
    return {key: place for place, key in enumerate(keys)}


def split_block(block: Block) -> Iterator[Block]:
    """Yield *block* in parts of which all virtual machines can be shown."""
    for first in range(0, len(block.vms), MOST_CELLS):
        part = block.vms[first : first + MOST_CELLS]
        yield Block(key=block.key, vms=part, first=first + 1)


def divide(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return *blocks* as they make up pages, of which there is always one."""
    pages: list[list[Block]] = [[]]
    filled = 0
    for block in blocks:
        is_full = filled + block.size > ON_ONE_PAGE or len(pages[-1]) == MOST_BLOCKS
        if is_full and pages[-1]:
            pages.append([])
            filled = 0
        pages[-1].append(block)
        filled += block.size
    return pages


def make_grid(sight: FleetSight, block: Block) -> ScopeGrid:
    """Return *block* as it is shown."""
    counts = sight.count(block.vms)
    if block.key is None:
        cells = sight.cells(block.vms, MOST_CELLS)
        return ScopeGrid(
            scope=None, number=len(block.vms), counts=counts, cells=cells, first=block.first
        )
    scope = sight.topology.scopes[ScopeId(block.key)]
    columns = _columns(sight, scope, block.vms)
    shown = sum(len(slot.cells) for column in columns for slot in column.slots)
    return ScopeGrid(
        scope=scope,
        number=len(block.vms),
        counts=counts,
        columns=columns,
        more=len(block.vms) - shown,
    )


def _columns(
    sight: FleetSight, scope: DeliveryScope, vms: Sequence[VirtualMachine]
) -> tuple[DomainColumn, ...]:
    occupied: dict[int, dict[int, list[VirtualMachine]]] = {}
    for vm in vms:
        occupied.setdefault(vm.update_domain, {}).setdefault(vm.fault_domain, []).append(vm)
    slots = sum(map(len, occupied.values()))
    most = MOST_CELLS if len(vms) <= MOST_CELLS else max(1, MOST_CELLS // slots)
    return tuple(
        DomainColumn(
            update_domain=column,
            slots=tuple(
                _slot(sight, row, occupied.get(column, {}).get(row, ()), most)
                for row in _shown(scope.fault_domains, occupied.get(column, {}))
            ),
        )
        for column in _shown(scope.update_domains, occupied)[:_MOST_COLUMNS]
    )


def _shown(domains: int, occupied: Iterable[int]) -> list[int]:
    return list(range(domains)) if domains <= _ALL_SHOWN else sorted(occupied)[:_MOST_COLUMNS]


def _slot(sight: FleetSight, number: int, vms: Sequence[VirtualMachine], most: int) -> Slot:
    cells = sight.cells(vms, most)
    return Slot(fault_domain=number, cells=cells, more=len(vms) - len(cells))
