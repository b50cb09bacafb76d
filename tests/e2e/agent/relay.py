"""A relay between an agent and a server, in which an approval can get stuck on its way."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum, auto
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.e2e.conftest import ANSWER_SECONDS


class Stuck(Enum):
    """What of a POST does not arrive."""

    REQUEST = auto()
    ANSWER = auto()


class Relay(ThreadingHTTPServer):
    """Passes on what it is asked to the server on *port*, but for what gets *stuck* of a POST."""

    daemon_threads = True

    def __init__(self, port: int, stuck: Stuck) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = port
        self.stuck = stuck
        self._is_stuck = threading.Event()
        self._is_free = threading.Event()

    def wait_until_stuck(self) -> None:
        """Return when a POST is stuck; whoever sent it waits for its answer."""
        assert self._is_stuck.wait(ANSWER_SECONDS), "nobody has sent a POST"

    def free(self) -> None:
        """Drop what is stuck, and let everything pass from now on."""
        self._is_free.set()

    def lets_pass(self, command: str, part: Stuck) -> bool:
        """Return at once if *part* of a *command* passes, or if it is lost, once that is over."""
        if command != "POST" or part is not self.stuck or self._is_free.is_set():
            return True
        self._is_stuck.set()
        self._is_free.wait()
        return False


@contextmanager
def relay(port: int, stuck: Stuck) -> Iterator[Relay]:
    """Let one run."""
    with Relay(port, stuck) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:
            server.free()
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Relay

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # the server was killed, as far as the caller can tell
            self._pass_on()

    def do_POST(self) -> None:
        self.do_GET()

    def _pass_on(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.server.lets_pass(self.command, Stuck.REQUEST):
            return
        with closing(HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        if self.server.lets_pass(self.command, Stuck.ANSWER):
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
