"""What the DHCP clients of Linux really leave behind; leases/README.md says how it was got."""

import time
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from forewarn.client._leases import (
    read_dhclient,
    read_dhcpcd,
    read_network_manager,
    read_networkd,
)

LEASES = Path(__file__).parent / "leases"
WIRE_SERVER = "168.63.129.16"


@pytest.mark.parametrize(
    ("name", "read", "address"),
    [
        ("dhclient.leases", read_dhclient, WIRE_SERVER),
        ("dhclient-printable.leases", read_dhclient, "65.34.92.36"),
        ("dhclient-small-bytes.leases", read_dhclient, "10.0.1.9"),
        ("networkd-2", read_networkd, WIRE_SERVER),
        ("networkmanager-internal-device-2", read_network_manager, WIRE_SERVER),
        ("networkmanager-dhclient-device-2", read_network_manager, WIRE_SERVER),
        ("networkmanager-dhclient-eth0.lease", read_dhclient, WIRE_SERVER),
        ("dhcpcd-eth0.lease", read_dhcpcd, WIRE_SERVER),
    ],
)
def test_lease_of_a_real_client_has_the_address(
    name: str, read: Callable[[bytes], IPv4Address | None], address: str
) -> None:
    assert read((LEASES / name).read_bytes()) == IPv4Address(address)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("networkmanager-internal-eth0.lease", read_networkd),
        ("networkmanager-loopback-device-1", read_network_manager),
    ],
)
def test_file_of_a_real_client_without_the_option_has_no_address(
    name: str, read: Callable[[bytes], IPv4Address | None]
) -> None:
    assert read((LEASES / name).read_bytes()) is None


def test_long_file_of_blank_lines_is_read_in_a_moment() -> None:
    began = time.thread_time()

    assert read_dhclient(b"\n" * 100_000) is None
    assert time.thread_time() - began < 1


def test_last_of_several_dhclient_leases_counts() -> None:
    older = b"lease {\n  option unknown-245 a8:3f:81:10;\n}\n"
    newer = b"lease {\n  option unknown-245 a:0:0:1;\n}\n"

    assert read_dhclient(older + newer) == IPv4Address("10.0.0.1")


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_dhclient, b"  option unknown-245 a8:3f:81;\n"),
        (read_dhclient, b"  option unknown-245 a8:3f:81:10:1;\n"),
        (read_dhclient, b"  option unknown-245 a8:3f:81:100;\n"),
        (read_dhclient, b"  option unknown-245 a8::81:10;\n"),
        (read_dhclient, b'  option unknown-245 "";\n'),
        (read_dhclient, b'  option unknown-245 "ABCDE";\n'),
        (read_dhclient, b'  option host-name "option unknown-245 a8:3f:81:10;";\n'),
        (read_networkd, b"OPTION_245=a83f81\n"),
        (read_networkd, b"OPTION_245=a83f811000\n"),
        (read_networkd, b"HOSTNAME=OPTION_245=a83f8110\n"),
        (read_network_manager, b"dhcp4.private_245=a8:3f\n"),
        (read_network_manager, b"dhcp4.host_name=dhcp4.private_245=a8:3f:81:10\n"),
        (read_dhcpcd, b"\0" * 240 + b"\xf5\x04\xa8\x3f\x81\x10\xff"),
    ],
)
def test_option_that_is_no_address_is_no_address(
    read: Callable[[bytes], IPv4Address | None], content: bytes
) -> None:
    assert read(content) is None
