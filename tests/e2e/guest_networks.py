"""A host with a bridge, three guests and an uplink: all in network namespaces.

guest 1 ── v1 ┐
guest 2 ── v2 ├ br0 (host) ── uplink ── lan
guest 3 ── v3 ┘

A program on the host answers at 169.254.169.254 with the address that it takes the caller for.
"""

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Final

from tests.e2e.conftest import ANSWER_SECONDS, FOREWARN, START_SECONDS, wait_until
from tests.e2e.relays import METADATA, NFT, Place
from tests.e2e.test_replica_cut_off import ip
from tests.needs import need
from typer.testing import CliRunner, Result

from forewarn.cli.app import app

HOST: Final = "10.77.0.1"
SILENCE_SECONDS: Final = 1.5
"""An answer takes milliseconds; whoever waited so long gets none."""
UPLINK: Final = 9
"""The number of the machine behind the uplink."""
STRANGER: Final = 3
"""The guest that is bound nowhere."""
_PACKETS: Final = 0x0003


def address_of(number: int) -> str:
    return f"10.77.0.1{number}"


def mac_of(number: int) -> str:
    return f"52:54:00:00:00:1{number}"


def packed_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def binding_of(number: int, port: str = "") -> tuple[str, str]:
    return "--binding", f"{port or f'v{number}'}={mac_of(number)},{address_of(number)}"


ORDER: Final = ("--bridge", "br0", *binding_of(1), *binding_of(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestNetwork:
    """The host, and whoever is connected to it, by number."""

    host: Place
    machines: Mapping[int, Place]
    folder: Path

    def forewarn(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on the host."""
        command = ("/sbin/ip", "netns", "exec", self.host.name, str(FOREWARN), *words)
        return subprocess.run(
            command,
            env={**self.host.environment, **more},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def set_up(self, *words: str) -> str:
        """Have `host setup` succeed, and return what it prints."""
        done = self.try_set_up(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def try_set_up(self, *words: str) -> Result:
        """Run `host setup` on a thread that is on the host: a process takes a second to start."""
        line = ["host", "setup", "--state-dir", str(self.state), *words]
        return self.host.run(lambda: CliRunner().invoke(app, line))

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def bridge_mac(self) -> str:
        (line,) = (
            each for each in self.show("link", "show", "br0").splitlines() if "ether" in each
        )
        return line.split()[1]

    def show(self, *words: str) -> str:
        return self._run("/sbin/ip", *words)

    def nft(self, *words: str) -> str:
        return self._run(NFT, *words)

    def host_shell(self, line: str) -> str:
        return self._run("sh", "-euc", line)

    def snapshot(self) -> str:
        """Everything that a setup could change, as the system shows it."""
        wait_until(self._is_settled, "an interface has no carrier yet", ANSWER_SECONDS)
        parts = (
            self.nft("list", "ruleset"),
            self.show("address"),
            self.show("rule"),
            self.show("route", "show", "table", "all"),
            *(f"{path} {path.stat().st_mode}" for path in sorted(self.folder.rglob("*"))),
        )
        return "\n".join(parts)

    def _is_settled(self) -> bool:
        """Tell whether the kernel has noticed what is plugged in, which it does within a second."""
        links = self.show("-oneline", "link", "show", "up").splitlines()
        return all(" state UP " in line or " lo: " in line for line in links)

    def _run(self, *words: str) -> str:
        command = ("/sbin/ip", "netns", "exec", self.host.name, *words)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def whoami(self, number: int, source: str = "") -> str | None:
        """Return whom the service takes a machine for that asks; None if it is not answered."""
        return self.machines[number].run(lambda: ask(source))

    def plug_in(self, number: int) -> None:
        """Connect a machine that has lost its port, by a new one of the same name."""
        configure(self.host, *lay(number, self.machines[number]))
        configure(self.machines[number], *lines_of(number))

    def configure(self, number: int, *words: str) -> None:
        """Have a machine change its own network."""
        ip("-netns", self.machines[number].name, *words)

    def pretend(self, number: int, *, address: str, mac: str) -> None:
        """Have a machine be another, as far as it is up to it."""
        self.configure(number, "link", "set", "eth0", "address", mac)
        self.configure(number, "address", "flush", "dev", "eth0")
        self.configure(number, "address", "add", f"{address}/24", "dev", "eth0")
        self.configure(number, "route", "replace", f"{METADATA}/32", "dev", "eth0")
        self.know_the_host(number)

    def know_the_host(self, number: int, mac: str = "") -> None:
        """Spare a machine the question where 169.254.169.254 is."""
        neighbour = ("lladdr", mac or self.bridge_mac, "dev", "eth0")
        self.configure(number, "neighbour", "replace", METADATA, *neighbour)


def ask(source: str = "", address: str = METADATA) -> str | None:
    """Ask the service on a new connection, or whoever is at another *address*."""
    made = HTTPConnection(address, timeout=SILENCE_SECONDS, source_address=(source, 0))
    with closing(made) as connection:
        try:
            connection.request("GET", "/")
            return connection.getresponse().read().decode()
        except OSError:
            return None


def send_frames(*frames: bytes) -> None:
    """Send these as they are."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("eth0", 0))
        for frame in frames:
            wire.send(frame)


def arp_frame(operation: int, *, mac: str, sender: str, target: str, tags: bytes = b"") -> bytes:
    """Return a broadcast that asks for (1) or claims (2) an address."""
    own = packed_mac(mac)
    header = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation)
    addresses = own + socket.inet_aton(sender) + b"\xff" * 6 + socket.inet_aton(target)
    return b"\xff" * 6 + own + tags + header + addresses


def syn_frame(*, to: str, mac: str, source: str, tags: bytes = b"", first: str = "") -> bytes:
    """Return the first packet of a connection to the service, with a source route over *first*."""
    ends = socket.inet_aton(source) + socket.inet_aton(METADATA)
    tcp = struct.pack("!HHIIBBHHH", 40_000, 80, 1, 0, 0x50, 0x02, 65_535, 0, 0)
    total = _sum(ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack("!H", total) + tcp[18:]
    if first:
        loose_route = bytes((131, 7, 4)) + ends[4:] + b"\x01"
        ends = ends[:4] + socket.inet_aton(first) + loose_route
    words, size = 3 + len(ends) // 4, 12 + len(ends) + len(tcp)
    fixed = struct.pack("!BBHHHBBH", 0x40 | words, 0, size, 1, 0, 64, socket.IPPROTO_TCP, 0)
    header = fixed + ends
    header = header[:10] + struct.pack("!H", _sum(header)) + header[12:]
    return packed_mac(to) + packed_mac(mac) + tags + b"\x08\x00" + header + tcp


def icmp6_frame(
    kind: int,
    body: bytes,
    *,
    mac: str,
    source: str,
    headers: bytes = b"",
    first: int = socket.IPPROTO_ICMPV6,
    tags: bytes = b"",
) -> bytes:
    """Return a message to all nodes, behind other *headers* of IPv6, the *first* of that number."""
    ends = ip_address(source).packed + ip_address("ff02::1").packed
    message = struct.pack("!BBH", kind, 0, 0) + body
    total = _sum(ends + struct.pack("!II", len(message), socket.IPPROTO_ICMPV6) + message)
    payload = headers + message[:2] + struct.pack("!H", total) + message[4:]
    fixed = struct.pack("!IHBB", 0x60000000, len(payload), first, 255)
    to = b"\x33\x33\0\0\0\1"
    return to + packed_mac(mac) + tags + b"\x86\xdd" + fixed + ends + payload


def _sum(content: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@contextmanager
def listening(place: Place) -> Generator[Callable[[], list[bytes]]]:
    """Yield what returns all frames that have reached *place* since."""
    wire = place.run(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
    with closing(wire):
        wire.bind(("eth0", _PACKETS))
        wire.settimeout(0.3)

        def frames() -> Iterator[bytes]:
            while True:
                try:
                    frame, sender = wire.recvfrom(65_535)
                except TimeoutError:
                    return
                if sender[2] != socket.PACKET_OUTGOING:
                    yield frame

        yield lambda: list(frames())


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.client_address[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as declared there
        pass


@contextmanager
def answering(place: Place) -> Generator[None]:
    """Answer on *place* as soon as somebody asks, whether the address is there yet or not."""
    service = place.run(lambda: ThreadingHTTPServer(("", 80), _Echo))
    service.daemon_threads = True
    thread = Thread(target=service.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        service.shutdown()
        service.server_close()
        thread.join(ANSWER_SECONDS)


@contextmanager
def build_network(folder: Path, environment: Mapping[str, str]) -> Generator[GuestNetwork]:
    """Lay the cables."""
    need(NFT)
    with ExitStack() as stack:

        def add(name: str) -> Place:
            own = f"fwhs{os.getpid()}-{name}"
            ip("netns", "add", own)
            stack.callback(ip, "netns", "delete", own)
            return Place(name=own, folder=folder, environment=environment)

        host = add("host")
        machines = {number: add(f"machine-{number}") for number in (1, 2, STRANGER, UPLINK)}
        cables = [cable for number, each in machines.items() for cable in lay(number, each)]
        # addrgenmode, so that `ip address` does not change by itself.
        configure(
            host,
            "link set lo up",
            "link add br0 type bridge",
            "link set br0 addrgenmode none",
            "link set br0 up",
            f"address add {HOST}/24 dev br0",
            *cables,
        )
        for number, machine in machines.items():
            configure(machine, "link set lo up", *lines_of(number))
        yield GuestNetwork(host=host, machines=machines, folder=folder)


def lay(number: int, machine: Place) -> tuple[str, ...]:
    """Return what connects a machine with the bridge."""
    port = "uplink" if number == UPLINK else f"v{number}"
    peer = f"peer eth0 netns {machine.name} address {mac_of(number)}"
    return (
        f"link add {port} type veth {peer}",
        f"link set {port} master br0 addrgenmode none",
        f"link set {port} up",
    )


def lines_of(number: int) -> tuple[str, ...]:
    """Return what a machine does with its interface."""
    return (
        f"address add {address_of(number)}/24 dev eth0",
        "link set eth0 up",
        f"route add {METADATA}/32 dev eth0",
    )


def configure(place: Place, *lines: str) -> None:
    """Give `ip` these commands, in one process."""
    command = ["/sbin/ip", "-netns", place.name, "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
