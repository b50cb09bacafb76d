"""Addresses, names and networks of listeners, as operators write them."""

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_TCP: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>[0-9]+)")
_MODE: Final = re.compile(r"0[0-7]{3}")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port to listen on; port 0 is any that is free."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A unix socket to listen on."""

    path: Path


def parse_address(text: str) -> TcpAddress | UnixAddress:
    """Return the address *text* names: HOST:PORT, [::1]:PORT or unix:PATH."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return UnixAddress(Path(text.removeprefix("unix:")))
    match = _TCP.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not a valid address; use HOST:PORT, [::1]:PORT or unix:PATH")
    return TcpAddress(match["v6"] or match["host"], int(match["port"]))


def is_loopback_url(url: str) -> bool:
    """Tell whether requests to *url* stay on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_network(text: str) -> str:
    """Return *text*, which names an IP address or a network, or refuse."""
    try:
        ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither an IP address nor a network") from None
    return text


def check_mode(text: str) -> str:
    """Return *text*, which is the mode of a unix socket, or refuse."""
    if _MODE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a valid socket mode; use four digits, such as 0660")
    return text


def check_host_name(text: str) -> str:
    """Return *text*, which is a host name or an IP address, or refuse."""
    if _HOST_NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a valid host name; use NAME, without scheme or port")
    return text
