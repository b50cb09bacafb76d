"""A front that follows a server over HTTP: its parts, and how long they live."""

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socket import socket
from typing import Final

import structlog

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.feed.follower import Follower, LineKeeper
from forewarn.feed.mirror import Mirror
from forewarn.feed.notes import Notes
from forewarn.feed.remote_verbs import RemoteVerbs
from forewarn.feed.upstream import Upstream
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board, Pages
from forewarn.metadata.http import MetadataServer
from forewarn.metadata.identity import Identifier
from forewarn.metadata.waiting import first_of
from forewarn.ports.metrics import Tally
from forewarn.protocol.document import Document
from forewarn.protocol.errors import ForewarnError

_SWITCH_SECONDS: Final = 0.0003
"""How long a poll waits at most for the thread that reads the feed."""
_LAST_NOTES_SECONDS: Final = 2.0

log = structlog.get_logger()


class Front:
    """Shows on *board* what *upstream* says, and answers virtual machines from there.

    It is made on the event loop that it runs on. It tells the server at once what it shows if it
    *is_prompt*; *keep* gets each line of the feed before it is shown. *keep* and *troubled* may end
    it with a ForewarnError.
    """

    def __init__(
        self,
        upstream: Upstream,
        board: Board,
        identity: Identifier,
        *,
        is_prompt: bool,
        keep: LineKeeper = lambda _text, _line: None,
        troubled: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_whole = asyncio.Event()
        tally = Tally()
        self._notes = Notes(upstream, tally, time.monotonic, is_prompt=is_prompt)
        self.mirror: Final = Mirror(board, self._loop)
        self.failure: ForewarnError | None = None
        """Why it has stopped by itself, if there is a sentence for it."""
        self.follower: Final[Follower[Pages]] = Follower(
            upstream,
            self.mirror,
            chance=random.random,
            keep=keep,
            marked=self._note_mark,
            troubled=troubled,
        )
        self._verbs = RemoteVerbs(
            upstream,
            is_current=lambda: self.follower.is_current,
            await_shown=board.await_document,
        )
        self._app = MetadataApp(
            board=board,
            identity=identity,
            verbs=self._verbs,
            polled=self._notes.note,
            faults=NoFaults(),
            tally=tally,
        )
        self._server: MetadataServer | None = None

    @property
    def is_serving(self) -> bool:
        """Whether virtual machines are answered."""
        return self._server is not None and self._server.started

    def stop(self) -> None:
        """Have `serve` finish what is under way, and return."""
        self._stopping.set()

    async def until_whole(self) -> None:
        """Return when the server has told everything, or when stopped."""
        await first_of(self._is_whole, self._stopping, seconds=None)

    async def serve(self, listeners: Iterable[socket]) -> None:
        """Answer on *listeners* until stopped."""
        if self._stopping.is_set():
            return
        self._server = server = MetadataServer(self._app, listeners)
        # What is there now stays. To look through it for garbage would keep everybody waiting.
        gc.freeze()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.run_until_stopped())
            await self._stopping.wait()
            server.stop()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the server while the block runs."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._start("feed", self.follower.run)
        noting = self._start("notes", self._notes.run)
        try:
            yield
        finally:
            self._notes.stop()
            noting.join(_LAST_NOTES_SECONDS)
            self.follower.stop()
            self._verbs.close()

    def _start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def run_or_end() -> None:
            try:
                run()
            except ForewarnError as error:
                self.failure = error
                self._loop.call_soon_threadsafe(self.stop)
            except Exception:
                log.exception("loop_failed", loop=name)
                # Whoever has started this process starts it again.
                self._loop.call_soon_threadsafe(self.stop)

        thread = threading.Thread(target=run_or_end, name=name, daemon=True)
        thread.start()
        return thread

    def _note_mark(self, sequence: int, is_first: bool) -> None:  # noqa: FBT001 - a MarkListener
        self._notes.note_shown(sequence, is_first)
        if is_first:
            self._loop.call_soon_threadsafe(self._is_whole.set)


class NoFaults:
    """One of the `Faults`: there are none where several processes answer."""

    def __contains__(self, vm: object) -> bool:
        return False

    def take(self, _vm: VmName, _kind: FaultKind) -> Fault | None:
        """Return nothing."""

    def show(self, _vm: VmName, document: Document) -> Document:
        """Return what everybody sees."""
        return document
