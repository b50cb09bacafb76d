"""/fleet: every scope as a grid of update and fault domains, or every host."""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from forewarn.console.cells import STATE_LABELS, FleetSight, look_at_fleet
from forewarn.console.fleet_filter import (
    IN_EVENT,
    KINDS,
    STATES,
    VIEWS,
    FleetFilter,
    read_filter,
)
from forewarn.console.grids import Block, divide, group_by_scope, make_grid
from forewarn.console.host_cards import group_by_host, make_card
from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.domain.machine_states import MachineState
from forewarn.domain.roles import Role
from forewarn.domain.topology import ScopeKind, Topology
from forewarn.operations.hosts import close_host, open_host

_SUGGESTED: Final = 100
"""How many names a field suggests at most."""


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
