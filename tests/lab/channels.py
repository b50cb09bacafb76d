"""Talk to QEMU and to its agent in the guest: lines of JSON on a Unix socket.

A socket has one partner at a time. Who comes second waits until the first is gone.
"""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

PATIENCE = 2.0
"""How long a guest that is up may take to say that it is there."""


class Inside(Protocol):
    """QEMU's agent in a guest, whichever way it is reached."""

    def ask(self, command: str, **arguments: object) -> Any:
        """Return the answer to a command."""


class Channel:
    """One conversation. What was said in between without being asked is kept as `events`."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self.events: list[str] = []

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def set_patience(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def tell(self, command: str, **arguments: object) -> None:
        """Say something that has no answer."""
        order = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(order).encode() + b"\n")

    def ask(self, command: str, **arguments: object) -> Any:
        """Return the answer to a command."""
        self.tell(command, **arguments)
        while "return" not in (said := self.hear()):
            assert "error" not in said, f"{command} was answered with {said['error']}"
        return said["return"]

    def hear(self) -> dict[str, Any]:
        """Return what is said next."""
        line = self._lines.readline()
        if not line:
            raise ConnectionError("QEMU has ended")
        said: dict[str, Any] = json.loads(line)
        if "event" in said:
            self.events.append(said["event"])
        return said

    def wait_for_event(self, name: str) -> None:
        while name not in self.events:
            self.hear()


@contextlib.contextmanager
def monitor(folder: Path, seconds: float) -> Generator[Channel]:
    """Talk to the QEMU of the guest in *folder*."""
    with contextlib.closing(Channel(folder / "monitor", seconds)) as channel:
        channel.hear()
        channel.ask("qmp_capabilities")
        yield channel


@contextlib.contextmanager
def inside(folder: Path, seconds: float) -> Generator[Channel]:
    """Talk to QEMU's agent in the guest, as soon as it has booted."""
    with contextlib.closing(_find_inside(folder, seconds)) as channel:
        channel.set_patience(seconds)
        yield channel


def execute(guest: Inside, command: str, seconds: float) -> tuple[int, str]:
    """Run a command of the shell in the guest; return its status and what it said."""
    asked = {"path": "/bin/sh", "arg": ["-c", f"exec 2>&1; {command}"], "capture-output": True}
    pid = guest.ask("guest-exec", **asked)["pid"]
    deadline = time.monotonic() + seconds
    while not (done := guest.ask("guest-exec-status", pid=pid))["exited"]:
        assert time.monotonic() < deadline, f"{command}: not done in {seconds} s"
        time.sleep(0.1)
    said = base64.b64decode(done.get("out-data", "")).decode()
    return done.get("exitcode", -done.get("signal", 0)), said


def _find_inside(folder: Path, seconds: float) -> Channel:
    deadline = time.monotonic() + seconds
    while True:
        channel = Channel(folder / "inside", PATIENCE)
        try:
            _synchronize(channel)
        except OSError:
            channel.close()
            assert time.monotonic() < deadline, f"{folder}: no word from inside for {seconds} s"
            time.sleep(0.2)
        else:
            return channel


def _synchronize(channel: Channel) -> None:
    # What an earlier partner was told too late may come first.
    number = time.monotonic_ns() % 2**31
    channel.tell("guest-sync", id=number)
    while channel.hear().get("return") != number:
        pass
