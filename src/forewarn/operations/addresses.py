"""Addresses to listen on, as operators write them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TCP: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>[0-9]+)")


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
        raise ValueError(
            f"{text!r} is not a valid address; write HOST:PORT, [::1]:PORT or unix:PATH"
        )
    return TcpAddress(match["v6"] or match["host"], int(match["port"]))
