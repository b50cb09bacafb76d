"""Tell systemd how it goes, as a service of Type=notify."""

import contextlib
import socket


class SystemdNotifier:
    """Tells the socket that systemd named; without one, nobody."""

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        # An address that begins with @ is one of Linux's abstract ones.
        self._address = address.replace("@", "\0", 1) if address else None
        self.interval = watchdog_seconds / 2 if watchdog_seconds and address else None

    def tell(self, *words: str) -> None:
        """Send *words*, like READY=1."""
        if self._address is None or not hasattr(socket, "AF_UNIX"):
            return
        with (
            contextlib.suppress(OSError),  # systemd may be restarting; it asks for no answer
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker,
        ):
            speaker.connect(self._address)
            speaker.sendall("\n".join(words).encode())
