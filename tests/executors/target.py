"""A real program at the end of the webhook executor: it remembers orders, and can misbehave."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY_HEADERS = (
    ("forewarn-event-id", "forewarn-operation-id"),
    ("forewarn-virtual-machine", "forewarn-operation-task"),
)

Reply = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, with the names of its headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def say(code: int, content: object = None, **headers: str) -> Reply:
    """Return an answer, in JSON if there is something to say."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if content is None:
        return code, named, b""
    return code, {"Content-Type": "application/json", **named}, json.dumps(content).encode()


@dataclass(slots=True)
class OrderTarget:
    """Takes each order once, however often it comes, and tells how far it is at the place it names.

    *on_post* and *on_get* answer in its place, if they answer; *delay* seconds are taken for each.
    """

    deeds: list[tuple[str, str]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    on_post: Callable[[Asked], Reply | None] = lambda _: None
    on_get: Callable[[Asked], Reply | None] = lambda _: None
    delay: float = 0.0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/orders"

    def end(self, vm: str, status: str, message: str = "") -> None:
        """Say of the order about *vm*, or of that task, from now on, that it has *status*."""
        self.statuses[vm] = {"status": status, "message": message}

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        time.sleep(self.delay)
        whole, vm = (
            asked.headers.get(names[0]) or asked.headers[names[1]] for names in KEY_HEADERS
        )
        if asked.method == "POST":
            key = (whole, vm)
            if key not in self.deeds:
                self.deeds.append(key)
            return self.on_post(asked) or say(202, Location=f"/status/{key[0]}/{vm}")
        usual = {"status": "running", "message": "working"}
        return self.on_get(asked) or say(200, self.statuses.get(vm, usual))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take requests, on the same port every time."""
        server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join(60)


def _first_of(headers: dict[str, str], names: tuple[str, ...]) -> str:
    return next(headers[name] for name in names if name in headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # beyond that, connections are tried again after a second

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of senders that did not wait for the answer."""


def _handler(target: OrderTarget) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            code, more, said = target.answer(Asked(self.command, self.path, headers, body))
            self.send_response(code)
            for name, value in {**more, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing."""

    return Handler
