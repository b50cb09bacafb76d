"""Polls per second, beside nginx serving the same bytes, one core each.

wrk drives both in turn on a second core; the figures are medians of five short runs. CPU per poll
is what the server's processes were charged.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import sleep
from urllib.request import Request, urlopen

from forewarn.bootstrap.server import fastest_loop
from forewarn.clocks import SystemClock
from forewarn.domain.amending import build_topology
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.emulator.faults import MemoryFaults
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.http import MetadataServer, open_listener
from forewarn.metadata.identity import Identifier
from forewarn.protocol.document import Document, Event
from forewarn.protocol.versions import PreviewWire, served_versions
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType, event_id

RUNS, CONNECTIONS = 5, 64
PORTS = {"forewarn": 18169, "nginx": 18168}
TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
NGINX = """
worker_processes 1; daemon off; pid {0}/nginx.pid; error_log {0}/error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; default_type application/json;
  server {{ listen 127.0.0.1:{1}; root {0}; location /metadata/ {{ etag on; }} }} }}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="only run the server under test")
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    if options.serve:
        _serve()
        return
    missing = _install_missing()
    if missing:
        print(f"skipped: {' and '.join(missing)} not found; install them and run this again")
        return
    _compare(options.seconds)


def _compare(seconds: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pids = {
            "forewarn": stack.enter_context(_run(cores[0], sys.executable, __file__, "--serve")),
        }
        body = _read(PORTS["forewarn"])
        page = folder / "metadata" / "scheduledevents"
        page.parent.mkdir()
        page.write_bytes(body)
        folder.chmod(0o755)
        (folder / "nginx.conf").write_text(NGINX.format(folder, PORTS["nginx"]))
        nginx = ("nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"))
        pids["nginx"] = stack.enter_context(_run(cores[0], *nginx))
        if _read(PORTS["nginx"]) != body:
            raise SystemExit("nginx does not serve the same bytes")
        figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PORTS}
        for _ in range(RUNS):
            for name, port in PORTS.items():
                figures[name].append(_measure(pids[name], port, cores[-1], seconds))
    print(f"{'':<10}{'polls/s':>10}{'p99':>10}{'CPU/poll':>10}   ({len(body)} bytes)")
    for name, runs in figures.items():
        rate, p99, cpu = (median(run[column] for run in runs) for column in range(3))
        print(f"{name:<10}{rate:>10.0f}{p99:>8.2f}ms{cpu:>8.1f}µs")


def _measure(pid: int, port: int, core: int, seconds: int) -> tuple[float, float, float]:
    command = (
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "--latency",
        "-H",
        "Metadata: true",
    )
    before = _cpu_seconds(pid)
    report = subprocess.run(  # noqa: S603
        _pinned(core, *command, f"http://127.0.0.1:{port}{TARGET}"),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 30,
    ).stdout
    spent = _cpu_seconds(pid) - before
    if "Non-2xx" in report:
        raise SystemExit(report)
    requests = int(_find(r"(\d+) requests in", report)[0])
    rate = float(_find(r"Requests/sec:\s+([\d.]+)", report)[0])
    value, unit = _find(r"99%\s+([\d.]+)(us|ms|s)\b", report)
    p99 = float(value) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]
    return rate, p99, spent / requests * 1e6


def _find(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk reported no {pattern!r}:\n{text}")
    return match.groups()


def _cpu_seconds(pid: int) -> float:
    """Return what *pid* and its children have used; nginx works in a child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = 0
    for process in (pid, *map(int, children)):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _read(port: int) -> bytes:
    request = Request(f"http://127.0.0.1:{port}{TARGET}", headers={"Metadata": "true"})
    for _ in range(100):
        try:
            with urlopen(request, timeout=5) as reply:  # noqa: S310
                content: bytes = reply.read()
                return content
        except OSError:
            sleep(0.1)
    raise SystemExit(f"nothing answers on port {port}")


@contextmanager
def _run(core: int, *command: str) -> Iterator[int]:
    process = subprocess.Popen(_pinned(core, *command))  # noqa: S603
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=10)


def _pinned(core: int, *command: str) -> tuple[str, ...]:
    return ("taskset", "-c", str(core), *command)


def _install_missing() -> list[str]:
    packages = {"wrk": "wrk", "nginx": "nginx-light", "taskset": "util-linux"}
    missing = [tool for tool in packages if shutil.which(tool) is None]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        wanted = [packages[tool] for tool in missing]
        for step in (["update"], ["install", "--yes", "--no-install-recommends", *wanted]):
            command = ("apt-get", "--quiet=2", *step)
            subprocess.run(command, check=False, timeout=150)  # noqa: S603
    return [tool for tool in packages if shutil.which(tool) is None]


def _serve() -> None:
    name, scope_id = VmName("vm"), ScopeId("virtual-machine/vm")
    vm = VirtualMachine(name=name, scope_id=scope_id, addresses=("127.0.0.1",))
    event = Event(
        event_id=event_id("602D9444-D2CD-49C7-8624-8643E7171297"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=(name,),
        not_before=datetime(2026, 3, 2, 12, tzinfo=UTC),
        description="Host server is undergoing maintenance.",
    )
    board = Board(served_versions(PreviewWire.DOCUMENTED))
    topology = build_topology(scopes=(standalone(name),), virtual_machines=(vm,))
    document = Document(document_incarnation=1, events=(event,))
    board.put_up({scope_id: document}, topology)
    faults = MemoryFaults(
        document_of=board.document_of, clock=SystemClock(), changed=board.waiters.wake
    )
    app = MetadataApp(
        board=board, identity=Identifier(board), verbs=_NoVerbs(), polled=_forget, faults=faults
    )
    server = MetadataServer(app, [open_listener("127.0.0.1", PORTS["forewarn"])])
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(server.run_until_stopped())


def _forget(_: VmName) -> None:
    """Take note of nothing."""


class _NoVerbs:
    """Nothing is posted here."""

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> None: ...

    async def describe_event(self, vm: VmName, event_id: EventId) -> dict[str, object]:
        raise NotImplementedError

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> dict[str, object]:
        raise NotImplementedError


if __name__ == "__main__":
    main()
