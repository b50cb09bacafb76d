"""What has to be done on a host: a pure comparison of what is wanted, there, and ours.

Rules come before the address, so that no guest reaches the service without them, and go last. What
is ours is recorded before it is made. Undoing removes what is recorded and nothing else: an address
that an operator had added before stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Final, TypeAlias

from forewarn.host_setup.bindings import (
    METADATA_ADDRESS,
    Binding,
    HostSetupError,
    check_bindings,
    find_served,
)
from forewarn.host_setup.dhcp_options import dnsmasq_file
from forewarn.host_setup.rules import Protection, remove_rules, write_rules
from forewarn.host_setup.steps import RemoveStep, RunStep, SetupStep, WriteStep

DNSMASQ_FILE: Final = "forewarn-host-setup.conf"
ROUTING_TABLE: Final = 16925
"""For the answers to guests that the host has no route to; also the priority of its rule."""

GuestRoute: TypeAlias = tuple[IPv4Address, str]
"""An address, and the bridge it is on."""
_FROM_US: Final = ("from", str(METADATA_ADDRESS), "lookup", str(ROUTING_TABLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """What an operator wants of a host: either *bridges*, or an *interface* for the address.

    Without a *dnsmasq* directory, DHCP is left alone. *router* is the default route of its guests.
    """

    bridges: tuple[str, ...] = ()
    interface: str = ""
    bindings: tuple[Binding, ...] = ()
    dnsmasq: Path | None = None
    router: IPv4Address | None = None
    libvirt: str = ""
    """Where bindings came from, with the addresses of *fleet*: what is new there is not bound."""
    fleet: Path | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """Where the address goes."""
        return self.bridges or (self.interface,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An interface as it is."""

    index: int = 0
    mac: str = ""
    bridge: str = ""
    """The bridge that it is a port of."""
    kind: str = ""
    """What the kernel calls it, such as bridge, tun or veth; nothing if it is hardware."""
    is_up: bool = True
    addresses: tuple[IPv4Interface, ...] = ()
    routes: tuple[str, ...] = ()
    """The routes over it that are not ours, as `ip route add` takes them."""

    @property
    def has_metadata_address(self) -> bool:
        """Whether it answers for 169.254.169.254."""
        return any(each.ip == METADATA_ADDRESS for each in self.addresses)

    @property
    def has_our_address(self) -> bool:
        """Whether it has that address as we add it, and not as part of a network."""
        return IPv4Interface(METADATA_ADDRESS) in self.addresses

    def reaches(self, address: IPv4Address) -> bool:
        """Tell whether a route to *address* follows from the addresses it has."""
        return any(address in each.network for each in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What is there on a host, as far as a setup is concerned."""

    links: Mapping[str, Link] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    """Those that have a table of ours."""
    rules: str = ""
    """A fingerprint of what the kernel has in these tables."""
    has_routing_rule: bool = False
    routes: frozenset[GuestRoute] = frozenset()
    """Those in our routing table."""
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRecord:
    """What is ours on a host: written before it is made, and gone once it is undone."""

    places: tuple[str, ...] = ()
    """The interfaces that have the address from us."""
    files: tuple[Path, ...] = ()
    wanted_rules: str = ""
    """A fingerprint of the rules that were loaded last."""
    loaded_rules: str = ""
    """What `HostState.rules` was when they had been."""
    setup: HostSetup | None = None
    """What was applied last, once all of it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupPlan:
    """What to do, and what to record before that."""

    steps: tuple[SetupStep, ...]
    record: SetupRecord


def plan_apply(setup: HostSetup, state: HostState, record: SetupRecord) -> SetupPlan:
    """Return what makes *state* as *setup* wants it, or refuse; nothing, if it is already."""
    _check_places(setup, state)
    protection = protect(setup, state)
    rules = write_rules(protection)
    path = dnsmasq_path(setup)
    file = {} if path is None else {path: dnsmasq_file(setup.router)}
    _check_files(file, state, record)
    ours = _taken_places(setup, state, record)
    new = replace(
        record,
        places=tuple(sorted({*ours, *record.places})),
        files=tuple(sorted({*file, *record.files})),
        wanted_rules=fingerprint(rules),
    )
    kept = record.wanted_rules == new.wanted_rules and record.loaded_rules == state.rules != ""
    steps: tuple[SetupStep, ...] = (
        *_remove_files(state, record, keep=file),
        *(() if kept else (_load(rules, protection, state),)),
        *_route(_wanted_routes(setup, state, protection), state),
        *_remove_addresses(state, record, keep=setup.places),
        *(_add_address(place) for place in ours if not state.links[place].has_metadata_address),
        *(
            WriteStep(sentence=f"Write {path}.", path=path, text=text)
            for path, text in file.items()
            if state.files.get(path) != text
        ),
    )
    return SetupPlan(steps=steps, record=new)


def plan_undo(state: HostState, record: SetupRecord) -> SetupPlan:
    """Return what leaves nothing of ours in *state*, whatever came of it meanwhile."""
    steps: tuple[SetupStep, ...] = (
        *_remove_files(state, record, keep={}),
        *_route(frozenset(), state),
        *_remove_addresses(state, record, keep=()),
        *_unload(state),
    )
    return SetupPlan(steps=steps, record=SetupRecord())


def settle(setup: HostSetup, record: SetupRecord, state: HostState) -> SetupRecord:
    """Return what is ours once all of a plan is done and *state* is what came of it."""
    path = dnsmasq_path(setup)
    files = () if path is None else (path,)
    places = tuple(each for each in record.places if each in setup.places)
    return replace(record, places=places, files=files, loaded_rules=state.rules, setup=setup)


def protect(setup: HostSetup, state: HostState) -> Protection:
    """Return what rules are made from: the bindings whose ports are there, and on which bridge."""
    bindings = find_served(setup.bindings)
    check_bindings(bindings)
    _check_addresses(bindings, state)
    there = (
        replace(each, index=link.index, bridge=link.bridge if setup.bridges else "")
        for each in bindings
        if (link := state.links.get(each.port)) is not None and each.index in {0, link.index}
    )
    return Protection(
        bridges={name: state.links[name].mac for name in setup.bridges},
        bindings=tuple(each for each in there if each.bridge in (setup.bridges or {""})),
    )


def _check_addresses(bindings: Iterable[Binding], state: HostState) -> None:
    own = {each.ip: name for name, link in state.links.items() for each in link.addresses}
    for binding in bindings:
        for address in binding.addresses_v4:
            if address in own:
                raise HostSetupError(
                    f"{address} is bound to {binding.port}, but it is an address of this host "
                    f"({own[address]}).",
                    "correct the binding",
                )


def find_unbound(setup: HostSetup, state: HostState) -> tuple[str, ...]:
    """Return the ports that do not reach 169.254.169.254: uplinks, and guests without a binding."""
    bound = {each.port for each in protect(setup, state).bindings}
    ports = (name for name, link in state.links.items() if link.bridge in setup.bridges)
    return tuple(sorted(name for name in ports if name not in bound))


def fingerprint(text: str) -> str:
    """Return what is the same for the same *text* only."""
    return sha256(text.encode()).hexdigest()


def _check_places(setup: HostSetup, state: HostState) -> None:
    for name in setup.places:
        link = state.links.get(name)
        if link is None:
            raise HostSetupError(f"There is no interface called {name!r}.", "try: ip link show")
        if setup.bridges and link.kind != "bridge":
            raise HostSetupError(
                f"{name!r} is not a bridge.", "try: ip link show type bridge, or --interface"
            )
        if not link.is_up:
            raise HostSetupError(f"{name!r} is down.", f"try: ip link set {name} up")


def _check_files(file: Mapping[Path, str], state: HostState, record: SetupRecord) -> None:
    for path in file:
        if path in state.files and path not in record.files:
            raise HostSetupError(f"{path} was not written by forewarn host setup.", "move it away")


def _taken_places(setup: HostSetup, state: HostState, record: SetupRecord) -> tuple[str, ...]:
    """Return where the address is ours: an operator's own stays an operator's."""
    return tuple(
        place
        for place in setup.places
        if place in record.places or not state.links[place].has_metadata_address
    )


def dnsmasq_path(setup: HostSetup) -> Path | None:
    """Return the file that dnsmasq is given, if any."""
    return None if setup.dnsmasq is None else setup.dnsmasq / DNSMASQ_FILE


def _load(rules: str, protection: Protection, state: HostState) -> RunStep:
    ports = len({each.port for each in protection.bindings})
    noun = "port" if ports == 1 else "ports"
    return RunStep(
        sentence=f"Load nftables rules for {ports} {noun}.",
        words=("nft", "-f", "-"),
        text=remove_rules(state.families) + rules,
    )


def _unload(state: HostState) -> Iterator[RunStep]:
    if state.families:
        text = remove_rules(state.families)
        yield RunStep(sentence="Remove the nftables rules.", words=("nft", "-f", "-"), text=text)


def _add_address(place: str) -> RunStep:
    # With any other scope the kernel would also use it as the source of broadcasts, such as
    # those of a DHCP server.
    words = ("ip", "address", "add", f"{METADATA_ADDRESS}/32", "dev", place, "scope", "host")
    return RunStep(sentence=f"Add {METADATA_ADDRESS} to {place}.", words=words)


def _remove_addresses(
    state: HostState, record: SetupRecord, *, keep: tuple[str, ...]
) -> Iterator[RunStep]:
    for place in record.places:
        link = state.links.get(place)
        if place not in keep and link is not None and link.has_our_address:
            words = ("ip", "address", "delete", f"{METADATA_ADDRESS}/32", "dev", place)
            yield RunStep(sentence=f"Remove {METADATA_ADDRESS} from {place}.", words=words)
            if len(link.addresses) == 1:
                # With its last address, the kernel takes all routes from an interface. Those over
                # a gateway come last: it has to be reached by another one.
                yield from map(_put_back, sorted(link.routes, key=lambda each: " via " in each))


def _put_back(route: str) -> RunStep:
    network, *rest = route.split()
    words = ("ip", "route", "replace", network, *rest)
    return RunStep(sentence=f"Restore the route to {network}.", words=words)


def _remove_files(
    state: HostState, record: SetupRecord, *, keep: Mapping[Path, str]
) -> Iterator[RemoveStep]:
    for path in record.files:
        if path not in keep and path in state.files:
            yield RemoveStep(sentence=f"Remove {path}.", path=path)


def _wanted_routes(
    setup: HostSetup, state: HostState, protection: Protection
) -> frozenset[GuestRoute]:
    """Return the guests that answers would not reach: their bridge is in another network."""
    if not setup.bridges:
        return frozenset()
    return frozenset(
        (address, binding.bridge)
        for binding in protection.bindings
        for address in binding.addresses_v4
        if not state.links[binding.bridge].reaches(address)
    )


def _route(wanted: frozenset[GuestRoute], state: HostState) -> Iterator[RunStep]:
    table = ("table", str(ROUTING_TABLE))
    for address, bridge in sorted(state.routes - wanted):
        words = ("ip", "route", "delete", f"{address}/32", "dev", bridge, *table)
        yield RunStep(sentence=f"Remove the route to {address}.", words=words)
    for address, bridge in sorted(wanted - state.routes):
        words = ("ip", "route", "add", f"{address}/32", "dev", bridge, *table)
        yield RunStep(sentence=f"Route answers to {address} over {bridge}.", words=words)
    if bool(wanted) == state.has_routing_rule:
        return
    verb, sentence = ("add", "Add") if wanted else ("delete", "Remove")
    yield RunStep(
        sentence=f"{sentence} the rule that answers use these routes.",
        words=("ip", "rule", verb, *_FROM_US, "priority", str(ROUTING_TABLE)),
    )
