"""What the benchmarks that start a server of their own share."""

import contextlib
import socket
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tests.ports import free_port

__all__ = ["free_port", "wait_for"]


def wait_for(port: int) -> None:
    """Wait until somebody listens on *port*, or give up."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise SystemExit("the server does not start")
