"""The local listener: /healthz, /readyz, /drainz and /metrics."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final, TypeAlias

from forewarn.agent.errors import AgentError
from forewarn.agent.status import Status, write_metrics

_ANSWER_SECONDS: Final = 5

_log = logging.getLogger("forewarn.agent")


def start_listener(address: tuple[str, int], status: Status) -> "Listener":
    """Answer at *address* from now on, or raise AgentError."""
    try:
        listener = Listener(address, status)
    except OSError as error:
        host, port = address
        raise AgentError(f"listen: {host}:{port} cannot be listened on: {error}.") from error
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    return listener


class Listener(ThreadingTCPServer):
    """Shows *status* to whoever asks.

    It is no HTTPServer, because that asks for the name of its address, and waits for the answer.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], status: Status) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.status = status

    def handle_error(self, *_: object) -> None:
        """Keep it short if somebody has not waited for the answer."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            _log.debug("probe_broken error=%s", error)
        else:
            _log.exception("probe_failed")


_Answer: TypeAlias = tuple[int, str]


def _answer_health(status: Status) -> _Answer:
    if status.is_alive(time.monotonic()):
        return 200, "ok"
    return 503, "the agent has not been heard of for a minute"


def _answer_readiness(status: Status) -> _Answer:
    if status.is_ready:
        return 200, "ok"
    return 503, f"the metadata server gives no usable answer: {status.trouble}"


def _answer_draining(status: Status) -> _Answer:
    return (503, "draining") if status.is_draining else (200, "ok")


_ANSWERS: Final[Mapping[str, Callable[[Status], _Answer]]] = {
    "/healthz": _answer_health,
    "/readyz": _answer_readiness,
    "/drainz": _answer_draining,
    "/metrics": lambda status: (200, write_metrics(status)),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _ANSWER_SECONDS
    server: Listener

    def do_GET(self) -> None:
        answer = _ANSWERS.get(self.path.partition("?")[0])
        status, text = (404, "not found") if answer is None else answer(self.server.status)
        body = f"{text.rstrip()}\n".encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe a second is no news."""
