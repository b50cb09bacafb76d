"""Where a server listens, before anybody is answered."""

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from forewarn.bootstrap.start import StartError
from forewarn.connections.listeners import twin_of
from forewarn.metadata.http import open_listener, open_unix_listener
from forewarn.settings import Settings
from forewarn.wording.addresses import UnixAddress, parse_address

_ORPHAN_SECONDS: Final = 3.0
"""How long the fronts of a server that was killed may hold its address."""
_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Open sockets, before anybody is answered on them."""

    metadata: tuple[socket.socket, ...]
    control: tuple[socket.socket, ...]
    private: tuple[socket.socket, ...] = ()
    """Those of the control API for fronts of this server only."""
    fronts: tuple[tuple[socket.socket, ...], ...] = ()
    """Those of each front process."""


def open_listeners(settings: Settings, closing: ExitStack) -> Listeners:
    """Listen where *settings* say; the sockets are closed with *closing*."""
    patience = _ORPHAN_SECONDS if settings.fronts else 0.0
    metadata = [
        closing.enter_context(_listen("--metadata", address, settings.socket_mode, patience))
        for address in settings.metadata
    ]
    control = closing.enter_context(_listen("--control", settings.control))
    shared = [each for each in metadata if settings.fronts and each.family != socket.AF_UNIX]
    groups = [shared] if shared else []
    while shared and len(groups) < settings.fronts:
        groups.append([closing.enter_context(twin_of(each)) for each in shared])
    return Listeners(
        metadata=tuple(each for each in metadata if each not in shared),
        control=(control,),
        private=(_open_private_listener(closing),) if groups else (),
        fronts=tuple(map(tuple, groups)),
    )


def _open_private_listener(closing: ExitStack) -> socket.socket:
    """Listen on a unix socket in a folder of its own, which only this user may enter."""
    try:
        folder = closing.enter_context(TemporaryDirectory(prefix="forewarn-"))  # has mode 0700
        return closing.enter_context(open_unix_listener(Path(folder) / "fronts.sock", 0o600))
    except OSError as error:
        problem = f"{error.strerror or error}; set TMPDIR to a writable directory"
        raise StartError(f"Cannot create a socket for the fronts: {problem}.") from error


def _listen(flag: str, address: str, mode: int = 0o660, patience: float = 0.0) -> socket.socket:
    where = parse_address(address)
    try:
        if isinstance(where, UnixAddress):
            return open_unix_listener(where.path, mode)
        return _insist(lambda: open_listener(where.host, where.port), patience)
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        hint = f" Choose another address with {flag}." if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"Cannot listen on {address}: {problem}.{hint}") from error


def _insist(listen: Callable[[], socket.socket], patience: float) -> socket.socket:
    """Try for so many seconds to have an address that somebody else still has."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
