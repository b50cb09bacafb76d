"""What a neighbour notices while one virtual machine attacks, and what the attack costs in memory.

A server is started and polled by one virtual machine at a steady rate. Another attacks it in one
way after the other, from a process of its own, and stops.
"""

import argparse
import contextlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from local_ports import free_port, wait_for

GREEDY: Final = "127.0.0.66"
NEIGHBOUR: Final = "127.0.0.77"
PAUSE: Final = 0.01
TARGET: Final = 3.0
FLEET: Final = f"""
[[virtual_machine]]
name = "greedy"
addresses = ["{GREEDY}"]
[[virtual_machine]]
name = "neighbour"
addresses = ["{NEIGHBOUR}"]
"""
POLL: Final = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n"
)
WAITING: Final = POLL + b"If-None-Match: 0\r\nPrefer: wait=300\r\n\r\n"
NOWHERE: Final = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
REFUSED: Final = b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--attack", choices=ATTACKS, help="only attack; needs --port")
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.attack:
        ATTACKS[options.attack](options.port, time.monotonic() + options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (pid, ports):
        print(f"{'neighbour':<24}{'p50':>9}{'p99':>9}{'memory':>9}{'after':>9}", flush=True)
        quiet = _measure(pid, ports["metadata"], options.seconds)
        _report("quiet", quiet, _memory(pid))
        for name in ATTACKS:
            port = ports["control" if name.startswith("control") else "metadata"]
            with _attack(name, port, options.seconds):
                attacked = _measure(pid, ports["metadata"], options.seconds)
            time.sleep(1)
            _report(name, attacked, _memory(pid))
            if attacked[1] > TARGET * quiet[1]:
                print(f"  missed: at most {TARGET:.0f} x the p99 when it is quiet")


def _report(what: str, figures: tuple[float, float, float], after: float) -> None:
    p50, p99, memory = figures
    print(f"{what:<24}{p50:>7.2f}ms{p99:>7.2f}ms{memory:>6.0f}MiB{after:>6.0f}MiB", flush=True)


def _measure(pid: int, port: int, seconds: float) -> tuple[float, float, float]:
    """Poll for a while; return median and p99 in milliseconds, and the most memory in MiB."""
    times, memory = [], 0.0
    deadline = time.monotonic() + seconds
    with _connect(NEIGHBOUR, port) as connection:
        while time.monotonic() < deadline:
            began = time.perf_counter()
            connection.sendall(POLL + b"\r\n")
            connection.recv(65_536)
            times.append((time.perf_counter() - began) * 1000)
            memory = max(memory, _memory(pid))
            time.sleep(PAUSE)
    return statistics.median(times), statistics.quantiles(times, n=100)[98], memory


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def _connect(source: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def _hold_connections(port: int, deadline: float) -> None:
    """Open connections and say nothing."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                stack.enter_context(_connect(GREEDY, port))


def _park_polls(port: int, deadline: float) -> None:
    """Open connections on which polls wait."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                stack.enter_context(_connect(GREEDY, port)).sendall(WAITING)


def _send_forever(port: int, deadline: float, block: bytes) -> None:
    """Send on twenty connections as much as is taken, and read nothing."""
    connections: list[socket.socket] = []
    while time.monotonic() < deadline:
        while len(connections) < 20:
            with contextlib.suppress(OSError):
                connections.append(_connect(GREEDY, port))
                connections[-1].setblocking(False)
        for connection in tuple(connections):
            try:
                connection.send(block)
            except BlockingIOError:
                continue
            except OSError:
                connection.close()
                connections.remove(connection)
        time.sleep(0.001)
    for connection in connections:
        connection.close()


def _flood(block: bytes) -> Callable[[int, float], None]:
    return lambda port, deadline: _send_forever(port, deadline, block)


ATTACKS: Final[Mapping[str, Callable[[int, float], None]]] = {
    "connections": _hold_connections,
    "waiting polls": _park_polls,
    "pipelined polls": _flood((POLL + b"\r\n") * 2_000),
    "pipelined requests": _flood(NOWHERE * 5_000),
    "behind a waiting poll": _flood(WAITING + NOWHERE * 5_000),
    "bad bytes": _flood(b"\x00\r\n\r\n"),
    "control connections": _hold_connections,
    "control header": _flood(b"GET / HTTP/1.1\r\nX: " + b"y" * 1_000_000),
    "control refusals": _flood(REFUSED * 100),
}


@contextlib.contextmanager
def _attack(name: str, port: int, seconds: float) -> Iterator[None]:
    arguments = ("--attack", name, "--port", str(port), "--seconds", str(seconds + 1))
    process = subprocess.Popen(["nice", sys.executable, __file__, *arguments])  # noqa: S603, S607
    try:
        time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, Mapping[str, int]]]:
    ports = {"metadata": free_port(), "control": free_port()}
    (folder / "fleet.toml").write_text(FLEET)
    addresses = [f for name, port in ports.items() for f in (f"--{name}", f"127.0.0.1:{port}")]
    process = subprocess.Popen(  # noqa: S603
        [
            *(sys.executable, "-c", "from forewarn.cli import main; main()", "serve", *addresses),
            *("--state-dir", str(folder), "--database", f"sqlite:///{folder}/forewarn.db"),
            *("--fleet", str(folder / "fleet.toml")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for port in ports.values():
            wait_for(port)
        yield process.pid, ports
    finally:
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    main()
