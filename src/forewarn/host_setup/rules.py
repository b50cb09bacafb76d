"""The nftables rules of a host: tables called forewarn, which are loaded in one transaction.

On a bridge, the decisive rule is in two halves. The bridge marks a packet to 169.254.169.254 that
came in on a bound port from the MAC and IP address of that port; IP accepts marked packets only. So
whatever else reaches the bridge (the uplink, a port that was added a moment ago, a VLAN tag that
hides a packet from the rules of the bridge) is not marked, and is dropped.

Elsewhere a guest may use any address but those of its neighbours: shared addresses, containers and
guests inside a guest stay as they are.

Ports are known by their index, which the kernel never uses again: a new port with the name of an
old one is not bound.

Neither half asks for the name of a bridge (`meta ibrname`), which not every kernel can tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.host_setup.bindings import METADATA_ADDRESS, Binding

TABLE: Final = "forewarn"
METADATA_PORT: Final = 80
MARK: Final = int(METADATA_ADDRESS)
"""What a packet carries from the bridge to IP; it is taken off there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What the rules are made from.

    *bridges* has the MAC address of each bridge. Without bridges the ports are interfaces of their
    own, which the host routes between.
    """

    bridges: Mapping[str, str]
    bindings: tuple[Binding, ...]

    def ports_of(self, bridge: str) -> tuple[int, ...]:
        """Return the bound ports that are on *bridge*."""
        ports = (each.index for each in self.bindings if each.bridge == bridge)
        return tuple(dict.fromkeys(ports))


def write_rules(protection: Protection) -> str:
    """Return the input of nft that puts the rules there."""
    tables = _bridged(protection) if protection.bridges else _routed(protection)
    return "".join(f"table {family} {TABLE} {{\n{body}}}\n" for family, body in tables.items())


def remove_rules(families: Iterable[str]) -> str:
    """Return the input of nft that removes our tables of *families*, which have to be there."""
    return "".join(f"delete table {family} {TABLE}\n" for family in sorted(families))


def _bridged(protection: Protection) -> Mapping[str, str]:
    bindings = protection.bindings
    names = _braced(protection.bridges)
    bridge = _sets(bindings) + "".join(
        (
            _base("prerouting", "dstnat", ("iif @ports goto guest",)),
            _chain("neighbor", _NEIGHBOR),
            _chain("guest", (*_GUEST, *_captures(protection))),
            _base("input", "filter", _TO_THE_HOST),
            _base("forward", "filter", _BETWEEN_PORTS),
            _base("output", "filter", _FROM_THE_SERVICE),
        )
    )
    arriving = f"iifname {names} ip daddr {METADATA_ADDRESS} goto service"
    service = (f"meta mark != {MARK:#x} drop", "meta mark set 0x0", *_ANSWERED, "drop")
    # Bridged packets may come by before that, on any bridge (bridge-nf-call-iptables).
    elsewhere = _braced(("lo", *protection.bridges))
    ip = (
        _base("prerouting", "raw", (arriving,))
        + _chain("service", service)
        + _base(
            "input",
            "raw",
            (_NO_OPTIONS, f"iifname != {elsewhere} ip daddr {METADATA_ADDRESS} drop"),
        )
    )
    return {"arp": _arp(bindings, names), "bridge": bridge, "ip": ip}


_ANSWERED: Final = (
    f"tcp dport {METADATA_PORT} accept",
    "icmp type { destination-unreachable, echo-request } accept",
)
_NO_OPTIONS: Final = f"ip daddr {METADATA_ADDRESS} ip hdrlength != 5 drop"
"""Where source routes are accepted, a packet gets the address after prerouting has seen another."""
_OWN: Final = "iif . ether saddr . ip saddr != @addresses drop"
_TARGET: Final = "@th,64,128"
"""The address that a solicitation or an advertisement is about; nft 1.0.6 has no name for it."""
_LINK_ADDRESS: Final = "@th,208,48"
"""The MAC address in the option of either."""
_OWN_TARGET: Final = f"{_TARGET} @known_targets iif . ether saddr . {_TARGET} != @targets drop"
_NEIGHBOR: Final = (
    # Behind other headers or options, the receiver would find what is not looked at here.
    "ip6 nexthdr != ipv6-icmp drop",
    "ip6 length != { 24, 32 } drop",
    f"icmpv6 type nd-neighbor-advert {_OWN_TARGET}",
    # This is how a guest asks whether an address is free; a neighbour that wants it gives it up.
    f"ip6 saddr :: {_OWN_TARGET}",
    f"{_LINK_ADDRESS} @known_link_addresses iif . {_LINK_ADDRESS} != @link_addresses drop",
)
_GUEST: Final = (
    # Below a priority tag the rules of a bridge see less than the receiver, who takes it off.
    "vlan id 0 drop",
    "ether type 8021ad vlan id 0 drop",
    "ether saddr @known_macs iif . ether saddr != @macs drop",
    "arp saddr ether @known_macs iif . arp saddr ether != @macs drop",
    "arp saddr ip @known iif . arp saddr ether . arp saddr ip != @addresses drop",
    f"arp saddr ip {METADATA_ADDRESS} drop",
    f"ip saddr @known {_OWN}",
    f"ip saddr {METADATA_ADDRESS} drop",
    "ip6 saddr @known_v6 iif . ether saddr . ip6 saddr != @addresses_v6 drop",
    "icmpv6 type nd-redirect drop",
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } jump neighbor",
    f"ip daddr {METADATA_ADDRESS} {_OWN}",
)
_TO_THE_HOST: Final = (
    # A guest may be the router of its neighbours, but the host does not send over it.
    "iif @ports icmpv6 type nd-router-advert drop",
)
_BETWEEN_PORTS: Final = (
    f"iif @ports arp daddr ip {METADATA_ADDRESS} drop",
    f"oif @ports arp daddr ip {METADATA_ADDRESS} drop",
    f"oif @ports arp saddr ip {METADATA_ADDRESS} drop",
    f"oif @ports ip saddr {METADATA_ADDRESS} drop",
)
_FROM_THE_SERVICE: Final = (
    # Whoever has poisoned a table of this host does not get the answers of a neighbour.
    f"ip saddr {METADATA_ADDRESS} oif . ether daddr . ip daddr != @addresses drop",
    f"arp saddr ip {METADATA_ADDRESS} oif . arp daddr ip != @places drop",
)


def _captures(protection: Protection) -> Iterator[str]:
    """Have each bridge take packets to the address, whatever MAC address they are for.

    After a live migration a guest still has the MAC address of the other host in its cache.
    """
    for bridge, mac in protection.bridges.items():
        if ports := protection.ports_of(bridge):
            yield (
                f"iif {_braced(ports)} ip daddr {METADATA_ADDRESS} ether daddr set {mac} "
                f"meta pkttype set host meta mark set {MARK:#x}"
            )


def _arp(bindings: Sequence[Binding], places: str) -> str:
    """Answer nobody elsewhere, and believe nobody who claims the address of a guest."""
    pairs = {(each.mac, str(address)) for each in bindings for address in each.addresses_v4}
    return (
        _known(bindings)
        + _set("pairs", "type ether_addr . ipv4_addr", pairs)
        + _base(
            "input",
            "filter",
            (
                f"arp daddr ip {METADATA_ADDRESS} iifname != {places} drop",
                f"arp saddr ip {METADATA_ADDRESS} drop",
                "arp saddr ip @known arp saddr ether . arp saddr ip != @pairs drop",
            ),
        )
        + _base("output", "filter", (f"arp saddr ip {METADATA_ADDRESS} oifname != {places} drop",))
    )


def _routed(protection: Protection) -> Mapping[str, str]:
    bindings = protection.bindings
    ports = _braced(dict.fromkeys(each.port for each in bindings)) if bindings else '"lo"'
    guest = (f"ip saddr @known {_OWN}", f"ip daddr {METADATA_ADDRESS} {_OWN}")
    service = (
        'iifname "lo" accept',
        *(f"iif @ports {rule}" for rule in _ANSWERED),
        "drop",
    )
    ip = (
        _ports(bindings)
        + _known(bindings)
        + _addresses(bindings)
        + _base("prerouting", "raw", ("iif @ports goto guest",))
        + _chain("guest", guest)
        + _base("input", "raw", (_NO_OPTIONS, f"ip daddr {METADATA_ADDRESS} goto service"))
        + _chain("service", service)
    )
    return {"arp": _arp(bindings, ports), "ip": ip}


def _sets(bindings: Sequence[Binding]) -> str:
    v6 = {(b.index, b.mac, str(address)) for b in bindings for address in b.addresses_v6}
    targets = {(b.index, b.mac, f"{address:#x}") for b in bindings for address in b.addresses_v6}
    links = {(b.index, f"0x{b.mac.replace(':', '')}") for b in bindings}
    places = {(b.index, str(address)) for b in bindings for address in b.addresses_v4}
    return "".join(
        (
            _ports(bindings),
            _set("known_macs", "type ether_addr", {(b.mac,) for b in bindings}),
            _set("macs", "type iface_index . ether_addr", {(b.index, b.mac) for b in bindings}),
            _known(bindings),
            _addresses(bindings),
            _set("places", "type iface_index . ipv4_addr", places),
            _set("known_v6", "type ipv6_addr", {(address,) for _, _, address in v6}),
            _set("addresses_v6", "type iface_index . ether_addr . ipv6_addr", v6),
            _set("known_targets", f"typeof {_TARGET}", {(target,) for _, _, target in targets}),
            _set("targets", f"typeof iif . ether saddr . {_TARGET}", targets),
            _set("known_link_addresses", f"typeof {_LINK_ADDRESS}", {(mac,) for _, mac in links}),
            _set("link_addresses", f"typeof iif . {_LINK_ADDRESS}", links),
        )
    )


def _ports(bindings: Sequence[Binding]) -> str:
    return _set("ports", "type iface_index", {(b.index,) for b in bindings})


def _known(bindings: Sequence[Binding]) -> str:
    known = {(str(address),) for b in bindings for address in b.addresses_v4}
    return _set("known", "type ipv4_addr", known)


def _addresses(bindings: Sequence[Binding]) -> str:
    triples = {(b.index, b.mac, str(address)) for b in bindings for address in b.addresses_v4}
    return _set("addresses", "type iface_index . ether_addr . ipv4_addr", triples)


def _set(name: str, kind: str, elements: Iterable[tuple[int | str, ...]]) -> str:
    lines = sorted(" . ".join(map(str, element)) for element in elements)
    listed = ",\n            ".join(lines)
    body = f"        elements = {{\n            {listed}\n        }}\n" if listed else ""
    return f"    set {name} {{\n        {kind}\n{body}    }}\n"


def _base(hook: str, priority: str, rules: Iterable[str]) -> str:
    return _chain(hook, (f"type filter hook {hook} priority {priority}; policy accept;", *rules))


def _chain(name: str, rules: Iterable[str]) -> str:
    lines = "".join(f"        {rule}\n" for rule in rules)
    return f"    chain {name} {{\n{lines}    }}\n"


def _braced(interfaces: Iterable[str | int]) -> str:
    quoted = (f'"{each}"' if isinstance(each, str) else str(each) for each in interfaces)
    return "{ " + ", ".join(quoted) + " }"
