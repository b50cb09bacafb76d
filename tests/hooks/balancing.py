"""Two servers behind HAProxy or nginx, on the loopback interface."""

import os
import subprocess
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.e2e.conftest import wait_until
from tests.hooks.conftest import PATH
from tests.ports import free_port

SECONDS = 45.0

HAPROXY = """
global
  stats socket {folder}/admin.sock mode 600 level admin
  stats socket ipv4@127.0.0.1:{admin_port} level admin
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend all
  bind 127.0.0.1:{port}
  default_backend web
backend web
  server web-0 127.0.0.1:{first} check inter 100ms fall 1 rise 1
  server web-1 127.0.0.1:{second} check inter 100ms fall 1 rise 1
"""

NGINX = """
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream web {{
    include {folder}/web-0;
    server 127.0.0.1:{second};
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://web; }}
  }}
}}
"""


class Web:
    """A server that answers with its name, and holds requests for /slow until released."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.held = 0
        self.released = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,)).start()

    def stop(self) -> None:
        self.released.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path == "/slow":
            self.held += 1
            self.released.wait(SECONDS)
        request.send_response(200)
        request.send_header("Content-Length", str(len(self.name)))
        request.end_headers()
        with suppress(BrokenPipeError):  # the balancer was ended
            request.wfile.write(self.name.encode("ascii"))


@dataclass(slots=True, kw_only=True)
class Balancer:
    """A balancer before *first*, which is to be drained, and *second*."""

    folder: Path
    first: Web
    second: Web
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    pool: ThreadPoolExecutor

    def fetch(self, path: str = "/") -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def who_answers(self) -> set[str]:
        return {self.fetch() for _ in range(6)}

    def wait_for(self, *names: str) -> None:
        """Return when these answer and no others."""
        wait_until(lambda: self.who_answers() == set(names), f"not {names} answer", SECONDS)

    def hold_a_request(self) -> list[Future[str]]:
        """Ask each server for something slow, and return when the first one holds that."""
        self.second.released.set()
        answers = [self.pool.submit(self.fetch, "/slow") for _ in "01"]
        wait_until(lambda: self.first.held > 0, "nobody took the request", SECONDS)
        return answers

    def is_there(self) -> bool:
        try:
            return self.who_answers() == {"web-0", "web-1"}
        except OSError:
            return False


@contextmanager
def haproxy(folder: Path) -> Generator[Balancer]:
    with _servers(folder) as balancer:
        file = folder / "haproxy.cfg"
        _write(file, HAPROXY, balancer)
        with _process(["haproxy", "-db", "-f", str(file)], balancer):
            yield balancer


@contextmanager
def nginx(folder: Path) -> Generator[Balancer]:
    with _servers(folder) as balancer:
        (folder / "web-0").write_text(
            f"  server 127.0.0.1:{balancer.first.port} max_fails=2; # the first\n", encoding="ascii"
        )
        _write(folder / "nginx.conf", NGINX, balancer)
        with _process([*nginx_command(folder), "-g", "daemon off;"], balancer):
            yield balancer


def nginx_command(folder: Path) -> list[str]:
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


@contextmanager
def _servers(folder: Path) -> Generator[Balancer]:
    first, second = Web("web-0"), Web("web-1")
    with ThreadPoolExecutor() as pool:
        first.start()
        second.start()
        try:
            yield Balancer(folder=folder, first=first, second=second, pool=pool)
        finally:
            first.stop()
            second.stop()


def _write(file: Path, text: str, balancer: Balancer) -> None:
    values = {
        "folder": balancer.folder,
        "port": balancer.port,
        "admin_port": balancer.admin_port,
        "first": balancer.first.port,
        "second": balancer.second.port,
        "user": "user root;" if os.geteuid() == 0 else "",
    }
    file.write_text(text.format(**values), encoding="ascii")


@contextmanager
def _process(command: Sequence[str], balancer: Balancer) -> Generator[None]:
    with (balancer.folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": PATH})
    try:
        wait_until(balancer.is_there, f"no balancer, see {balancer.folder}/log", SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)
