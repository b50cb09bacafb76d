"""Processes of `fork_server`, handled like those of `subprocess`."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_SERVER = Path(__file__).with_name("fork_server.py")
_LONGEST = 20
_END_SECONDS = 45


class Forked:
    """A process that was forked for a script."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self.pid = int(report.recv(_LONGEST))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, or raise what `subprocess` does after *timeout* seconds."""
        if self.returncode is None:
            self._report.settimeout(timeout)
            try:
                self.returncode = int(self._report.recv(_LONGEST))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Runs Python scripts in processes that need not import anything any more."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        out: IO[Any],
        err: IO[Any] | None = None,
        folder: Path | None = None,
    ) -> Forked:
        """Start *command*, a script and its arguments, in *folder*; Python before it is left out.

        Without *err* errors go where *out* does.
        """
        script = command[1:] if command[0] == sys.executable else command
        order = {
            "command": script,
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
        }
        ours, theirs = _make_pair()
        with theirs, Path(os.devnull).open("rb") as nothing:
            files = [theirs.fileno(), *(each.fileno() for each in (nothing, out, err or out))]
            socket.send_fds(self._orders, [json.dumps(order).encode()], files)
        return Forked(ours)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        seconds: float,
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* to its end, and return what it says."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(command, environment, out, err, folder)
            try:
                status = process.wait(seconds)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, status, out.read(), err.read())


@contextmanager
def forking(environment: Mapping[str, str]) -> Generator[Forks]:
    """Run the fork server, in *environment*."""
    ours, theirs = _make_pair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), str(theirs.fileno())],
            env=dict(environment),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    try:
        yield Forks(ours)
    finally:
        ours.close()
        process.wait(_END_SECONDS)


def _make_pair() -> tuple[socket.socket, socket.socket]:
    """Return the ends of a line on which each message is received as it was sent."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
