"""Each example lives through events as a process of its own, and through trouble."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.needs import need

from forewarn.testing import Emulator

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 45.0
# Nobody listens on the discard port: whoever used the proxy would get nowhere.
DEAD_PROXY = {
    **dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), ""),
    "NODE_USE_ENV_PROXY": "1",
}
WEB = {
    "availability_set": [{"name": "web"}],
    "virtual_machine": [{"name": f"web-{number}", "availability_set": "web"} for number in (0, 1)],
}

Build = Callable[[Path], Sequence[str | Path]]
Life = Callable[[Sequence[str | Path], Path], None]
Lives = Mapping[tuple[str, Life], Future[None]]


def build_csharp(folder: Path) -> Sequence[str | Path]:
    need("mcs", "mono")
    program = folder / "ScheduledEvents.exe"
    references = ("-r:System.Net.Http", "-r:System.Runtime.Serialization")
    source = EXAMPLES / "ScheduledEvents.cs"
    subprocess.run(["mcs", "-warnaserror", *references, f"-out:{program}", source], check=True)
    return ("mono", program)


def build_go(folder: Path) -> Sequence[str | Path]:
    need("go")
    program = folder / "scheduled_events"
    quiet = {"GOCACHE": str(folder / "cache"), "GOPROXY": "off", "GOFLAGS": "-mod=mod"}
    command = ["go", "build", "-o", str(program), str(EXAMPLES / "scheduled_events.go")]
    subprocess.run(command, env={**os.environ, **quiet}, check=True)
    return (program,)


def build_script(*interpreter: str, script: str) -> Build:
    def build(_folder: Path) -> Sequence[str | Path]:
        need(*interpreter)
        return (*interpreter, EXAMPLES / script)

    return build


def build_shell(_folder: Path) -> Sequence[str | Path]:
    need("curl", "jq")
    return ("sh", EXAMPLES / "scheduled-events.sh")


BUILDS: Mapping[str, Build] = {
    "python-sdk": build_script(sys.executable, script="python_sdk.py"),
    "python-urllib": build_script(sys.executable, script="python_urllib.py"),
    "csharp": build_csharp,
    "shell": build_shell,
    "node": build_script("node", script="scheduled_events.mjs"),
    "go": build_go,
    # No distribution of ours has it, so nobody is asked to install it.
    **(
        {"powershell": build_script("pwsh", script="scheduled-events.ps1")}
        if shutil.which("pwsh")
        else {}
    ),
}

each_example = pytest.mark.parametrize("name", BUILDS)


@dataclass(frozen=True)
class Running:
    """An example that runs."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def lines(self) -> list[str]:
        return self.stdout.read_text(encoding="utf-8").splitlines()

    def await_line(self, *beginnings: str) -> str:
        """Return the first line that begins with one of *beginnings*."""
        wait_until(
            lambda: any(line.startswith(beginnings) for line in self.lines()),
            lambda: f"no line begins with {beginnings}: {self}",
        )
        return next(line for line in self.lines() if line.startswith(beginnings))

    def __str__(self) -> str:
        return f"{self.stdout.read_text('utf-8')}\n{self.stderr.read_text('utf-8')}"


def wait_until(is_true: Callable[[], bool], reason: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"after {SECONDS:.0f} s: {reason()}"
        time.sleep(0.02)


@contextmanager
def running(
    program: Sequence[str | Path], vm: Mapping[str, str], folder: Path, *command: str | Path
) -> Iterator[Running]:
    """Run *program* with the environment of *vm*, once, with *command* for draining."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    words = [*program, *(["-Once"] if program[0] == "pwsh" else ["--once"]), *command]
    environment = {**os.environ, **DEAD_PROXY, **vm}
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(words, env=environment, stdout=out, stderr=err)
    try:
        yield Running(process, stdout, stderr)
    finally:
        process.kill()
        process.wait()


def write_script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def live_through_trouble(program: Sequence[str | Path], folder: Path) -> None:
    drained, may_go_on = folder / "drained", folder / "go-on"
    script = write_script(
        folder / "drain.sh",
        f'echo "$EVENT_ID $EVENT_TYPE" >> "{drained}"\n'
        f'while [ ! -e "{may_go_on}" ]; do sleep 0.1; done\n',
    )
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        web.fault("reset", times=1)
        web.fault("status", status=410, times=1)
        web.fault("empty-body", times=1)

        with running(program, web.environment, folder, "sh", script) as example:
            example.await_line("I am web-0")
            event = web.reboot()
            example.await_line(f"scheduled {event.event_id} Reboot of web-0, not before ")
            wait_until(drained.exists, lambda: f"nothing was drained: {example}")
            event.assert_not_approved()
            web.fault("status", status=503, times=1)
            may_go_on.touch()
            emulator.await_started(event, timeout=SECONDS)
            example.await_line(f"started {event.event_id} Reboot of web-0")
            emulator.clock.advance(minutes=10)
            assert example.process.wait(SECONDS) == 0, str(example)

        event.assert_approved(by="web-0")
        assert drained.read_text("utf-8") == f"{event.event_id} Reboot\n"
        assert f"approved {event.event_id}" in example.lines()
        assert example.lines()[-1].startswith((f"gone {event.event_id}", "completed "))


def live_without_approving(program: Sequence[str | Path], folder: Path) -> None:
    drained = folder / "drained"
    script = write_script(folder / "drain.sh", f'echo "$EVENT_TYPE" >> "{drained}"\nexit 3\n')
    with Emulator(WEB) as emulator:
        web, neighbour = emulator.vm("web-0"), emulator.vm("web-1")

        with running(program, web.environment, folder, "sh", script) as example:
            theirs = neighbour.freeze()
            example.await_line(f"scheduled {theirs.event_id} Freeze of web-1, not before ")
            neighbour.cancel()
            example.await_line(f"gone {theirs.event_id}", f"canceled {theirs.event_id}")
            mine = web.redeploy()
            example.await_line(f"scheduled {mine.event_id}")
            emulator.clock.advance(minutes=10)
            example.await_line(f"started {mine.event_id} Redeploy of web-0")
            emulator.clock.advance(minutes=10)
            assert example.process.wait(SECONDS) == 0, str(example)

        assert emulator.approvals == ()
        assert drained.read_text("utf-8") == "Redeploy\n"
        assert re.search(r"not approved: sh.*\b3\b", example.stderr.read_text("utf-8"))


PLAIN = {
    "/metadata/instance/compute/name": b"web-0",
    "/metadata/instance": b'{"compute":{"name":"web-0"}}',
    "/metadata/scheduledevents": b'{"DocumentIncarnation":5,"Events":[]}',
}


class PlainServer(BaseHTTPRequestHandler):
    """A server that has no more than Azure's, and writes down who knows what already."""

    server: "PlainHost"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        known = self.headers["If-None-Match"]
        if path == "/metadata/scheduledevents":
            self.server.known.append(known)
        body = b"" if known == "5" else PLAIN.get(path, b"")
        self.send_response(304 if known == "5" else 200 if body else 404)
        self.send_header("ETag", "5")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class PlainHost(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PlainServer)
        self.known: list[str | None] = []


def live_with_nothing_new(program: Sequence[str | Path], folder: Path) -> None:
    with PlainHost() as server:
        threading.Thread(target=server.serve_forever).start()
        vm = {"FOREWARN_METADATA": f"http://127.0.0.1:{server.server_port}"}
        try:
            with running(program, vm, folder) as example:
                wait_until(lambda: len(server.known) >= 3, lambda: f"it stopped asking: {example}")
        finally:
            server.shutdown()

    assert server.known[0] in {None, "none"}
    assert server.known[1:3] == ["5", "5"]


def live_through_silence(program: Sequence[str | Path], folder: Path) -> None:
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        web.fault("slow", seconds=2 * SECONDS, times=1)

        with running(program, web.environment, folder) as example:
            example.await_line("I am web-0")


LIVES: Sequence[Life] = (
    live_through_trouble,
    live_without_approving,
    live_with_nothing_new,
    live_through_silence,
)


@pytest.fixture(scope="session")
def lives(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lives]:
    """Every life of every example, all at the same time: they spend it waiting."""
    with ThreadPoolExecutor(max_workers=len(BUILDS) * len(LIVES)) as pool:
        programs = {
            name: pool.submit(build, tmp_path_factory.mktemp(name))
            for name, build in BUILDS.items()
        }
        yield {
            (name, life): pool.submit(begin, life, program, tmp_path_factory.mktemp(name))
            for name, program in programs.items()
            for life in LIVES
        }


def begin(life: Life, program: Future[Sequence[str | Path]], folder: Path) -> None:
    life(program.result(), folder)


@each_example
def test_drains_and_approves_whatever_is_in_the_way(name: str, lives: Lives) -> None:
    lives[name, live_through_trouble].result()


@each_example
def test_approves_neither_for_neighbours_nor_when_draining_failed(name: str, lives: Lives) -> None:
    lives[name, live_without_approving].result()


@each_example
def test_asks_again_only_for_what_is_new(name: str, lives: Lives) -> None:
    lives[name, live_with_nothing_new].result()


@each_example
def test_silent_server_is_asked_again(name: str, lives: Lives) -> None:
    lives[name, live_through_silence].result()


@pytest.mark.parametrize("expects_continue", [True, False], ids=["windows", "core"])
def test_calls_of_the_powershell_example_are_understood(*, expects_continue: bool) -> None:
    """PowerShell cannot be had here: this is what its HttpClient sends, on both frameworks."""
    with Emulator() as emulator:
        event = emulator.vm("web-0").reboot()
        start = json.dumps({"StartRequests": [{"EventId": event.event_id}]}).encode("ascii")
        kind = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(start))}
        expect = {"Expect": "100-continue"} if expects_continue else {}

        host, port = emulator.address.split(":")
        with socket.create_connection((host, int(port)), SECONDS) as connection:
            connection.sendall(head("GET", emulator.address, {"If-None-Match": "1"}))
            assert read_answer(connection) == (304, b"")
            connection.sendall(head("POST", emulator.address, expect | kind))
            if expects_continue:
                assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(start)
            assert read_answer(connection) == (200, b"")

        event.assert_approved(by="web-0")


def head(method: str, address: str, fields: Mapping[str, str]) -> bytes:
    path = "/vm/web-0/metadata/scheduledevents?api-version=2020-07-01"
    lines = {"Host": address, "Metadata": "true", **fields}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("ascii")


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    response = HTTPResponse(connection)
    response.begin()
    return response.status, response.read()
