"""`python -m forewarn.front.relay SETTINGS`: the process that `forewarn relay` becomes.

It follows a server for one host, remembers what it was told, and answers virtual machines.
"""

import asyncio
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from socket import socket
from typing import Final

import forewarn.front.without_rich  # noqa: F401 - before anything else of ours

# isort: split

import structlog

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.environment import notify_socket
from forewarn.feed.feed_file import FeedFile
from forewarn.feed.follower import Follower
from forewarn.feed.frames import FeedLineError
from forewarn.feed.mirror import Mirror
from forewarn.feed.notes import Notes
from forewarn.feed.remote_verbs import RemoteVerbs
from forewarn.feed.upstream import Upstream, UpstreamRefusedError
from forewarn.front.listeners import open_listeners
from forewarn.front.record import FeedRecord
from forewarn.front.settings import RelaySettings
from forewarn.front.upstreams import open_upstream
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board, Pages
from forewarn.metadata.http import MetadataServer
from forewarn.metadata.identity import Identifier
from forewarn.ports.metrics import Tally
from forewarn.protocol.document import Document
from forewarn.protocol.errors import ForewarnError
from forewarn.systemd import SystemdNotifier
from forewarn.telemetry.logs import configure_logging
from forewarn.transport.requests import (
    ExpiredError,
    MisnamedError,
    PlainServerError,
    UntrustedError,
)

_NO_RELAY: Final = (
    "{server}: {error} A relay needs a token from forewarn token create --relay HOST."
)
_REFUSALS: Final[Mapping[int, str]] = {
    401: _NO_RELAY,
    403: _NO_RELAY,
    404: "{server} has no feed: it is not a forewarn server, or it is an older release.",
    421: "{server}: {error}",
}
_LASTING: Final[Mapping[type[Exception], str]] = {
    ExpiredError: "{server} has a certificate that has expired; renew it, then reload the server.",
    UntrustedError: "{server} has a certificate that is not trusted ({error}); set ca_file.",
    MisnamedError: "{server} has a certificate for other addresses ({error}).",
    PlainServerError: "{server} does not speak TLS; use http:// if it is on this machine.",
    FeedLineError: "{server}: {error}",
}
"""What does not go away by itself, and what to do about it."""
_READY_SECONDS: Final = 0.02
_SWITCH_SECONDS: Final = 0.0003
"""How long a poll waits at most for the thread that reads the feed."""
_LAST_NOTES_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)


class RelayError(ForewarnError):
    """A relay that cannot begin, and would not be able to later."""


def main() -> None:
    """Run a relay until it is told to stop, or say why it cannot."""
    settings = RelaySettings.decode(sys.argv[1])
    configure_logging(settings.log_format, settings.log_level)
    try:
        _run(settings)
    except ForewarnError as error:
        print(f"forewarn: {error}", file=sys.stderr)  # noqa: T201 - as every command says it
        sys.exit(1)


def _run(settings: RelaySettings) -> None:
    """Serve the virtual machines of this host until stopped."""
    upstream = open_upstream(settings.server, settings.token_file, settings.ca_file)
    with ExitStack() as stack:
        record = FeedRecord(stack.enter_context(FeedFile(settings.state_dir)))
        listeners = [stack.enter_context(each) for each in open_listeners(settings)]
        with asyncio.Runner() as runner:
            runner.run(_serve(settings, upstream, record, listeners))


async def _serve(
    settings: RelaySettings,
    upstream: Upstream,
    record: FeedRecord,
    listeners: list[socket],
) -> None:
    await Relay(settings, upstream, record).serve(listeners)


class Relay:
    """Shows what is in its *record*, then what *upstream* says, and answers virtual machines.

    It is made on the event loop that it runs on.
    """

    def __init__(self, settings: RelaySettings, upstream: Upstream, record: FeedRecord) -> None:
        self._settings = settings
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._failure: ForewarnError | None = None
        """Why it has stopped by itself, if there is a sentence for it."""
        self._board = board = Board()
        board.is_whole = False
        self._mirror: Mirror[Pages] = Mirror(board, self._loop)
        tally = Tally()
        self._notes = Notes(upstream, tally, time.monotonic)
        self._follower = Follower(
            upstream,
            self._mirror,
            chance=random.random,
            keep=lambda text, line: record.keep(self._mirror, text, line),
            troubled=self._give_up,
        )
        self._verbs = RemoteVerbs(
            upstream,
            is_current=lambda: self._follower.is_current,
            await_shown=board.await_document,
        )
        self._app = MetadataApp(
            board=board,
            identity=Identifier(board),
            verbs=self._verbs,
            polled=self._notes.note,
            faults=NoFaults(),
            tally=tally,
        )

    async def serve(self, listeners: list[socket]) -> None:
        """Answer on *listeners* until told to stop."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        await asyncio.to_thread(self._recall)
        server = MetadataServer(self._app, listeners)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell_ready(server))
            with self._following():
                _log.info(
                    "relaying", metadata=self._settings.metadata, server=self._settings.server
                )
                await self._answer(server)
            telling.cancel()
        _log.info("stopped")
        if self._failure is not None:
            raise self._failure

    async def _answer(self, server: MetadataServer) -> None:
        if self._stopping.is_set():
            return
        # What is there now stays. To look through it for garbage would keep everybody waiting.
        gc.freeze()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.run_until_stopped())
            await self._stopping.wait()
            server.stop()

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Follow the server while the block runs."""
        self._start("feed", self._follower.run)
        noting = self._start("notes", self._notes.run)
        try:
            yield
        finally:
            self._notes.stop()
            noting.join(_LAST_NOTES_SECONDS)
            self._follower.stop()
            self._verbs.close()

    def _start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def run_or_end() -> None:
            try:
                run()
            except ForewarnError as error:
                self._failure = error
                self._loop.call_soon_threadsafe(self._stopping.set)
            except Exception:  # noqa: BLE001 - the top of a thread
                _log.exception("loop_failed", loop=name)
                # Whoever has started this process starts it again.
                self._loop.call_soon_threadsafe(self._stopping.set)

        thread = threading.Thread(target=run_or_end, name=name, daemon=True)
        thread.start()
        return thread

    def _recall(self) -> None:
        """Show what was told before this process began."""
        for line in self._record.lines:
            self._mirror.take(line)

    async def _tell_ready(self, server: MetadataServer) -> None:
        """Tell systemd when guests are answered: from the record, or once the server has spoken."""
        while True:
            await asyncio.sleep(_READY_SECONDS)
            if self._board.is_whole and server.started:
                break
        SystemdNotifier(notify_socket(), None).tell("READY=1")
        hello = self._mirror.hello
        host = None if hello is None else hello.host
        _log.info("serving_guests", host=host)
        if not self._board.parts[0]:
            _log.warning("no_virtual_machines", host=host)

    def _give_up(self, error: Exception) -> None:
        """End with a sentence if there is nothing to serve, and trying again does not help."""
        if self._board.is_whole:
            return
        problem = _explain(error, self._settings.server)
        if problem:
            raise RelayError(problem)


class NoFaults:
    """One of the `Faults`: a relay has none."""

    def __contains__(self, vm: object) -> bool:
        return False

    def take(self, _vm: VmName, _kind: FaultKind) -> Fault | None:
        """Return nothing."""

    def show(self, _vm: VmName, document: Document) -> Document:
        """Return what everybody sees."""
        return document


def _explain(error: Exception, server: str) -> str:
    """Return what to do about *error*, if it does not go away by itself."""
    if isinstance(error, UpstreamRefusedError):
        sentence = _REFUSALS.get(error.status, "")
    else:
        sentence = _LASTING.get(type(error), "")
    return sentence.format(server=server, error=error)


if __name__ == "__main__":
    main()
