"""What polls are measured with: nginx beside it, wrk and pollers on another core."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, Self
from urllib.request import Request, urlopen

from local_ports import free_port, wait_for
from servers import API_VERSION, children_of, cpu_seconds

CORES: Final = sorted(os.sched_getaffinity(0))
SERVED: Final = CORES[0]
"""The core of whatever is measured."""
ASKING: Final = CORES[-1]
"""The core of whoever asks."""
CONNECTIONS: Final = 64
PATH: Final = f"/metadata/scheduledevents?api-version={API_VERSION}"
NGINX: Final = """
worker_processes 1; daemon off; pid {0}/nginx.pid; error_log {0}/error.log;
events {{ worker_connections 16384; }}
http {{ access_log off; keepalive_requests 100000000; default_type application/json;
  client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
  uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
  open_file_cache max=16 inactive=10m; open_file_cache_valid 10m; open_file_cache_errors off;
  server {{ listen 127.0.0.1:{1} backlog=2048 deferred; root {0};
    location /metadata/ {{ etag on; }} }} }}
"""
"""As fast as nginx serves a small file that rarely changes.

It keeps the file open. Like the server's hot path, it accepts a connection once it has a request.
`sendfile` stays off: with it, head and body need two calls instead of one, and `tcp_nopush` two
more. That is cheaper only if the answer also closes the connection.
"""
_PACKAGES: Final = {"wrk": "wrk", "nginx": "nginx-light", "taskset": "util-linux"}
_POLLERS: Final = str(Path(__file__).with_name("pollers.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that is polled: where, by whom, and which processes are charged for it."""

    port: int
    pids: tuple[int, ...]
    path: str = PATH
    headers: Mapping[str, str]

    def request(self) -> str:
        """Return a poll as it goes over the wire."""
        headers = {"Host": f"127.0.0.1:{self.port}", **self.headers}
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        return f"GET {self.path} HTTP/1.1\r\n{''.join(lines)}\r\n"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one slice has shown: polls per second, and the CPU of each in microseconds."""

    rate: float
    cpu: float


def pinned(core: int, *command: str) -> tuple[str, ...]:
    """Return *command* on one core."""
    return ("taskset", "-c", str(core), *command)


@contextmanager
def nginx(folder: Path, body: bytes) -> Iterator[Target]:
    """Have nginx serve *body* where virtual machines poll."""
    page = folder / "metadata" / "scheduledevents"
    page.parent.mkdir(parents=True)
    page.write_bytes(body)
    for each in (folder, folder.parent):
        each.chmod(0o755)  # as root, its worker is another user
    port = free_port()
    (folder / "nginx.conf").write_text(NGINX.format(folder, port))
    words = (_find_nginx(), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"))
    process = subprocess.Popen(pinned(SERVED, *words))  # noqa: S603
    try:
        wait_for(port)
        pids = (process.pid, *children_of(process.pid))
        yield Target(port=port, pids=pids, headers={"Metadata": "true"})
    finally:
        process.terminate()
        process.wait(timeout=10)


def _find_nginx() -> str:
    """Return the path of nginx, which is not in the PATH of every user; or else its name."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or "nginx"


def nginx_version() -> str:
    """Return the name and version of nginx, and how it differs from its default settings."""
    words = (_find_nginx(), "-v")
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stderr  # noqa: S603
    version = _find(r"nginx/([\d.]+)", printed)
    return f"nginx {version} with open_file_cache"


def read_answer(target: Target) -> bytes:
    """Return what is served to 127.0.0.1, as soon as it is."""
    url = f"http://127.0.0.1:{target.port}{target.path}"
    request = Request(url, headers=dict(target.headers))
    problem: OSError | None = None
    for _ in range(600):
        try:
            with urlopen(request, timeout=5) as reply:  # noqa: S310
                content: bytes = reply.read()
                return content
        except OSError as error:
            problem = error
            time.sleep(0.1)
    raise SystemExit(f"nothing is served at {url}: {problem}")


def drive_with_wrk(target: Target, seconds: float) -> Figures:
    """Poll as fast as wrk can on kept connections, or on one each if the headers say so."""
    headers = [f"-H{name}: {value}" for name, value in target.headers.items()]
    # wrk takes whole seconds, but still prints its report if it is interrupted earlier.
    limit = ("timeout", "--preserve-status", "--signal=INT", str(seconds))
    command = (*limit, "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{ceil(seconds)}s", *headers)
    before = cpu_seconds(*target.pids)
    report = subprocess.run(  # noqa: S603
        pinned(ASKING, *command, f"http://127.0.0.1:{target.port}{target.path}"),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 30,
    ).stdout
    spent = cpu_seconds(*target.pids) - before
    if "Non-2xx" in report or "Socket errors" in report:
        raise SystemExit(report)
    polls = int(_find(r"(\d+) requests in", report))
    return Figures(float(_find(r"Requests/sec:\s+([\d.]+)", report)), spent / polls * 1e6)


def drive_with_pollers(
    kind: str, target: Target, sources: Sequence[str], seconds: float
) -> Figures:
    """Poll from *sources*, each on a kept connection, or each time on another."""
    order = {"seconds": seconds, "sources": sources, "requests": [target.request()]}
    with Pollers.running(kind, target.port, order) as pollers:
        pollers.hear()
        before = cpu_seconds(*target.pids)
        figures = pollers.hear()
        spent = cpu_seconds(*target.pids) - before
    polls = figures["polls"]
    return Figures(polls / figures["seconds"], spent / polls * 1e6)


@dataclass(frozen=True, slots=True)
class Pollers:
    """A process of `pollers.py`."""

    process: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def running(
        cls, kind: str, port: int, order: Mapping[str, object], core: int = ASKING
    ) -> Iterator[Self]:
        """Run pollers of a *kind* while the block runs."""
        command = pinned(core, sys.executable, _POLLERS, kind)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
            pollers = cls(process)
            try:
                pollers.tell(json.dumps({"port": port, **order}))
                yield pollers
            finally:
                process.kill()

    def tell(self, line: str) -> None:
        """Send a line."""
        if self.process.stdin is None:
            raise ValueError(self.process)
        print(line, file=self.process.stdin, flush=True)

    def hear(self) -> Any:
        """Return what they say next."""
        if self.process.stdout is None:
            raise ValueError(self.process)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the pollers have failed")
        return json.loads(line)


def find_missing() -> list[str]:
    """Return the programs that are not installed."""
    programs = {tool: _find_nginx() if tool == "nginx" else tool for tool in _PACKAGES}
    return [tool for tool, program in programs.items() if shutil.which(program) is None]


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"{pattern!r} not found in:\n{text}")
    return match[1]
