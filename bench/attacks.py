"""What a neighbour notices while one virtual machine attacks, and what the attack costs in memory.

A server with 1,024 files, as Linux gives by default, is polled by one virtual machine at a steady
rate. Another attacks it in one way after the other. Quiet slices and attacked slices take turns, so
that whatever else the machine does shows in both. The attacker is a process of its own on another
core than the server. Like a guest with one slow processor, it gets half of that core: enough to
send faster than the server takes, without keeping the neighbour's own process waiting. As root, the
server and the neighbour run in real time, ahead of whatever else keeps the machine busy.

While a viewer holds streams, an admin revokes its token, from the same address as behind a proxy.
"""

import contextlib
import json
import os
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from local_ports import free_port, wait_for
from smoke import PASSED_ON, new_parser, run, sized

GREEDY: Final = "127.0.0.66"
NEIGHBOUR: Final = "127.0.0.77"
PAUSE: Final = 0.005
SLICES: Final = sized(3, smoke=1)
SECONDS: Final = sized(30.0, smoke=0.1)
WARM_UP_SECONDS: Final = sized(2.0, smoke=0.2)
STARTING_SECONDS: Final = sized(0.5, smoke=0.3)
SETTLING_SECONDS: Final = sized(0.5, smoke=0.05)
SHARE: Final = 0.5
FILES: Final = 1024
TARGET: Final = 3.0
MEMORY_SECONDS: Final = sized(60.0, smoke=2.0)
TRYING_AGAIN_SECONDS: Final = 0.1
"""How long an admin waits whose connection was refused; without a pause, it would be an attack."""
SILENT: Final = 1_010
FLEET: Final = f"""
[[host]]
name = "kvm-0"
[[virtual_machine]]
name = "greedy"
addresses = ["{GREEDY}"]
[[virtual_machine]]
name = "neighbor"
addresses = ["{NEIGHBOUR}"]
"""
POLL: Final = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n"
)
WAITING: Final = POLL + b"If-None-Match: 0\r\nPrefer: wait=300\r\n\r\n"
NOWHERE: Final = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
APPROVAL: Final = (
    POLL.replace(b"GET", b"POST") + b"Content-Length: 20\r\n\r\n" + (b'{"StartRequests":[]}')
)
RESET: Final = struct.pack("ii", 1, 0)
PLAN: Final = """POST /api/v1/maintenances/plan HTTP/1.1\r
Host: localhost\r
Authorization: Bearer {token}\r
Content-Type: application/json\r
Content-Length: {length}\r
\r
"""
ORDER: Final = b'{"event_type": "Reboot", "virtual_machines": [%b]}'
LISTS: Final = ORDER % (b"[]," * (29 * 2**20 // 3))
SOME_LISTS: Final = ORDER % b",".join([b"[]"] * 300_000)
NAMES: Final = ORDER % b",".join(b'"vm-%044d"' % number for number in range(9_900))
TOKEN: Final = b"TOKEN"
"""What stands for the token of the viewer."""
WATCH: Final = (
    b"GET /api/v1/events/watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer TOKEN\r\n\r\n"
)
LINK: Final = (
    b"POST /api/v1/sign-in-links HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    b"Authorization: Bearer TOKEN\r\n\r\n"
)
SIGN_IN: Final = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    b"Authorization: Bearer fw_wrong\r\n\r\n"
)
REFUSED: Final = b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each attack lasts")
    parser.add_argument("--only", choices=ATTACKS, action="append", help="only these attacks")
    parser.add_argument("--attack", choices=ATTACKS, help="only attack; needs --port")
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.attack:
        ATTACKS[options.attack](options.port, time.monotonic() + options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (pid, ports):
        _Slice(pid, ports["metadata"]).measure(WARM_UP_SECONDS)
        start = _memory(pid)
        print(
            f"{'neighbor p99':<24}{'quiet':>9}{'attacked':>9}{'ratio':>7}{'memory':>10}"
            f"{'peak':>9}{'after':>9}",
            flush=True,
        )
        for name in options.only or ATTACKS:
            _compare(name, pid, ports, options.seconds)
            if name == "control streams":
                with _attack(name, ports["control"], options.seconds):
                    _revoke_token(ports["control"])
                _create_token(ports["control"], {"role": "viewer"})
        _settle(pid, start)


def _compare(name: str, pid: int, ports: Mapping[str, int], seconds: float) -> None:
    before = _memory(pid)
    quiet, attacked = (_Slice(pid, ports["metadata"]) for _ in range(2))
    for _ in range(SLICES):
        quiet.measure(seconds / SLICES / 2)
        port = ports["control" if name.startswith("control") else "metadata"]
        with _attack(name, port, seconds / SLICES):
            attacked.measure(seconds / SLICES)
        time.sleep(SETTLING_SECONDS)
    ratio = attacked.p99() / quiet.p99()
    print(
        f"{name:<24}{quiet.p99():>7.2f}ms{attacked.p99():>7.2f}ms{ratio:>7.1f}"
        f"{before:>7.0f}MiB{attacked.peak:>6.0f}MiB{_memory(pid):>6.0f}MiB",
        flush=True,
    )
    if ratio > TARGET:
        print(f"  missed: at most {TARGET:.0f} x the p99 when it is quiet")


def _settle(pid: int, start: float) -> None:
    """Wait until memory has come back, and tell how long that took."""
    enough, began = start * 1.1 + 10, time.monotonic()
    while _memory(pid) > enough and time.monotonic() - began < MEMORY_SECONDS:
        time.sleep(0.5)
    waited, now = time.monotonic() - began, _memory(pid)
    print(
        f"memory: {start:.0f} MiB at the start, {now:.0f} MiB {waited:.0f} s after the last attack"
    )
    if now > enough:
        print(f"  missed: at most {enough:.0f} MiB")


@dataclass(slots=True)
class _Slice:
    """Polls of the neighbour, and the most memory that the server had meanwhile, in MiB."""

    pid: int
    port: int
    times: list[float] = field(default_factory=list)
    peak: float = 0.0

    def measure(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with _connect(NEIGHBOUR, self.port) as connection:
            while time.monotonic() < deadline:
                began = time.perf_counter()
                connection.sendall(POLL + b"\r\n")
                connection.recv(65_536)
                self.times.append((time.perf_counter() - began) * 1000)
                self.peak = max(self.peak, _memory(self.pid))
                _hurry(self.pid)
                time.sleep(PAUSE)

    def p99(self) -> float:
        """Return the 99th percentile in milliseconds."""
        return statistics.quantiles(self.times, n=100)[98]


def _hurry(pid: int) -> None:
    """Have all threads of the server run in real time, and the event loop before the others.

    With one priority, a thread would keep the processor from the event loop that it lets go on.
    """
    with contextlib.suppress(PermissionError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            thread = int(task.name)
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1 + (thread == pid)))


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def _connect(source: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def _rest() -> None:
    """Sleep as long as this process has had more than its share of a processor."""
    time.sleep(max(0.0, time.process_time() / SHARE - (time.monotonic() - BEGAN)))


BEGAN: Final = time.monotonic()


def _hold(greeting: bytes) -> Callable[[int, float], None]:
    """Hold many connections with a greeting each; open one more for each that is closed."""

    def attack(port: int, deadline: float) -> None:
        held: list[socket.socket] = []
        sent = _with_token(greeting)
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                held.append(_connect(GREEDY, port))
                held[-1].sendall(sent)
            if len(held) > SILENT:
                held.pop(0).close()
            _rest()

    return attack


def _flood(block: bytes, *, reads: bool = False) -> Callable[[int, float], None]:
    """Send on twenty connections as much as is taken; read nothing, or all that comes."""

    def attack(port: int, deadline: float) -> None:
        connections: list[socket.socket] = []
        sent = _with_token(block)
        while time.monotonic() < deadline:
            while len(connections) < 20:
                connections.append(_connect(GREEDY, port))
                connections[-1].setblocking(False)
            for connection in tuple(connections):
                try:
                    _exchange(connection, sent, reads=reads)
                except OSError:
                    connection.close()
                    connections.remove(connection)
            _rest()

    return attack


def _with_token(block: bytes) -> bytes:
    return block.replace(TOKEN, Path("viewer.token").read_bytes()) if TOKEN in block else block


def _exchange(connection: socket.socket, block: bytes, *, reads: bool) -> None:
    with contextlib.suppress(BlockingIOError):
        connection.send(block)
    with contextlib.suppress(BlockingIOError):
        while reads:
            if not connection.recv(1 << 20):
                raise ConnectionResetError


def _reset(block: bytes) -> Callable[[int, float], None]:
    """Send as much as is taken, and reset the connection while it is answered."""

    def attack(port: int, deadline: float) -> None:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), _connect(GREEDY, port) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.setblocking(False)
                connection.send(block)
                time.sleep(PAUSE)
            _rest()

    return attack


def _post(role: str, body: bytes, at_once: int = 4) -> Callable[[int, float], None]:
    """Post plans with a token of a role, several at once."""

    def attack(port: int, deadline: float) -> None:
        token = Path(f"{role}.token").read_text().strip()
        request = PLAN.format(token=token, length=len(body)).encode() + body

        def post() -> None:
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), _connect(GREEDY, port) as connection:
                    connection.sendall(request)
                    connection.recv(65_536)
                _rest()

        with ThreadPoolExecutor() as threads:
            for _ in range(at_once):
                threads.submit(post)

    return attack


ATTACKS: Final[Mapping[str, Callable[[int, float], None]]] = {
    "connections": _hold(b""),
    "waiting polls": _hold(WAITING),
    "pipelined polls": _flood((POLL + b"\r\n") * 45_000),
    "pipelined polls, read": _flood((POLL + b"\r\n") * 45_000, reads=True),
    "pipelined requests": _flood(NOWHERE * 150_000),
    "pipelined requests, read": _flood(NOWHERE * 150_000, reads=True),
    "behind a waiting poll": _flood(WAITING + NOWHERE * 150_000),
    "bad bytes": _flood(b"\x00\r\n\r\n", reads=True),
    "pipelined posts, reset": _reset(APPROVAL * 3000),
    "control connections": _hold(b""),
    "control header": _flood(b"GET / HTTP/1.1\r\nX: " + b"y" * (48 << 20)),
    "control streams": _hold(WATCH),
    "control sign-in links": _flood(LINK * 1000, reads=True),
    "control sign-ins": _flood(SIGN_IN * 1000, reads=True),
    "control refusals": _flood(REFUSED * 1000),
    "control refusals, read": _flood(REFUSED * 1000, reads=True),
    "control body, refused": _post("relay", LISTS),
    "control body, too large": _post("viewer", LISTS),
    "control body of lists": _post("viewer", SOME_LISTS),
    "control body of names": _post("viewer", NAMES),
}


@contextlib.contextmanager
def _attack(name: str, port: int, seconds: float) -> Iterator[None]:
    arguments = ("--attack", name, "--port", str(port), "--seconds", str(seconds + 1), *PASSED_ON)
    command = ("chrt", "--other", "0", sys.executable, __file__, *arguments)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        time.sleep(STARTING_SECONDS)
        yield
        if process.poll():
            raise SystemExit(f"the attack {name!r} has failed")
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, Mapping[str, int]]]:
    ports = {"metadata": free_port(), "control": free_port()}
    (folder / "fleet.toml").write_text(FLEET)
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-c", "from forewarn.cli import main; main()", "serve"]
    for name, port in ports.items():
        command += [f"--{name}", f"127.0.0.1:{port}"]
    command += ["--state-dir", str(folder), "--database", f"sqlite:///{folder}/forewarn.db"]
    command += ["--fleet", str(folder / "fleet.toml")]
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        os.sched_setaffinity(process.pid, cores[:1])
        os.sched_setaffinity(0, cores[-1:])
        with contextlib.suppress(PermissionError):  # root in a container may not either
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            _hurry(process.pid)
        for port in ports.values():
            wait_for(port)
        os.chdir(folder)  # where attackers find their tokens
        for order in ({"role": "viewer"}, {"role": "relay", "host": "kvm-0"}):
            _create_token(ports["control"], order)
        yield process.pid, ports
    finally:
        process.terminate()
        process.wait(timeout=30)


def _create_token(port: int, order: Mapping[str, str]) -> None:
    while not Path("admin.token").exists():  # the server listens before it has one
        time.sleep(PAUSE)
    answer = _ask_as_admin(port, "POST", "", name=f"a-{order['role']}", **order)
    Path(f"{order['role']}.token").write_text(answer["secret"])


def _revoke_token(port: int) -> None:
    began, attempts = time.monotonic(), 1
    while True:
        try:
            _ask_as_admin(port, "DELETE", "/a-viewer")
            break
        except ConnectionError:
            attempts += 1
            time.sleep(TRYING_AGAIN_SECONDS)
    milliseconds = (time.monotonic() - began) * 1000
    print(f"  an admin revoked the token within {milliseconds:.0f} ms, attempts: {attempts}")


def _ask_as_admin(port: int, method: str, path: str, **order: str) -> Mapping[str, str]:
    bearer = f"Bearer {Path('admin.token').read_text().strip()}"
    headers = {"Authorization": bearer, "Content-Type": "application/json"}
    connection = HTTPConnection("127.0.0.1", port, timeout=30, source_address=(GREEDY, 0))
    with contextlib.closing(connection):
        connection.request(method, f"/api/v1/tokens{path}", json.dumps(order), headers)
        answer: Mapping[str, str] = json.load(connection.getresponse())
    return answer


if __name__ == "__main__":
    run(main)
