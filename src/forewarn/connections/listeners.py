"""How a server listens with others on one address, and stops without losing sight of anybody."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

BACKLOG: Final = 2048
"""How many connections the kernel keeps until they are accepted."""
_TURNS: Final = 5
"""After how many turns of its loop asyncio has surely made known what it has accepted."""


def twin_of(listener: socket.socket) -> socket.socket:
    """Listen once more where *listener* does; the kernel deals connections out to both."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    twin = socket.socket(listener.family)
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_REUSEADDR)]
    if listener.family == socket.AF_INET6:
        options.append((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    for option in options:
        twin.setsockopt(*option, listener.getsockopt(*option))
    # The kernel tells of twice as much as it was asked for, to have room for its own records.
    buffer = listener.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    twin.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    twin.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    twin.setblocking(False)
    try:
        twin.bind(listener.getsockname())
        twin.listen(BACKLOG)
    except OSError:
        twin.close()
        raise
    return twin


async def stop_listening(listeners: Iterable[asyncio.Server | socket.socket]) -> None:
    """Close *listeners*; return when the server knows all connections that were accepted."""
    for listener in listeners:
        listener.close()
    for _ in range(_TURNS):
        await asyncio.sleep(0)
