"""DHCP options 121, 249 and 245: bytes from the specifications, and what our own SDK reads."""

import re
from ipaddress import IPv4Address, IPv4Network
from xml.etree import ElementTree as ET

import pytest

from forewarn.client._dhcp import METADATA_SERVER as ASKED_FOR
from forewarn.client._dhcp import read_options, to_address
from forewarn.host_setup.bindings import METADATA_ADDRESS
from forewarn.host_setup.dhcp_options import (
    METADATA_SERVER,
    ClasslessRoute,
    dnsmasq_file,
    dnsmasq_lines,
    encode_routes,
    make_options,
    network_xml,
    routes_with,
)

ROUTER = IPv4Address("10.0.0.1")


@pytest.mark.parametrize(
    ("network", "encoded"),
    [
        # The table of RFC 3442.
        ("0.0.0.0/0", "00"),
        ("10.0.0.0/8", "08 0a"),
        ("10.0.0.0/24", "18 0a 00 00"),
        ("10.17.0.0/16", "10 0a 11"),
        ("10.27.129.0/24", "18 0a 1b 81"),
        ("10.229.0.128/25", "19 0a e5 00 80"),
        ("10.198.122.47/32", "20 0a c6 7a 2f"),
    ],
)
def test_route_is_a_width_its_bytes_and_a_gateway(network: str, encoded: str) -> None:
    route = ClasslessRoute(network=IPv4Network(network), gateway=ROUTER)

    assert encode_routes((route,)) == bytes.fromhex(encoded) + ROUTER.packed


def test_guest_keeps_its_default_route() -> None:
    """A client that gets option 121 ignores option 3, the router (RFC 3442)."""
    assert encode_routes(routes_with(ROUTER)).hex(" ") == (
        "00 0a 00 00 01 20 a9 fe a9 fe 00 00 00 00"
    )
    assert encode_routes(routes_with(None)).hex(" ") == "20 a9 fe a9 fe 00 00 00 00"


def test_sdk_finds_the_service_in_the_options() -> None:
    options = make_options(ROUTER)
    listed = b"".join(bytes((number, len(value))) + value for number, value in options.items())
    packet = bytes(236) + b"\x63\x82\x53\x63" + listed + b"\xff"

    read = read_options(packet)

    assert METADATA_SERVER == ASKED_FOR
    assert read == options
    assert to_address(read[ASKED_FOR]) == METADATA_ADDRESS


def test_file_of_dnsmasq_has_the_bytes() -> None:
    assert dnsmasq_lines(ROUTER) == (
        "dhcp-option=121,00:0a:00:00:01:20:a9:fe:a9:fe:00:00:00:00",
        "dhcp-option=249,00:0a:00:00:01:20:a9:fe:a9:fe:00:00:00:00",
        "dhcp-option=245,a9:fe:a9:fe",
    )
    assert dnsmasq_file(ROUTER).splitlines()[1] == (
        "# Options 121 and 249: 0.0.0.0/0 via 10.0.0.1, 169.254.169.254/32 directly. "
        "Option 245: 169.254.169.254."
    )


def test_network_of_libvirt_gets_the_same_lines() -> None:
    network = ET.fromstring(f"<network><name>default</name>{network_xml(ROUTER)}</network>")  # noqa: S314 - our own

    found = [each.get("value") for each in network.iter() if re.search(r"\}option$", each.tag)]
    assert found == [*dnsmasq_lines(ROUTER)]
