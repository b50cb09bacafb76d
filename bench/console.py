"""What open consoles cost: the browser, the server, and virtual machines that poll meanwhile.

The server has 10,000 virtual machines in 200 scopes, and 500 events are in flight. A browser first
loads pages and then follows a change every second. After that it is left alone, beside no browser
at all. At last fifty consoles follow changes, in turns with none, while a virtual machine polls.
These fifty are sockets in a process of their own, which do what console.js does. As root, the
server and the one who polls run in real time then, ahead of whatever else keeps the machine busy.
"""

import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from scale import describe, fill
from servers import Server, running, scheduled_events
from smoke import PASSED_ON, new_parser, run, sized, skip_without

CHROMIUM: Final = Path("/usr/bin/chromium-headless-shell")
VMS: Final = sized(10_000, smoke=100)
EVENTS: Final = sized(500, smoke=10)
STARTED: Final = sized(100, smoke=2)
CONSOLES: Final = sized(50, smoke=4)
WINDOWS: Final = sized(10, smoke=2)
PAGES: Final = {"Now": "/", "Fleet": "/fleet"}
LOADS: Final = sized(5, smoke=1)
SLICES: Final = sized(5, smoke=1)
SECONDS: Final = sized(30.0, smoke=0.5)
SETTLING_SECONDS: Final = sized(2.0, smoke=0.1)
POLL_PAUSE: Final = 0.005
BEAT_GAP: Final = 0.7
BEAT_CHANCE: Final = 0.25
"""How console.js spreads its requests, in seconds."""
PAINT_TARGET: Final = 1000
TASK_TARGET: Final = 200
IDLE_TARGET: Final = 1.0
POLLS_TARGET: Final = 1.25
VM: Final = "vm-0000017"
CHANGED: Final = f"vm-{VMS - 10:07}"
WATCH_TASKS: Final = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.tasks.push(each.duration);
}).observe({ type: "longtask", buffered: true });
"""
PAINT: Final = """
new Promise((done) => new PerformanceObserver((list) => {
  for (const each of list.getEntriesByName("first-contentful-paint")) done(each.startTime);
}).observe({ type: "paint", buffered: true }))
"""


def main() -> None:
    """Print the figures beside their targets."""
    parser = new_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each part takes")
    parser.add_argument("--only", choices=("browser", "idle", "polls"), help="only this part")
    parser.add_argument("--follow", type=int, help="only be consoles of the server at this port")
    parser.add_argument("--token", type=Path, help="the file with the token of these consoles")
    options = parser.parse_args()
    if options.follow:
        asyncio.run(_follow(options.follow, options.token.read_text().strip()))
        return
    parts: dict[str, Callable[[Server, float], None]] = {
        "browser": _measure_browser,
        "idle": _measure_idle,
        "polls": _measure_polls,
    }
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/forewarn.db"
        fill(url, describe(VMS))
        server = Server(folder=Path(name) / "state", database=url)
        with running(server):
            server.wait_for(scheduled_events(VM))
            _schedule(server)
            for part, measure in parts.items():
                if options.only in {None, part}:
                    measure(server, options.seconds)


def _schedule(server: Server) -> None:
    for number in range(EVENTS):
        when = {"started": True} if number < STARTED else {"not_before": f"{2 + number % 40}h"}
        server.create("Freeze", f"vm-{number * (VMS // EVENTS):07}", **when)
    print(f"{VMS} VMs, {EVENTS} events in flight, {STARTED} of them Started", flush=True)


@contextmanager
def _changing(server: Server) -> Iterator[None]:
    """Commit something that every page shows, once a second."""
    ended = threading.Event()
    own = server.as_another()

    def change() -> None:
        while not ended.wait(1):
            event_id = own.create("Freeze", CHANGED, not_before="1h")
            ended.wait(1)
            own.operate("POST", f"events/{event_id}/cancel")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        own.hang_up()


# --- one browser -------------------------------------------------------------------------------


@contextmanager
def _browser(server: Server) -> Iterator[Any]:
    """Give a page of a browser that is signed in."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(WATCH_TASKS)
        code = server.operate("POST", "sign-in-links")["code"]
        page.goto(f"http://127.0.0.1:{server.control_port}/login#{code}")
        _await_live(page)
        yield page
        browser.close()


def _await_live(page: Any) -> None:
    page.locator("#live[data-state=live]").wait_for(timeout=30_000)


def _measure_browser(server: Server, seconds: float) -> None:
    if not CHROMIUM.exists():
        skip_without("chromium-headless-shell")
        return
    with _browser(server) as page:
        for name, path in PAGES.items():
            paints = []
            for _ in range(LOADS):
                page.goto(f"http://127.0.0.1:{server.control_port}{path}")
                _await_live(page)
                paints.append(page.evaluate(PAINT))
            loading = page.evaluate("Math.max(0, ...window.tasks)")
            page.evaluate("window.tasks = []")
            with _changing(server):
                page.wait_for_timeout(seconds * 1000)
            tasks = page.evaluate("window.tasks")
            print(
                f"{name}: first paint after {statistics.median(paints):.0f} ms"
                f" (target {PAINT_TARGET}); longest task {max(tasks, default=0):.0f} ms while"
                f" changes arrive (target {TASK_TARGET}), {len(tasks)} over 50 ms;"
                f" {loading:.0f} ms while it loads",
                flush=True,
            )


def _measure_idle(server: Server, seconds: float) -> None:
    if not CHROMIUM.exists():
        skip_without("chromium-headless-shell")
        return
    alone = _busy(server, seconds)
    with _browser(server) as page:
        for name, path in PAGES.items():
            page.goto(f"http://127.0.0.1:{server.control_port}{path}")
            _await_live(page)
            page.wait_for_timeout(SETTLING_SECONDS * 1000)
            shown = _busy(server, seconds)
            print(
                f"an idle browser on {name}: {shown - alone:.2f} % of a core"
                f" (target {IDLE_TARGET:.0f}); the server alone {alone:.2f} %",
                flush=True,
            )


def _busy(server: Server, seconds: float) -> float:
    """Return for how many percent of the time the server kept a core busy."""
    before, began = server.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu_seconds() - before) / (time.monotonic() - began) * 100


# --- many consoles -----------------------------------------------------------------------------


def _measure_polls(server: Server, seconds: float) -> None:
    quiet: list[float] = []
    watched: list[float] = []
    pages = 0
    with suppress(PermissionError):  # root in a container may not either
        _prefer(server)
    with _changing(server):
        _poll(server, SETTLING_SECONDS)  # what is done once is done now
        for _ in range(SLICES):
            quiet += _poll(server, seconds / SLICES)
            with _consoles(server) as consoles:
                watched += _poll(server, seconds / SLICES)
                pages += int(consoles.communicate()[0])
    before, after = (statistics.quantiles(times, n=100)[98] for times in (quiet, watched))
    print(
        f"polls, p99: {before:.2f} ms without and {after:.2f} ms with {CONSOLES} consoles,"
        f" {after / before:.2f} times (target {POLLS_TARGET} times);"
        f" {pages / seconds:.0f} pages/s, a commit each second",
        flush=True,
    )


def _prefer(server: Server) -> None:
    """Have the server and this thread run in real time."""
    if server.process is None:
        raise ValueError(server.process)
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    mine = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    os.sched_setscheduler(0, mine, os.sched_param(1))


def _poll(server: Server, seconds: float) -> list[float]:
    """Return how many milliseconds each poll of a virtual machine took."""
    request = f"GET {scheduled_events(VM)} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode()
    times = []
    deadline = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", server.metadata_port), timeout=30) as connection:
        while time.monotonic() < deadline:
            began = time.perf_counter()
            connection.sendall(request)
            connection.recv(65_536)
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(POLL_PAUSE)
    return times


@contextmanager
def _consoles(server: Server) -> Iterator["subprocess.Popen[str]"]:
    """Run consoles, which say how many pages they got when their input ends."""
    port, token = str(server.control_port), str(server.folder / "admin.token")
    command = [sys.executable, __file__, "--follow", port, "--token", token, *PASSED_ON]
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise SystemExit("the consoles do not start")
            yield process
        finally:
            process.kill()


async def _follow(port: int, token: str) -> None:
    """Be consoles until standard input ends."""
    consoles = [_Console(port) for _ in range(CONSOLES)]
    # A token begins only so many sessions a minute, and a person has several windows of one.
    for number, console in enumerate(consoles):
        if number % WINDOWS == 0:
            await console.sign_in(token)
        else:
            console.share(consoles[number - 1])
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(console.live()) for console in consoles]
        await asyncio.gather(*(console.hears.wait() for console in consoles))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for life in lives:
            life.cancel()
    print(sum(console.pages for console in consoles), flush=True)


class _Console:
    """Follows changes on the page Now, as console.js does, and counts what it gets."""

    def __init__(self, port: int) -> None:
        self.pages = 0
        self.hears = asyncio.Event()
        self._port = port
        self.cookie = ""
        self._digest = ""
        self._told = asyncio.Event()

    async def sign_in(self, token: str) -> None:
        """Get a session."""
        authorization = f"Authorization: Bearer {token}"
        reader, writer = await self._send("POST", "/login", authorization)
        _, headers, _ = await _read_answer(reader)
        self.cookie = headers["set-cookie"].partition(";")[0]
        writer.close()

    def share(self, other: "_Console") -> None:
        """Be another window of the browser that *other* is of."""
        self.cookie = other.cookie

    async def live(self) -> None:
        """Listen and ask, until canceled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._ask())

    async def _listen(self) -> None:
        reader, _ = await self._send("GET", "/live", "Accept: text/event-stream")
        while line := await reader.readline():
            if line.startswith(b"data:"):
                self.hears.set()
                self._told.set()
        raise SystemExit("a stream has ended")

    async def _ask(self) -> None:
        streams = None
        while True:
            await self._told.wait()
            await asyncio.sleep(random.random() * BEAT_CHANCE)  # noqa: S311 - as browsers spread
            self._told.clear()
            headers = ("HX-Request: true", "X-Live: 1", f"X-Have: {self._digest}")
            streams = await self._send("GET", "/", *headers, streams=streams)
            status, _, body = await _read_answer(streams[0])
            if status not in {200, 204}:
                raise SystemExit(f"a page is answered with {status}")
            if status == 200:
                self._digest = _find_digest(body)
                self.pages += 1
            await asyncio.sleep(BEAT_GAP)

    async def _send(
        self,
        method: str,
        path: str,
        *headers: str,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if streams is None or streams[0].at_eof():
            limit = 16 * 1024 * 1024
            streams = await asyncio.open_connection("127.0.0.1", self._port, limit=limit)
        head = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Cookie: {self.cookie}",
            "Content-Length: 0",
            *headers,
        ]
        streams[1].write(("\r\n".join(head) + "\r\n\r\n").encode())
        await streams[1].drain()
        return streams


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in head[1:])}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


def _find_digest(body: bytes) -> str:
    head = body[: body.index(b">")].decode()
    return head.partition('"X-Have": "')[2].partition('"')[0]


if __name__ == "__main__":
    run(main)
