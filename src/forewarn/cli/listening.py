"""Where the servers listen that a command starts for itself."""

import socket
from typing import Final

LOCALHOST: Final = "127.0.0.1"
METADATA_PORT: Final = 8169
CONTROL_PORT: Final = 8170


def listen_locally(port: int) -> socket.socket:
    """Listen on *port* of this machine, or on any that is free if that one is taken."""
    from forewarn.metadata.http import open_listener  # noqa: PLC0415 - needs the server install

    try:
        return open_listener(LOCALHOST, port)
    except OSError:
        return open_listener(LOCALHOST, 0)
