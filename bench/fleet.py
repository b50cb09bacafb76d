"""How long a fleet of 100,000 virtual machines takes to apply, and what polls notice of it.

A server is started, polled at a steady rate, and given the fleet in one call: at first all of it,
then again with every machine changed. A poll's time counts from when it was due, so that none is
left out while the server is away.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from local_ports import free_port, wait_for
from smoke import new_parser, run, sized

VMS: Final = sized(100_000, smoke=1_000)
SET_SIZE: Final = 100
CONNECTIONS: Final = 25
PAUSE: Final = 0.05
SECONDS_TARGET: Final = 30.0
P99_TARGET: Final = 25.0
IDLE_SECONDS: Final = sized(3.0, smoke=0.3)
TOKEN: Final = "bench-bench-bench-bench"  # noqa: S105
POLL: Final = (
    b"GET /vm/first-%d/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
)


def main() -> None:
    new_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (metadata, control):
        first = [{"name": f"first-{number}"} for number in range(CONNECTIONS)]
        _apply(control, {"virtual_machine": first})
        idle = asyncio.run(_poll_during(metadata, partial(time.sleep, IDLE_SECONDS)))
        print(f"{'':<22}{'seconds':>8}{'polls':>8}{'p50':>9}{'p99':>9}{'worst':>9}")
        _report("idle", IDLE_SECONDS, idle)
        for what, zone in ((f"{VMS:,} added", "1"), (f"{VMS:,} changed", "2")):
            body = _describe(zone)
            began = time.perf_counter()
            times = asyncio.run(_poll_during(metadata, partial(_send, control, body)))
            seconds = time.perf_counter() - began
            _report(what, seconds, times)
            if seconds > SECONDS_TARGET or _p99(times) > P99_TARGET:
                print(f"  missed: at most {SECONDS_TARGET:.0f} s, and p99 {P99_TARGET:.0f} ms")


def _describe(zone: str) -> bytes:
    """Return a fleet of which half is in availability sets of a hundred."""
    vms: list[dict[str, Any]] = []
    for number in range(VMS):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        vm = {"name": f"vm-{number:06}", "host": f"host-{number // 20}", "zone": zone}
        vms.append({**vm, "addresses": [address]})
    for vm in vms[::2]:
        vm["availability_set"] = f"set-{int(vm['name'][3:]) // (2 * SET_SIZE)}"
    sets = [{"name": f"set-{number}"} for number in range(VMS // SET_SIZE // 2)]
    return json.dumps({"fleet": {"availability_set": sets, "virtual_machine": vms}}).encode()


def _apply(port: int, fleet: dict[str, Any]) -> None:
    _send(port, json.dumps({"fleet": fleet}).encode())


def _send(port: int, body: bytes) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/fleet", body, headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(answer.read()[:1000].decode())
    answer.read()
    connection.close()


async def _poll_during(port: int, errand: Callable[[], None]) -> list[float]:
    """Poll at a steady rate while *errand* runs on a thread; return the milliseconds."""
    done = asyncio.Event()
    times: list[float] = []

    async def poll(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        due = time.perf_counter() + PAUSE * number / CONNECTIONS
        while not done.is_set():
            await asyncio.sleep(due - time.perf_counter())
            writer.write(POLL % number)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(head.decode())
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            times.append((time.perf_counter() - due) * 1000)
            due += PAUSE
        writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            group.create_task(poll(number))
        await asyncio.to_thread(errand)
        done.set()
    return times


def _report(what: str, seconds: float, times: list[float]) -> None:
    figures = (statistics.median(times), _p99(times), max(times))
    row = "".join(f"{figure:>7.1f}ms" for figure in figures)
    print(f"{what:<22}{seconds:>8.1f}{len(times):>8}{row}", flush=True)


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, int]]:
    metadata, control = free_port(), free_port()
    (folder / "admin.token").write_text(TOKEN)
    (folder / "admin.token").chmod(0o600)
    process = subprocess.Popen(  # noqa: S603
        [
            *(
                sys.executable,
                "-c",
                "from forewarn.cli import main; main()",
                "serve",
                "--trust-path",
            ),
            *("--metadata", f"127.0.0.1:{metadata}", "--control", f"127.0.0.1:{control}"),
            *("--state-dir", str(folder), "--database", f"sqlite:///{folder}/forewarn.db"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(control)
        yield metadata, control
    finally:
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    run(main)
