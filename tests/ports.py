"""Ports for servers that a test starts."""

import os
import socket
import tempfile
from fcntl import LOCK_EX, LOCK_NB, lockf
from functools import cache
from itertools import count
from pathlib import Path

FIRST = 20_000
LAST = 32_000
APART = 997

# They lie below those that connections come from. A port that was asked of the kernel and closed
# again could be anybody's before a server listens on it, or while that server is restarted.
_numbers = count(os.getpid() * APART)


def free_port() -> int:
    """Return a free port of 127.0.0.1, and reserve it until this process ends.

    A server can be stopped and started again on it.
    """
    while True:
        port = FIRST + next(_numbers) % (LAST - FIRST)
        if _is_ours(port) and _is_free(port):
            return port


def _is_ours(port: int) -> bool:
    """Lock *port*, which is a byte of a file that all processes share; they unlock by ending."""
    registry = _registry()
    try:
        lockf(registry, LOCK_EX | LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _registry() -> int:
    # Open until the process ends: to close it once would unlock everything.
    path = Path(tempfile.gettempdir()) / f"forewarn-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
