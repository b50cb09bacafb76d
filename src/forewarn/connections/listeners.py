"""How long the queue of a listener is, and how one is closed without losing a connection."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

BACKLOG: Final = 2048
"""How many connections the kernel keeps until they are accepted."""
_TURNS: Final = 5
"""After how many turns of its loop asyncio has surely made known what it has accepted."""


async def stop_listening(listeners: Iterable[asyncio.Server | socket.socket]) -> None:
    """Close *listeners*; return when the server knows all connections that were accepted."""
    for listener in listeners:
        listener.close()
    for _ in range(_TURNS):
        await asyncio.sleep(0)
