"""What the benchmarks that start a server of their own share."""

import contextlib
import socket
import time


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on *port*, or give up."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise SystemExit("the server does not start")
