"""A real HTTP receiver of webhooks, that can be away, come back and misbehave."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports import free_port


@dataclass(frozen=True, slots=True)
class Received:
    """One request, with the names of its headers in lower case, and from which port it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    port: int

    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content


Answer = tuple[int, dict[str, str]] | None
"""A status with headers; None hangs up without a word."""


class Receiver:
    """Keeps every request it gets, and answers as *answer* says: with 204 unless told."""

    def __init__(self) -> None:
        self.port = free_port()
        self.received: list[Received] = []
        self.answer: Callable[[Received], Answer] = lambda _: (204, {})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take requests, on the same port every time."""
        server = _Server(("127.0.0.1", self.port), self._handler())
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join(60)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                length = int(headers.get("content-length", "0"))
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True
                    return  # whoever sent it was killed over it
                request = Received(self.path, headers, body, self.client_address[1])
                receiver.received.append(request)
                answer = receiver.answer(request)
                if answer is None:
                    self.close_connection = True
                    return
                status, more = answer
                self.send_response(status)
                for name, value in {"Content-Length": "0", **more}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Say nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def server_close(self) -> None:
        """Hang up on those who keep their connection, too."""
        super().server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of senders that were killed in the middle of a request."""
