"""Which part of the fleet a page shows, as its address says."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from forewarn.console.cells import STATE_LABELS, FleetSight
from forewarn.console.visit import Form, FormError, address
from forewarn.domain.machine_states import MachineState
from forewarn.domain.names import HostName, ScopeId, name_key, names_place
from forewarn.domain.topology import DeliveryScope, Host, ScopeKind, Topology, VirtualMachine

IN_EVENT: Final = "in-event"
"""Stands for all states of virtual machines that are in an event."""
STATES: Final = {
    IN_EVENT: "In any event",
    **{state.value: label for state, label in STATE_LABELS.items()},
}
KINDS: Final = {kind.value: kind.noun.capitalize() for kind in ScopeKind}
_WORDS: Final = 8
"""How many words are looked for; each costs a look at every virtual machine."""
VIEWS: Final = {"scope": "By scope", "host": "By host"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFilter:
    """What a visitor has chosen; empty is everything."""

    by: str = "scope"
    q: str = ""
    state: str = ""
    kind: str = ""
    scope: str = ""
    host: str = ""
    page: int = 1

    @property
    def is_narrow(self) -> bool:
        """Whether not everything is wanted."""
        return bool(self.q or self.host or self.scope or self.state or self.kind)

    def url(self, *, by: str = "", page: int = 1) -> str:
        """Return the address of another *page* of it, or of it in the other view."""
        wanted = replace(self, by=by or self.by, page=page)
        return address("/fleet", asdict(wanted), _USUAL)

    def choose(self, sight: FleetSight) -> Iterable[VirtualMachine]:
        """Return the virtual machines that are wanted, in fleet order."""
        chosen: Iterable[VirtualMachine] = sight.topology.virtual_machines.values()
        for is_wanted in self._conditions(sight):
            chosen = filter(is_wanted, chosen)
        return chosen

    def choose_scopes(self, topology: Topology) -> Iterator[DeliveryScope]:
        """Yield the scopes that are shown even if they have no virtual machine."""
        if self.q or self.host or self.state:
            return
        wanted = [*self._wanted_scopes(topology)]
        divided = {scope.name for scope in wanted if scope.placement_group}
        for scope in wanted:
            # The machines of a scale set may all be in its placement groups.
            if scope.placement_group or scope.name not in divided:
                yield scope

    def choose_hosts(self, topology: Topology) -> Iterator[HostName]:
        """Yield the hosts that are shown even if they carry no virtual machine."""
        if self.state or self.kind or self.scope:
            return
        wanted, words = name_key(self.host), self._words
        for name, host in topology.hosts.items():
            if (not wanted or name_key(name) == wanted) and _has(_told_of_host(host), words):
                yield name

    @property
    def _words(self) -> list[str]:
        return list(dict.fromkeys(self.q.casefold().split()))[:_WORDS]

    def _conditions(self, sight: FleetSight) -> Iterator[Callable[[VirtualMachine], bool]]:
        """Yield what virtual machines have to be, the quickest to tell first."""
        if wanted := name_key(self.host):
            yield lambda vm: vm.host is not None and name_key(vm.host) == wanted
        if self.scope or self.kind:
            shown = {scope.scope_id for scope in self._wanted_scopes(sight.topology)}
            yield lambda vm: vm.scope_id in shown
        if self.state:
            yield self._state_condition(sight)
        if words := self._words:
            hosts = sight.topology.hosts
            yield lambda vm: _has(_told_of(vm, hosts.get(vm.host) if vm.host else None), words)

    def _state_condition(self, sight: FleetSight) -> Callable[[VirtualMachine], bool]:
        involved, unpolled = sight.involved, sight.unpolled
        match self.state:
            case "in-event":
                return lambda vm: vm.name in involved
            case MachineState.UNPOLLED:
                return lambda vm: vm.name in unpolled
            case state:
                return lambda vm: sight.state_of(vm) == state

    def _wanted_scopes(self, topology: Topology) -> Iterator[DeliveryScope]:
        kind, covers = self.kind, covering(self.scope)
        for scope_id, scope in topology.scopes.items():
            if (not kind or scope.kind == kind) and covers(scope_id):
                yield scope


_USUAL: Final = asdict(FleetFilter())


def read_filter(query: Form) -> FleetFilter:
    """Return what the *query* of the address asks for, or refuse what does not exist."""
    return FleetFilter(
        by=_choice(query, "by", "View", VIEWS) or "scope",
        q=query.text("q"),
        state=_choice(query, "state", "State", STATES),
        kind=_choice(query, "kind", "Scope type", KINDS),
        scope=query.text("scope"),
        host=query.text("host"),
        page=query.number("page", 1, least=1),
    )


def covering(name: str) -> Callable[[ScopeId], bool]:
    """Return what tells whether a scope is called *name*, or belongs to the scale set *name*."""
    if not name:
        return lambda _: True
    group = f"{name_key(name)}/"
    return lambda scope_id: names_place(name, scope_id) or name_key(scope_id).startswith(group)


def _choice(query: Form, name: str, label: str, choices: Iterable[str]) -> str:
    said = query.text(name)
    if said and said not in choices:
        raise FormError(f"{label}: choose one of {', '.join(choices)}.")
    return said


def _has(told: str, words: Iterable[str]) -> bool:
    return all(word in told for word in words)


def _told_of(vm: VirtualMachine, host: Host | None) -> str:
    """Return all of *vm* that is searched."""
    labels = (f"{key}={value}" for key, value in vm.labels.items())
    told = "\n".join((vm.name, vm.scope_id, *vm.addresses, *labels)).casefold()
    return f"{told}\n{_told_of_host(host)}" if host else told


def _told_of_host(host: Host) -> str:
    labels = (f"{key}={value}" for key, value in host.labels.items())
    return "\n".join((host.name, *labels)).casefold()
