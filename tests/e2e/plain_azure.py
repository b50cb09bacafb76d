"""A metadata server as plain as Azure's: no ETag, no waiting, no paths of our own."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENT = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["WestNO_0", "WestNO_1"],
    "NotBefore": "Mon, 11 Apr 2022 22:26:58 GMT",
    "Description": "Virtual machine is being paused because of a memory-preserving Live Migration"
    " operation.",
    "EventSource": "Platform",
    "DurationInSeconds": 5,
}
INSTANCE = {"compute": {"name": "WestNO_0", "vmId": "5d33a910-a7a0-4443-9f01-6a807801b29b"}}


class PlainAzure(ThreadingHTTPServer):
    """Shows `events`, and notes what is approved."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.incarnation = 1
        self.events: list[dict[str, Any]] = []
        self.approved: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def show(self, *events: dict[str, Any]) -> None:
        self.incarnation, self.events = self.incarnation + 1, list(events)


@contextmanager
def plain_azure() -> Iterator[PlainAzure]:
    """Let one run."""
    with PlainAzure() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: PlainAzure

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        document = {"DocumentIncarnation": self.server.incarnation, "Events": self.server.events}
        known = {"/metadata/scheduledevents": document, "/metadata/instance": INSTANCE}
        if self.headers.get("Metadata") != "true":
            self._answer(400, {"error": "Bad request: . Required metadata header not specified"})
        elif path in known:
            self._answer(200, known[path])
        else:
            self._answer(404, {"error": "Not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/metadata/scheduledevents"):
            self.server.approved += [each["EventId"] for each in body["StartRequests"]]
            self._answer(200, None)
        else:
            self._answer(404, {"error": "Not found"})

    def _answer(self, status: int, content: object) -> None:
        body = b"" if content is None else json.dumps(content, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
