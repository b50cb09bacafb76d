"""What `ip` and `nft` print, and what is made of it."""

from ipaddress import IPv4Address, IPv4Interface
from typing import Any

from forewarn.host_setup.observing import (
    decode_links,
    decode_routes,
    fingerprint_rules,
    has_routing_rule,
)
from forewarn.host_setup.planning import Link

LISTED: Any = [
    {
        "ifname": "br0",
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "address": "02:00:00:00:00:01",
        "linkinfo": {"info_kind": "bridge", "info_data": {}},
        "addr_info": [
            {"family": "inet", "local": "10.0.0.1", "prefixlen": 24},
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
        ],
    },
    {"ifname": "vnet0", "flags": [], "address": "fe:54:00:00:00:11", "master": "br0"},
    {},
]


def rules(*elements: str, handle: int = 1, verdict: str = "drop") -> Any:
    return {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"set": {"name": "ports", "handle": handle, "elem": [*elements]}},
            {"rule": {"handle": handle + 1, "expr": [{verdict: None}]}},
        ]
    }


def test_links_are_read_with_their_bridge_and_addresses() -> None:
    assert decode_links(LISTED) == {
        "br0": Link(
            mac="02:00:00:00:00:01", kind="bridge", addresses=(IPv4Interface("10.0.0.1/24"),)
        ),
        "vnet0": Link(mac="fe:54:00:00:00:11", bridge="br0", is_up=False),
    }


def test_routes_that_are_not_ours_are_kept_as_they_are_typed() -> None:
    printed = (
        "default via 10.0.0.254 dev br0 proto static \n"
        "10.0.0.0/24 dev br0 proto kernel scope link src 10.0.0.1 \n"
        "10.9.0.0/24 dev br0 table 7 scope link metric 5 linkdown \n"
        "10.9.0.11 dev br0 table 16925 scope link \n"
        "blackhole 10.8.0.0/24 \n"
        "local 10.0.0.1 dev br0 table local proto kernel scope host src 10.0.0.1 \n"
    )

    assert decode_links(LISTED, printed)["br0"].routes == (
        "default via 10.0.0.254 dev br0 proto static",
        "10.9.0.0/24 dev br0 table 7 scope link metric 5",
    )


def test_route_with_several_next_hops_is_one_route() -> None:
    printed = (
        "10.5.0.0/16 \n"
        "\tnexthop via 10.0.0.11 dev br0 weight 1 onlink linkdown \n"
        "\tnexthop via 10.0.0.12 dev vnet0 weight 1 dead \n"
        "10.6.0.0/16 dev vnet0 scope link \n"
    )
    both = (
        "10.5.0.0/16 nexthop via 10.0.0.11 dev br0 weight 1 onlink "
        "nexthop via 10.0.0.12 dev vnet0 weight 1"
    )

    links = decode_links(LISTED, printed)

    assert links["br0"].routes == (both,)
    assert links["vnet0"].routes == (both, "10.6.0.0/16 dev vnet0 scope link")


def test_interface_may_be_called_like_the_state_of_a_route() -> None:
    listed: Any = [{"ifname": "dead"}]

    links = decode_links(listed, "10.6.0.0/16 dev dead scope link dead \n")

    assert links["dead"].routes == ("10.6.0.0/16 dev dead scope link",)


def test_only_our_routes_are_read() -> None:
    listed: Any = [
        {"dst": "default", "gateway": "10.0.0.254", "dev": "eth0"},
        {"dst": "10.9.0.11", "dev": "br0", "table": "16925", "scope": "link"},
        {"type": "local", "dst": "10.0.0.1", "dev": "br0", "table": "local"},
        # What an operator may have put into a table of that number:
        {"dst": "default", "gateway": "10.0.0.254", "dev": "eth0", "table": "16925"},
        {"dst": "10.8.0.0/24", "dev": "eth0", "table": "16925"},
        {"type": "blackhole", "dst": "10.9.0.12", "table": "16925"},
    ]

    assert decode_routes(listed) == {(IPv4Address("10.9.0.11"), "br0")}


def test_only_our_routing_rule_counts() -> None:
    usual: Any = [{"priority": 0, "src": "all", "table": "local"}]
    ours = {"priority": 16925, "src": "169.254.169.254", "table": "16925"}

    assert not has_routing_rule(usual)
    assert has_routing_rule([*usual, ours])


def test_same_rules_are_the_same_whatever_their_handles_and_order() -> None:
    assert fingerprint_rules([rules("a", "b")]) == fingerprint_rules([rules("b", "a", handle=7)])


def test_other_rules_are_not_the_same() -> None:
    known = fingerprint_rules([rules("a", "b")])

    assert fingerprint_rules([rules("a")]) != known
    assert fingerprint_rules([rules("a", "b", verdict="accept")]) != known
    assert fingerprint_rules([]) == ""
