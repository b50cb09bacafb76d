"""A real site that answers, or does not, and the one client of all tests that ask somebody."""

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tests.receiver import Received

from forewarn.outbound.client import Outbound

OUTBOUND: Final = Outbound()
"""It is never closed: its thread is a daemon."""


class Site:
    """Answers with *status* and *body*, which may come a byte at a time, or never."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"fine"
        self.headers: dict[str, str] = {}
        self.seconds_per_byte = 0.0
        self.is_silent = False
        self.received: list[Received] = []
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def write_body(self, write: Callable[[bytes], object]) -> None:
        if not self.seconds_per_byte:
            write(self.body)
            return
        for number in range(len(self.body)):
            write(self.body[number : number + 1])
            if self.closing.wait(self.seconds_per_byte):
                return

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            site.received.append(Received(self.path, headers, body, self.client_address[1]))
            if site.is_silent:
                site.closing.wait(30)
                return
            self.send_response(site.status)
            for name, value in {"Content-Length": str(len(site.body)), **site.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                site.write_body(self.wfile.write)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing."""

    return Handler
