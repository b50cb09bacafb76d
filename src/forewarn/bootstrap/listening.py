"""Where a server listens, before anybody is answered."""

import errno
import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from forewarn.bootstrap.start import StartError
from forewarn.metadata.http import open_listener, open_unix_listener
from forewarn.settings import Settings
from forewarn.wording.addresses import UnixAddress, parse_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Open sockets, before anybody is answered on them."""

    metadata: tuple[socket.socket, ...]
    control: tuple[socket.socket, ...]


def open_listeners(settings: Settings, closing: ExitStack) -> Listeners:
    """Listen where *settings* say; the sockets are closed with *closing*."""
    metadata = (
        closing.enter_context(_listen("--metadata", address, settings.socket_mode))
        for address in settings.metadata
    )
    return Listeners(
        metadata=tuple(metadata),
        control=(closing.enter_context(_listen("--control", settings.control)),),
    )


def _listen(flag: str, address: str, mode: int = 0o660) -> socket.socket:
    where = parse_address(address)
    try:
        if isinstance(where, UnixAddress):
            return open_unix_listener(where.path, mode)
        return open_listener(where.host, where.port)
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        hint = f" Choose another address with {flag}." if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"Cannot listen on {address}: {problem}.{hint}") from error
