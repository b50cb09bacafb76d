"""Ports for servers that a test starts."""

import os
import socket
from itertools import count

FIRST = 20_000
LAST = 32_000
APART = 997

# The kernel gives a port that was closed to the next who asks, so two of ours cannot be asked of
# it. They lie below those that connections come from, and those of each process far from others'.
_numbers = count(os.getpid() * APART)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, another one every time."""
    while True:
        port = FIRST + next(_numbers) % (LAST - FIRST)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
