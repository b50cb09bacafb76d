"""Discovery on real files, and with a real DHCP server in a network of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from tests.conformance.clients.conftest import (
    Namespace,
    Server,
    holding,
    make_host,
    need,
    run,
    run_in,
    serving,
    wait_until,
)

from forewarn.client._dhcp import Interface, find_interfaces
from forewarn.client._leases import find_leases

WIRE_SERVER = "168.63.129.16"
LEASES = Path(__file__).parents[1] / "unit" / "client" / "leases"

ASK = """
import time
from forewarn.client._dhcp import ask_for_address, find_interfaces

asking = ask_for_address(find_interfaces(), {seconds})
try:
    while True:
        time.sleep(next(asking).seconds)
except StopIteration as end:
    print(end.value)
"""


def ask_for(seconds: int) -> str:
    """Return a program that asks for the address, and waits for an answer that long."""
    return ASK.format(seconds=seconds)


KEEP_PORT = """
import socket

kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
kept.bind(("", 68))
"""

CLIENT = """
from forewarn.client import Client

with Client() as client:
    print(client.whoami().name)
"""

COUNT = """
import socket
import time
from forewarn.client import Client, UnavailableError

seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
seen.bind(("eth0", 0))
seen.setblocking(False)

def count_requests():
    count = 0
    try:
        while True:
            count += seen.recv(2000)[36:38] == b"\\0\\x43"
    except BlockingIOError:
        return count

client = Client(timeout=0.6, patience=0)
for _ in range(2):
    began = time.monotonic()
    try:
        client.events()
    except UnavailableError:
        print(count_requests(), time.monotonic() - began)
"""

ASYNC_CLIENT = """
import asyncio
from forewarn.client import AsyncClient

async def main():
    async with AsyncClient() as client:
        print((await client.whoami()).name)

asyncio.run(main())
"""


def test_newest_lease_comes_first_and_broken_files_are_skipped(tmp_path: Path) -> None:
    files = {
        "var/lib/dhcp/dhclient.leases": "dhclient-small-bytes.leases",
        "run/systemd/netif/leases/2": "networkd-2",
        "run/NetworkManager/devices/1": "networkmanager-loopback-device-1",
    }
    for age, (path, name) in enumerate(files.items()):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes((LEASES / name).read_bytes())
        os.utime(tmp_path / path, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "var/lib/dhcpcd/eth0.lease").mkdir(parents=True)
    (tmp_path / "var/lib/dhcp/dhclient.eth1.leases").symlink_to("nowhere")

    found = list(find_leases(tmp_path))

    assert found == [IPv4Address("10.0.1.9"), IPv4Address(WIRE_SERVER)]


@pytest.mark.parametrize(
    ("flags", "kind", "address", "is_asked"),
    [
        ("0x1003", "1", "00:15:5d:01:2a:3b", True),
        ("0x1002", "1", "00:15:5d:01:2a:3b", False),
        ("0x9", "772", "00:00:00:00:00:00", False),
        ("0x1003", "32", ":".join(["00"] * 20), False),
        ("0x1003", "1", "", False),
        ("", "1", "00:15:5d:01:2a:3b", False),
    ],
    ids=["up", "down", "loopback", "infiniband", "no address", "unreadable"],
)
def test_interfaces_that_are_asked_on(
    tmp_path: Path, flags: str, kind: str, address: str, *, is_asked: bool
) -> None:
    (tmp_path / "eth0").mkdir()
    for name, content in {"flags": flags, "type": kind, "address": address}.items():
        (tmp_path / "eth0" / name).write_text(f"{content}\n", encoding="ascii")

    found = find_interfaces(tmp_path)

    eth0 = Interface(mac=bytes.fromhex("00155d012a3b"), name="eth0")
    assert found == ((eth0,) if is_asked else ())


def test_interface_in_a_bond_is_left_to_the_bond(tmp_path: Path) -> None:
    for name in ("bond0", "eth0"):
        (tmp_path / name).mkdir()
        for file, content in {
            "flags": "0x1003",
            "type": "1",
            "address": "00:15:5d:01:2a:3b",
        }.items():
            (tmp_path / name / file).write_text(content, encoding="ascii")
    (tmp_path / "eth0" / "master").symlink_to("../bond0")

    assert [interface.name for interface in find_interfaces(tmp_path)] == ["bond0"]


def test_system_without_sys_is_asked_as_one_interface(tmp_path: Path) -> None:
    (interface,) = find_interfaces(tmp_path / "none")

    assert len(interface.mac) == 6
    assert not interface.name


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A virtual machine without an address, and a host that its eth0 leads to."""

    host: Namespace
    machine: Namespace

    def run_python(self, program: str, *, under: Sequence[str] = ()) -> str:
        """Return what *program* prints on the machine, where /sys shows the machine's network."""
        mounted = ("unshare", "--mount", "sh", "-ec", 'mount -t sysfs none /sys; exec "$@"', "sh")
        return run(*self.machine.enter(*mounted, *under, sys.executable, "-c", program))


@pytest.fixture
def wire() -> Iterator[Wire]:
    need("ip", "unshare", "nsenter", "dnsmasq")
    with ExitStack() as stack:
        host = make_host(stack)
        machine = stack.enter_context(holding(host))
        run_in(
            host,
            "ip link set lo up",
            f"ip address add {WIRE_SERVER}/32 dev lo",
            f"ip link add wire type veth peer name eth0 netns {machine.pid}",
            "ip address add 10.78.0.1/24 dev wire",
            "ip link set wire up",
        )
        run_in(machine, "ip link set lo up", "ip link set eth0 up")
        yield Wire(host=host, machine=machine)


@contextmanager
def serving_dhcp(host: Namespace, directory: Path, *options: str) -> Iterator[None]:
    """Run dnsmasq on *host* until the end of the block."""
    log = directory / "dnsmasq.log"
    command = (
        *("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--user=root", "--pid-file="),
        *("--port=0", "--interface=wire", "--bind-interfaces", "--no-ping"),
        *("--dhcp-range=10.78.0.10,10.78.0.50,1h", f"--dhcp-leasefile={directory / 'leases'}"),
        *options,
    )
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(host.enter(*command), stdout=output, stderr=output)
    try:
        wait_until(
            lambda: "sockets bound" in log.read_text(encoding="utf-8"),
            lambda: f"dnsmasq does not start: {log.read_text(encoding='utf-8')}",
        )
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("option", ["--dhcp-option", "--dhcp-option-force"])
def test_dhcp_server_is_asked_on_an_interface_without_an_address(
    wire: Wire, tmp_path: Path, option: str
) -> None:
    with serving_dhcp(wire.host, tmp_path, f"{option}=245,{WIRE_SERVER}"):
        answer = wire.run_python(ask_for(2))

    assert answer == f"{WIRE_SERVER}\n"
    assert (tmp_path / "leases").read_text(encoding="ascii") == ""


def test_offer_without_the_option_is_no_answer(wire: Wire, tmp_path: Path) -> None:
    with serving_dhcp(wire.host, tmp_path):
        answer = wire.run_python(ask_for(2))

    assert answer == "None\n"


def test_nobody_is_asked_without_privileges(wire: Wire, tmp_path: Path) -> None:
    need("setpriv")
    started = time.monotonic()

    with serving_dhcp(wire.host, tmp_path, f"--dhcp-option=245,{WIRE_SERVER}"):
        answer = wire.run_python(ask_for(60), under=("setpriv", "--bounding-set=-all"))

    assert answer == "None\n"
    assert time.monotonic() - started < 30, "it has waited for an answer to no question"


def test_nobody_is_asked_when_another_program_keeps_the_port(wire: Wire, tmp_path: Path) -> None:
    with serving_dhcp(wire.host, tmp_path, f"--dhcp-option=245,{WIRE_SERVER}"):
        answer = wire.run_python(KEEP_PORT + ask_for(2))

    assert answer == "None\n"


def test_silence_is_taken_for_an_answer_after_the_time_out_and_not_asked_for_again(
    wire: Wire,
) -> None:
    first, second = wire.run_python(COUNT).splitlines()

    count, seconds = first.split()
    assert count == "3"
    assert float(seconds) > 0.5
    assert second.split()[0] == "0"


@pytest.mark.parametrize("client", [CLIENT, ASYNC_CLIENT], ids=["sync", "async"])
def test_client_finds_the_server_that_dhcp_names(wire: Wire, tmp_path: Path, client: str) -> None:
    need("curl")
    server = Server(
        metadata=f"{WIRE_SERVER}:80",
        control="127.0.0.1:8170",
        directory=tmp_path,
        namespace=wire.host,
    )
    # The host is the router, and drops what is sent to 169.254.169.254.
    run_in(
        wire.machine,
        "ip address add 10.78.0.2/24 dev eth0",
        "ip route add default via 10.78.0.1",
    )
    with (
        serving(server, '[[virtual_machine]]\nname = "web-0"\naddresses = ["10.78.0.2"]\n'),
        serving_dhcp(wire.host, tmp_path, f"--dhcp-option=245,{WIRE_SERVER}"),
    ):
        answer = wire.run_python(client)

    assert answer == "web-0\n"
