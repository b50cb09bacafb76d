"""A relay in this process: its board is fed over HTTP, and virtual machines poll it on a socket."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from time import monotonic
from typing import Any

from tests.feed.conftest import TIMEOUT
from tests.waiting import wait_until

from forewarn.clocks import SystemClock
from forewarn.domain.names import VmName
from forewarn.emulator.faults import MemoryFaults
from forewarn.feed.follower import Follower, LineKeeper
from forewarn.feed.mirror import Mirror
from forewarn.feed.notes import Notes
from forewarn.feed.remote_verbs import RemoteVerbs
from forewarn.feed.upstream import Upstream
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board, Pages
from forewarn.metadata.http import MetadataServer, open_listener
from forewarn.metadata.identity import Identifier
from forewarn.ports.metrics import Tally

POLL = "/metadata/scheduledevents?api-version=2020-07-01"


@contextmanager
def running_loop() -> Generator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(TIMEOUT)
        loop.close()


class Relay:
    """A relay of the server at *port*, known by *token*."""

    def __init__(
        self,
        port: int,
        token: str,
        *,
        keep: LineKeeper = lambda _text, _line: None,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.board = Board()
        self.board.is_whole = False
        self.mirror: Mirror[Pages] = Mirror(self.board, self.loop)
        upstream = Upstream(url=f"http://127.0.0.1:{port}", token=lambda: token)
        tally = Tally()
        self.notes = Notes(upstream, tally, monotonic)
        self.follower = Follower(upstream, self.mirror, chance=lambda: 0.0, keep=keep)
        self.verbs = RemoteVerbs(
            upstream,
            is_current=lambda: self.follower.is_current,
            await_shown=self.board.await_document,
        )
        faults = MemoryFaults(
            document_of=self.board.document_of, clock=SystemClock(), changed=lambda: None
        )
        app = MetadataApp(
            board=self.board,
            identity=Identifier(self.board, trust_path=True),
            verbs=self.verbs,
            polled=self.notes.note,
            faults=faults,
            tally=tally,
        )
        listener = open_listener("127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        self._server = MetadataServer(app, [listener])
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._serve, self.follower.run, self.notes.run)
        ]

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._server.run_until_stopped())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self._server.started, "the relay to start")

    def stop(self) -> None:
        serving, *others = self._threads
        self.follower.stop()
        self.notes.stop()
        for thread in others:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), "a thread of the relay does not stop"
        self.verbs.close()
        self.loop.call_soon_threadsafe(self._server.stop)
        serving.join(TIMEOUT)
        assert not serving.is_alive(), "the relay does not stop"
        self.loop.close()

    def ask(
        self, vm: str, method: str = "GET", path: str = POLL, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Return the status, headers and JSON that the virtual machine *vm* gets."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=2 * TIMEOUT)
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/vm/{vm}{path}", content, {"Metadata": "true", **headers})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, dict(answer.headers), json.loads(text) if text else None

    def incarnation(self, vm: str) -> int | None:
        found = self.board.document_of(VmName(vm))
        return None if found is None else found.document_incarnation

    def await_machine(self, vm: str, incarnation: int) -> None:
        wait_until(lambda: self.incarnation(vm) == incarnation, f"{vm} to read {incarnation}")


@contextmanager
def running_relay(port: int, token: str, **options: Any) -> Generator[Relay]:
    """A relay that runs."""
    made = Relay(port, token, **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
