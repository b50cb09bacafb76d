"""/fleet: every scope as a grid of update and fault domains, or every host."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from forewarn.console.cells import STATE_LABELS, Cell, FleetSight, StateCount, look_at_fleet
from forewarn.console.fleet_filter import (
    IN_EVENT,
    KINDS,
    STATES,
    VIEWS,
    FleetFilter,
    read_filter,
)
from forewarn.console.grids import Block, divide, group_by_scope, make_grid, split_block
from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.machine_states import MachineState
from forewarn.domain.names import HostName, MaintenanceId
from forewarn.domain.roles import Role
from forewarn.domain.topology import Host, ScopeKind, Topology, VirtualMachine
from forewarn.operations.hosts import close_host, open_host

_SUGGESTED: Final = 100
"""How many names a field suggests at most."""
_MOST_ON_CARD: Final = 120
"""How many virtual machines of one host are shown at most."""

_PHASES: Final[Mapping[HostPhase, str]] = {
    HostPhase.ANNOUNCED: "Maintenance announced",
    HostPhase.IMPACT: "Impacts on virtual machines under way",
    HostPhase.WORK: "Work on the host under way",
    HostPhase.VERIFY: "Checking that the host is back",
    HostPhase.RETURN: "Returning virtual machines",
}


@dataclass(frozen=True, slots=True)
class FleetTile:
    """A figure at the top of the page, and where to see what it counts."""

    number: int
    label: str
    href: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """The fleet in another view."""

    label: str
    href: str
    is_current: bool


def show_fleet(visit: Visit) -> Page:
    """Show the part of the fleet that the address asks for."""
    chosen = read_filter(visit.query)
    sight = visit.read(lambda reading: look_at_fleet(reading, visit.now))
    blocks = _group(sight, chosen)
    pages = divide(blocks)
    page = min(chosen.page, len(pages))
    make = make_card if chosen.by == "host" else make_grid
    principal = visit.caller.principal
    return Page(
        title="Fleet",
        template="fleet.html",
        values={
            "chosen": chosen,
            "tiles": _tiles(sight),
            "tabs": [
                Tab(label=label, href=chosen.url(by=by), is_current=by == chosen.by)
                for by, label in VIEWS.items()
            ],
            "shown": [make(sight, block) for block in pages[page - 1]],
            "page": page,
            "pages": len(pages),
            "previous": chosen.url(page=page - 1) if page > 1 else "",
            "next": chosen.url(page=page + 1) if page < len(pages) else "",
            "found": sum(len(block.vms) for block in blocks),
            "legend": STATE_LABELS,
            "states": STATES,
            "kinds": KINDS,
            "scope_names": _scope_names(sight.topology),
            "host_names": [*islice(sight.topology.hosts, _SUGGESTED)],
            "is_empty": not sight.topology.scopes and not sight.topology.hosts,
            "is_limited": bool(principal.scopes),
            # Whether a host is closed concerns all that it carries.
            "may_close": visit.may(Role.OPERATOR) and not principal.scopes,
        },
    )


def close(visit: Visit) -> Done:
    """Have a host take no more virtual machines."""
    name, reason = visit.path_values["name"], visit.form.reason()
    host = visit.caller.write(lambda tx, context: close_host(tx, context, name, reason=reason))
    return Done(message=f"Closed {host.name} to new virtual machines.")


def open_again(visit: Visit) -> Done:
    """Have a host take virtual machines again."""
    name = visit.path_values["name"]
    host = visit.caller.write(lambda tx, context: open_host(tx, context, name))
    return Done(message=f"Opened {host.name} to new virtual machines.")


def _group(sight: FleetSight, chosen: FleetFilter) -> list[Block]:
    vms = chosen.choose(sight)
    if chosen.by == "host":
        return group_by_host(vms, hosts=chosen.choose_hosts(sight.topology))
    return group_by_scope(sight, vms, with_empty=chosen.choose_scopes(sight.topology))


def _tiles(sight: FleetSight) -> list[FleetTile]:
    topology = sight.topology
    held = sum(each.state is MachineState.HELD for each in sight.involved.values())
    machines, scopes = len(topology.virtual_machines), len(topology.scopes)
    hosts = len(topology.hosts)
    everything, by_host = FleetFilter(), FleetFilter(by="host")
    return [
        FleetTile(machines, _plural("virtual machine", machines), everything.url()),
        FleetTile(scopes, _plural("scope", scopes), everything.url()),
        FleetTile(hosts, _plural("host", hosts), by_host.url()),
        _state_tile(len(sight.involved), "in events", IN_EVENT, "scheduled"),
        _state_tile(held, "overdue or held", MachineState.HELD, "failed"),
        _state_tile(len(sight.unpolled), "not polled for 24 h", MachineState.UNPOLLED, ""),
    ]


def _state_tile(number: int, label: str, state: str, tone: str) -> FleetTile:
    return FleetTile(number, label, FleetFilter(state=state).url(), tone if number else "")


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _scope_names(topology: Topology) -> list[str]:
    named = (
        scope_id
        for scope_id, scope in topology.scopes.items()
        if scope.kind is not ScopeKind.VIRTUAL_MACHINE
    )
    return [*islice(named, _SUGGESTED)]


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/fleet", show=show_fleet),
    ActionRoute(path="/hosts/{name}/close", act=close, name="host close", subject="name"),
    ActionRoute(path="/hosts/{name}/open", act=open_again, name="host open", subject="name"),
)


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
        maintenance_ids=_involved(sight, block, operation),
    )


def _involved(
    sight: FleetSight, block: Block, operation: HostOperation | None
) -> tuple[MaintenanceId, ...]:
    involved = (sight.involved.get(vm.name) for vm in block.vms)
    found = [each.event.maintenance_id for each in involved if each is not None]
    own = operation.maintenance_id if operation else None
    return tuple(each for each in dict.fromkeys([own, *found]) if each is not None)
