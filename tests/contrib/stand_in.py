"""A real HTTP server in the place of a product's API, which can be told to misbehave."""

import json
import re
import ssl
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.e2e.test_tls import Pair

HANG_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: *fields* are those of its form, or the members of its JSON."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    fields: Mapping[str, Any]

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    content: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StandIn:
    """Answers with *answer*, unless a fault says otherwise, and remembers what it was asked."""

    answer: Callable[[Asked], Reply]
    prefix: str = ""
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    _faults: list[tuple[re.Pattern[str], Reply | None, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    def fail(self, pattern: str, reply: Reply | None, times: int = 1_000_000) -> None:
        """Give *reply* to requests that match, so often; None is no answer at all."""
        self._faults.append((re.compile(pattern), reply, times))

    def changes(self) -> list[str]:
        """Return what was ordered, in short."""
        return [
            each.line.removeprefix("POST ")
            for each in self.asked
            if each.method != "GET" and "/auth/" not in each.path
        ]

    def react(self, asked: Asked) -> Reply | None:
        with self._lock:
            self.asked.append(asked)
            for index, (pattern, reply, times) in enumerate(self._faults):
                if times and pattern.search(asked.line):
                    self._faults[index] = (pattern, reply, times - 1)
                    return reply
            return self.answer(asked)

    def hang(self) -> None:
        self._ending.wait(HANG_SECONDS)

    @contextmanager
    def listening(self, pair: Pair | None = None) -> Generator[None]:
        server = _Server(self)
        if pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if pair else "http"
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            server.shutdown()
            server.server_close()
            thread.join(60)


class _Server(ThreadingHTTPServer):
    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stand_in = stand_in


class _Handler(BaseHTTPRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):  # a client that was killed, or does not trust us
            super().handle()

    def react(self) -> None:
        assert isinstance(self.server, _Server)
        stand_in = self.server.stand_in
        reply = stand_in.react(self.read(stand_in.prefix))
        if reply is None:
            stand_in.hang()
        else:
            self.send(reply)

    do_GET = do_POST = do_PUT = do_DELETE = react  # noqa: N815 - names of the library

    def read(self, prefix: str) -> Asked:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        parts = urlsplit(self.path)
        is_json = self.headers.get("Content-Type") == "application/json"
        return Asked(
            method=self.command,
            path=unquote(parts.path).removeprefix(prefix),
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            fields=json.loads(body) if is_json else dict(parse_qsl(body)),
        )

    def send(self, reply: Reply) -> None:
        is_text = isinstance(reply.content, str)
        text = str(reply.content) if is_text else json.dumps(reply.content)
        content = b"" if reply.content is None else text.encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/html" if is_text else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
