"""Neighbor discovery behind `forewarn host setup`: each guest speaks for its own addresses only."""

import socket
import struct
import subprocess
from collections.abc import Generator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, wait_until
from tests.e2e.guest_networks import (
    ORDER,
    STRANGER,
    UPLINK,
    GuestNetwork,
    address_of,
    build_network,
    icmp6_frame,
    listening,
    mac_of,
    packed_mac,
    send_frames,
)
from tests.e2e.test_replica_cut_off import ip

SOLICIT, ADVERTISE, ROUTER, REDIRECT = 135, 136, 134, 137
LINK_LOCAL: Final = "fe80::1"
FLOATING: Final = "fd77::100"
"""An address that is in no binding, such as one that moves from guest to guest."""
OVERRIDE: Final = 0x20000000
VLAN_0: Final = bytes.fromhex("81000000")
PROVIDER_0: Final = bytes.fromhex("88a80000")
NONCE: Final = b"\x0e\x01nonce!"
PADDING: Final = bytes((socket.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0))
FRAGMENT: Final = bytes((socket.IPPROTO_ICMPV6, 0, 0, 0, 0, 0, 0, 1))
FIRST_OF_TWO: Final = bytes((socket.IPPROTO_ICMPV6, 0, 0, 1, 0, 0, 0, 2))
ORDER_V6: Final = (
    "--bridge",
    "br0",
    *(
        word
        for number in (1, 2)
        for word in (
            "--binding",
            f"v{number}={mac_of(number)},{address_of(number)},fd77::1{number}",
        )
    ),
)


@pytest.fixture
def network(tmp_path: Path, environment: Mapping[str, str]) -> Generator[GuestNetwork]:
    with build_network(tmp_path, environment) as built:
        # Or else the kernel says things of its own.
        ip("-netns", built.host.name, "address", "add", "fd77::1/64", "dev", "br0", "nodad")
        for number in built.machines:
            own = f"{v6_of(number)}/64"
            built.configure(number, "address", "add", own, "dev", "eth0", "nodad")
        yield built


def v6_of(number: int) -> str:
    return f"fd77::1{number}"


def option(kind: int, mac: str) -> bytes:
    return bytes((kind, 1)) + packed_mac(mac)


def advert(target: str, *options: bytes, **more: object) -> bytes:
    """Return what guest 1 sends to have *target*."""
    body = struct.pack("!I", OVERRIDE) + ip_address(target).packed + b"".join(options)
    sent = {"mac": mac_of(1), "source": LINK_LOCAL, **more}
    return icmp6_frame(ADVERTISE, body, **sent)  # type: ignore[arg-type]


def solicit(target: str, *options: bytes, source: str) -> bytes:
    """Return what guest 1 sends to find *target*."""
    body = bytes(4) + ip_address(target).packed + b"".join(options)
    return icmp6_frame(SOLICIT, body, mac=mac_of(1), source=source)


def router(number: int) -> bytes:
    """Return what a machine sends to be the default router of everybody."""
    body = struct.pack("!BBHII", 64, 0, 1800, 0, 0) + option(1, mac_of(number))
    return icmp6_frame(ROUTER, body, mac=mac_of(number), source=f"fe80::{number}")


OWN: Final = option(2, mac_of(1))
FORGED: Final = {
    "advertisement": advert(v6_of(2), OWN),
    "advertisement without a MAC address": advert(v6_of(2)),
    "advertisement from its owner": advert(v6_of(2), OWN, source=v6_of(2)),
    "advertisement behind another option": advert(v6_of(2), NONCE, OWN),
    "MAC address of a neighbor behind another option": advert(
        FLOATING, NONCE, option(2, mac_of(2))
    ),
    "advertisement behind another header": advert(
        v6_of(2), OWN, headers=PADDING, first=socket.IPPROTO_DSTOPTS
    ),
    "advertisement in a fragment": advert(
        v6_of(2), OWN, headers=FRAGMENT, first=socket.IPPROTO_FRAGMENT
    ),
    "advertisement in two fragments": icmp6_frame(
        ADVERTISE,
        struct.pack("!I", OVERRIDE) + ip_address(v6_of(2)).packed[:8],
        mac=mac_of(1),
        source=LINK_LOCAL,
        headers=FIRST_OF_TWO,
        first=socket.IPPROTO_FRAGMENT,
    ),
    "advertisement with a priority": advert(v6_of(2), OWN, tags=VLAN_0),
    "advertisement with a priority of the provider": advert(v6_of(2), OWN, tags=PROVIDER_0),
    "advertisement of the own address by another MAC": advert(
        v6_of(1), OWN, mac="52:54:00:09:09:09"
    ),
    "advertisement with the MAC address of a neighbor": advert(FLOATING, option(2, mac_of(2))),
    "solicitation": solicit(v6_of(UPLINK), option(1, mac_of(1)), source=v6_of(2)),
    "solicitation with the MAC address of a neighbor": solicit(
        v6_of(UPLINK), option(1, mac_of(2)), source=v6_of(1)
    ),
    "claim of an address that is free": solicit(v6_of(2), NONCE, source="::"),
    "redirect": icmp6_frame(
        REDIRECT,
        bytes(4) + ip_address(v6_of(2)).packed * 2 + OWN,
        mac=mac_of(1),
        source=LINK_LOCAL,
    ),
}
HONEST: Final = {
    "advertisement": advert(v6_of(1), OWN),
    "answer": advert(v6_of(1), source=v6_of(1)),
    "shared address": advert(FLOATING, OWN),
    "container": advert(FLOATING, option(2, "52:54:00:09:09:09"), mac="52:54:00:09:09:09"),
    "solicitation": solicit(v6_of(2), option(1, mac_of(1)), source=v6_of(1)),
    "claim of the own address": solicit(v6_of(1), NONCE, source="::"),
    "claim of a shared address": solicit(FLOATING, source="::"),
    "router of other guests": router(1),
}


def arrived(network: GuestNetwork, number: int, *frames: bytes) -> set[bytes]:
    """Return which packets of these frames machine 9 gets from another."""
    with listening(network.machines[UPLINK]) as received:
        network.machines[number].run(lambda: send_frames(*frames))
        seen = received()
    packets = {packet_of(frame) for frame in frames}
    return {each for each in packets if any(frame.endswith(each) for frame in seen)}


def packet_of(frame: bytes) -> bytes:
    """Return what is in *frame*: the kernel takes tags off."""
    return frame[frame.index(b"\x86\xdd") + 2 :]


def test_guest_speaks_for_its_own_addresses_only(network: GuestNetwork) -> None:
    sent = (*FORGED.values(), *HONEST.values())
    assert arrived(network, 1, *sent) == set(map(packet_of, sent)), "without rules all arrive"

    network.set_up(*ORDER_V6, "--apply")

    assert arrived(network, 1, *FORGED.values()) == set()
    assert arrived(network, 1, *HONEST.values()) == set(map(packet_of, HONEST.values()))


def test_guests_find_each_other(network: GuestNetwork) -> None:
    network.set_up(*ORDER_V6, "--apply")

    for number, other in ((1, 2), (2, 1), (1, UPLINK), (UPLINK, 2), (STRANGER, 1)):
        assert found(network, number, v6_of(other)) == mac_of(other)


def found(network: GuestNetwork, number: int, address: str) -> str:
    """Return the MAC address that a machine finds out for *address*."""

    def call() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as caller:
            caller.sendto(b"?", (address, 9))

    network.machines[number].run(call)
    wait_until(
        lambda: "lladdr" in known(network.machines[number].name, address),
        f"machine {number} does not find {address}",
        ANSWER_SECONDS,
    )
    return known(network.machines[number].name, address).split("lladdr ")[1].split()[0]


def known(namespace: str, address: str) -> str:
    command = ("/sbin/ip", "-netns", namespace, "-6", "neighbour", "show", address)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_forged_advertisement_does_not_change_what_others_know(network: GuestNetwork) -> None:
    forged = advert(v6_of(2), OWN)
    network.set_up(*ORDER_V6, "--apply")
    assert found(network, UPLINK, v6_of(2)) == mac_of(2)

    network.machines[1].run(lambda: send_frames(forged))

    lan = network.machines[UPLINK].name
    assert mac_of(2) in known(lan, v6_of(2))
    network.set_up("--undo")
    network.machines[1].run(lambda: send_frames(forged))
    assert mac_of(1) in known(lan, v6_of(2)), "without rules it does"


def test_guest_does_not_become_the_router_of_the_host(network: GuestNetwork) -> None:
    def routers() -> str:
        return network.show("-6", "route", "show", "default")

    network.set_up(*ORDER_V6, "--apply")

    network.machines[1].run(lambda: send_frames(router(1)))
    assert routers() == ""
    network.machines[UPLINK].run(lambda: send_frames(router(UPLINK)))
    assert f"via fe80::{UPLINK}" in routers()
    network.set_up("--undo")
    network.machines[1].run(lambda: send_frames(router(1)))
    assert "via fe80::1 " in routers(), "without rules it does"


def test_host_without_ipv6_addresses_of_guests_is_set_up(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    assert found(network, 1, v6_of(2)) == mac_of(2)
