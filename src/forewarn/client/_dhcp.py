"""Ask the DHCP server of this network for option 245, the address of the metadata server.

A DHCPDISCOVER on each interface, and the offer that answers it. An address is never requested, so
no lease of this machine changes.
"""

import logging
import math
import secrets
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from forewarn.client._messages import Conversation, Pause

_log = logging.getLogger("forewarn.client")

METADATA_SERVER: Final = 245
"""The option that names the metadata server."""

_MESSAGE_TYPE: Final = 53
_PARAMETER_REQUEST_LIST: Final = 55
_PAD: Final = 0
_END: Final = 255
_DISCOVER: Final = b"\x01"
_OFFER: Final = b"\x02"

# RFC 2131, section 2: op, htype, hlen and hops come first, then these.
_XID: Final = slice(4, 8)
_MAC: Final = slice(28, 34)
_COOKIE: Final = slice(236, 240)
_COOKIE_VALUE: Final = b"\x63\x82\x53\x63"
_OPTIONS: Final = slice(240, None)
_BROADCAST_FLAG: Final = b"\x80\x00"
_SMALLEST: Final = 300  # of BOOTP; some relays drop less

_CLIENT_PORT: Final = 68
_SERVER: Final = ("255.255.255.255", 67)
_TRIES: Final = 3
_LONGEST: Final = 9.0
_PAUSE: Final = 0.1
_MOST_PACKETS: Final = 1_000  # between two pauses, so that a flood does not keep us


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface; without a name it is the one that the system sends broadcasts to."""

    mac: bytes
    name: str = ""


def make_discover(mac: bytes, xid: bytes) -> bytes:
    """Return a DHCPDISCOVER that wants option 245, and the answer as a broadcast."""
    header = b"\x01\x01\x06\x00" + xid + b"\x00\x00" + _BROADCAST_FLAG + bytes(16) + mac
    options = (
        bytes((_MESSAGE_TYPE, 1))
        + _DISCOVER
        + bytes((_PARAMETER_REQUEST_LIST, 1, METADATA_SERVER))
        + bytes((_END,))
    )
    return (header.ljust(_COOKIE.start, b"\0") + _COOKIE_VALUE + options).ljust(_SMALLEST, b"\0")


def read_offer(packet: bytes, mac: bytes, xid: bytes) -> IPv4Address | None:
    """Return option 245 of *packet* if it is the offer for *mac* and *xid*."""
    is_ours = packet[:1] == b"\x02" and packet[_XID] == xid and packet[_MAC] == mac
    options = read_options(packet)
    if not is_ours or options.get(_MESSAGE_TYPE) != _OFFER:
        return None
    return to_address(options.get(METADATA_SERVER, b""))


def read_options(packet: bytes) -> Mapping[int, bytes]:
    """Return the options of *packet*, up to where it ends or makes no sense."""
    found: dict[int, bytes] = {}
    rest = packet[_OPTIONS] if packet[_COOKIE] == _COOKIE_VALUE else b""
    while len(rest) > 1 and rest[0] != _END:
        if rest[0] == _PAD:
            rest = rest[1:]
            continue
        end = 2 + rest[1]
        if end > len(rest):
            break
        found.setdefault(rest[0], rest[2:end])
        rest = rest[end:]
    return found


def to_address(value: bytes) -> IPv4Address | None:
    """Return the address that the four bytes of an option are."""
    return IPv4Address(value) if len(value) == 4 else None


def find_interfaces(root: Path = Path("/sys/class/net")) -> tuple[Interface, ...]:
    """Return the interfaces that can be asked on: Ethernet, up, and in no bridge or bond."""
    if not root.is_dir():
        return (Interface(mac=uuid.getnode().to_bytes(6, "big")),)
    found = (_read_interface(directory) for directory in sorted(root.iterdir()))
    return tuple(interface for interface in found if interface is not None)


def ask_for_address(
    interfaces: Iterable[Interface], seconds: float
) -> Conversation[IPv4Address | None]:
    """Ask on all *interfaces* and return the first option 245 that is offered.

    Up to three times within *seconds*, of which at most nine are taken. Binding to port 68 takes
    the privileges of a DHCP client; without them nobody is asked.
    """
    xid = secrets.token_bytes(4)
    pause = min(_PAUSE, seconds)
    pauses = int(min(seconds, _LONGEST) / pause)
    with ExitStack() as stack:
        asked = dict(_open(stack, interfaces))
        for number in range(pauses if asked else 0):
            if number % math.ceil(pauses / _TRIES) == 0:
                for asking, interface in asked.items():
                    _send(asking, make_discover(interface.mac, xid))
            yield Pause(pause)
            address = _find_offer(asked, xid)
            if address is not None:
                return address
    return None


def _read_interface(directory: Path) -> Interface | None:
    try:
        flags = int((directory / "flags").read_text(encoding="ascii"), 16)
        kind = int((directory / "type").read_text(encoding="ascii"))
        mac = bytes.fromhex((directory / "address").read_text(encoding="ascii").replace(":", " "))
    except (OSError, ValueError):  # gone meanwhile, or not of a kind that has these
        return None
    is_up_ethernet = flags & 0x1 and kind == 1 and len(mac) == 6
    if not is_up_ethernet or (directory / "master").exists():
        return None
    return Interface(mac=mac, name=directory.name)


def _open(
    stack: ExitStack, interfaces: Iterable[Interface]
) -> Iterator[tuple[socket.socket, Interface]]:
    for interface in interfaces:
        asking = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        try:
            _bind(asking, interface)
        except OSError as error:
            _log.info("dhcp_not_asked interface=%s reason=%s", interface.name, error)
        else:
            yield asking, interface


def _bind(asking: socket.socket, interface: Interface) -> None:
    asking.setblocking(False)
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    # The machine's own DHCP client may have the port too; a broadcast reaches both.
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform == "linux" and interface.name:
        # Else all would be sent to one interface, and none to one without an address.
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
    asking.bind(("", _CLIENT_PORT))


def _send(asking: socket.socket, discover: bytes) -> None:
    try:
        asking.sendto(discover, _SERVER)
    except OSError as error:  # no carrier, no route: perhaps at the next try
        _log.debug("dhcp_not_sent reason=%s", error)


def _find_offer(asked: Mapping[socket.socket, Interface], xid: bytes) -> IPv4Address | None:
    offers = (
        read_offer(packet, interface.mac, xid)
        for asking, interface in asked.items()
        for packet in _receive(asking)
    )
    return next((address for address in offers if address is not None), None)


def _receive(asking: socket.socket) -> Iterator[bytes]:
    for _ in range(_MOST_PACKETS):
        try:
            yield asking.recv(4096)
        except OSError:  # nothing more has come
            return
