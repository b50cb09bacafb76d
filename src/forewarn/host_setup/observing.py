"""Reads what is there on this host, with `ip` and `nft`. The decoding is pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Interface
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from forewarn.host_setup.bindings import METADATA_ADDRESS, HostSetupError
from forewarn.host_setup.planning import ROUTING_TABLE, GuestRoute, HostState, Link, fingerprint
from forewarn.host_setup.programs import Programs
from forewarn.host_setup.rules import TABLE

FAMILIES: Final = frozenset({"arp", "bridge", "ip"})
"""Those in which we have tables. Tables of that name in others are not ours."""
_STATES: Final = frozenset({"linkdown", "dead", "offload", "trap"})
"""What `ip route` prints of a route that is not part of it."""


def observe(programs: Programs, paths: Iterable[Path] = (), *, is_root: bool = True) -> HostState:
    """Return the state of this host, with the files at *paths*; only root can see rules."""
    families, rules = _read_rules(programs) if is_root else (frozenset[str](), "")
    routes = programs.run("ip", "-4", "route", "show", "table", "all")
    return HostState(
        links=decode_links(programs.ask("ip", "-json", "-details", "address", "show"), routes),
        families=families,
        rules=rules,
        has_routing_rule=has_routing_rule(programs.ask("ip", "-json", "rule", "list")),
        routes=decode_routes(programs.ask("ip", "-4", "-json", "route", "show", "table", "all")),
        files=dict(_read_files(paths)),
    )


def decode_links(listed: Any, routes: str = "") -> Mapping[str, Link]:
    """Return the interfaces that `ip -json -details address show` lists, by name.

    *routes* is what `ip route show table all` prints.
    """
    over = _routes_by_interface(routes)
    return {
        each["ifname"]: Link(
            index=each.get("ifindex", 0),
            mac=each.get("address", ""),
            bridge=each.get("master", ""),
            kind=each.get("linkinfo", {}).get("info_kind", ""),
            is_up="UP" in each.get("flags", ()),
            addresses=tuple(
                IPv4Interface(f"{address['local']}/{address['prefixlen']}")
                for address in each.get("addr_info", ())
                if address.get("family") == "inet"
            ),
            routes=tuple(over.get(each["ifname"], ())),
        )
        for each in listed
        if "ifname" in each
    }


def _routes_by_interface(printed: str) -> Mapping[str, list[str]]:
    over: dict[str, list[str]] = {}
    # The next hops of a route with several are lines of their own.
    for line in printed.replace("\n\t", " ").splitlines():
        words = _without_states(line.split())
        # Those of an address of the interface come and go with it.
        is_own = words[0] in {"local", "broadcast"} or str(ROUTING_TABLE) in words
        if is_own or "kernel" in words:
            continue
        for interface in dict.fromkeys(_after("dev", words)):
            over.setdefault(interface, []).append(" ".join(words))
    return over


def _without_states(words: list[str]) -> list[str]:
    before = ("", *words)
    return [
        word
        for word, former in zip(words, before, strict=False)
        if word not in _STATES or former == "dev"
    ]


def _after(keyword: str, words: list[str]) -> Iterator[str]:
    return (word for former, word in pairwise(words) if former == keyword)


def has_routing_rule(listed: Any) -> bool:
    """Tell whether `ip -json rule list` lists the rule that leads to our routes."""
    return any(
        (each.get("src"), str(each.get("table"))) == (str(METADATA_ADDRESS), str(ROUTING_TABLE))
        for each in listed
    )


def decode_routes(listed: Any) -> frozenset[GuestRoute]:
    """Return those of our table that `ip -json route show table all` lists.

    All of ours lead to one address over one interface; an operator may have put others there.
    """
    return frozenset(
        (IPv4Address(each["dst"]), each["dev"])
        for each in listed
        if str(each.get("table")) == str(ROUTING_TABLE) and "dev" in each and _is_one(each["dst"])
    )


def _is_one(destination: str) -> bool:
    return destination != "default" and "/" not in destination


def _read_rules(programs: Programs) -> tuple[frozenset[str], str]:
    tables = programs.ask("nft", "--json", "list", "tables")["nftables"]
    found = (each["table"] for each in tables if "table" in each)
    families = frozenset(
        each["family"] for each in found if each["name"] == TABLE and each["family"] in FAMILIES
    )
    listings = (
        programs.ask("nft", "--json", "--stateless", "list", "table", family, TABLE)
        for family in sorted(families)
    )
    return families, fingerprint_rules(listings)


def fingerprint_rules(listings: Iterable[Any]) -> str:
    """Return what is the same for the same rules, whatever handles and order the kernel gave."""
    shown = [
        _without_handles(each)
        for listing in listings
        for each in listing["nftables"]
        if "metainfo" not in each
    ]
    return fingerprint(json.dumps(shown, sort_keys=True)) if shown else ""


def _without_handles(value: Any) -> Any:
    match value:
        case dict():
            kept = {key: _without_handles(each) for key, each in value.items() if key != "handle"}
            if isinstance(elements := kept.get("elem"), list):
                # A set lists its elements in any order.
                kept["elem"] = sorted(elements, key=lambda each: json.dumps(each, sort_keys=True))
            return kept
        case list():
            return [_without_handles(each) for each in value]
        case _:
            return value


def _read_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        try:
            yield path, path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise HostSetupError(f"{path} cannot be read: {error.strerror}.") from error
