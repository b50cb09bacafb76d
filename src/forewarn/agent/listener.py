"""The local listener: /healthz, /readyz, /drainz and /metrics."""

import contextlib
import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final, TypeAlias, cast

from forewarn.agent.errors import AgentError
from forewarn.agent.status import Status, write_metrics

ANSWER_SECONDS: Final = 5.0
"""How long a connection may last, whether or not anybody says anything on it."""
MOST_CONNECTIONS: Final = 32
"""Of more, the oldest is closed: a probe is answered in a moment."""

_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]
"""As socketserver has it; the second is for datagrams, of which there are none here."""

_log = logging.getLogger("forewarn.agent")


def start_listener(address: tuple[str, int], status: Status) -> "Listener":
    """Answer at *address* from now on, or raise AgentError."""
    try:
        listener = Listener(address, status)
    except OSError as error:
        host, port = address
        raise AgentError(f"listen: {host}:{port} is not available: {error}.") from error
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    return listener


class Listener(ThreadingTCPServer):
    """Shows *status* to whoever asks.

    It is no HTTPServer, because that asks for the name of its address, and waits for the answer.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], status: Status) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}
        super().__init__(address, _Handler)
        self.status = status

    def process_request(self, request: _Request, client_address: object) -> None:
        """Answer in a thread, and let go of the oldest connection if there are too many."""
        connection = cast("socket.socket", request)
        with self._lock:
            if len(self._deadlines) >= MOST_CONNECTIONS:
                self._cut(next(iter(self._deadlines)))
            self._deadlines[connection] = time.monotonic() + ANSWER_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: _Request) -> None:
        """Close a connection that was answered."""
        with self._lock:
            self._deadlines.pop(cast("socket.socket", request), None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close what has lasted too long; twice a second."""
        now = time.monotonic()
        with self._lock:
            for connection, deadline in tuple(self._deadlines.items()):
                if now >= deadline:
                    self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        """End what its thread waits for, which then closes it."""
        del self._deadlines[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Keep it short if somebody has not waited for the answer."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            _log.debug("probe_broken error=%s", error)
        else:
            _log.exception("probe_failed")


def _answer(path: str, status: Status) -> tuple[int, str]:
    match path:
        case "/metrics":
            return 200, write_metrics(status)
        case "/healthz" if not status.is_alive(time.monotonic()):
            return 503, "the agent has not made progress for a minute"
        case "/readyz" if not status.is_ready:
            return 503, f"no usable answer from the metadata server: {status.trouble}"
        case "/drainz" if status.is_draining:
            return 503, "draining"
        case "/healthz" | "/readyz" | "/drainz":
            return 200, "ok"
        case _:
            return 404, "not found"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = ANSWER_SECONDS
    server: Listener

    def do_GET(self) -> None:
        status, text = _answer(self.path.partition("?")[0], self.server.status)
        body = f"{text.rstrip()}\n".encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe a second is no news."""
