"""What the feed says, shown on a board: by whoever reads its lines, on the thread of the readers.

Rules of this file: pages are printed on the thread that reads lines. The event loop, which answers
polls meanwhile, only enters them, a line at a time and with a turn for others in between. Documents
only ever become newer, whatever the feed says.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, assert_never

import structlog

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import DeliveryScope, VirtualMachine
from forewarn.feed.frames import (
    MOST_IN_A_LINE,
    FeedLine,
    Gone,
    Hello,
    Mark,
    Put,
    batches,
    encode_line,
    put_lines,
)
from forewarn.protocol.document import Document

P = TypeVar("P")

_FROZEN_AT_ONCE: Final = 2_000

_log = structlog.get_logger(__name__)


class BoardInParts(Protocol[P]):
    """A board that is fed in small parts; `print` is called on any thread."""

    is_whole: bool

    def print(self, document: Document) -> P: ...

    def put(
        self,
        printed: Mapping[ScopeId, tuple[Document, P]],
        scopes: Mapping[ScopeId, DeliveryScope],
        virtual_machines: Iterable[VirtualMachine],
    ) -> None: ...

    def remove(
        self, virtual_machines: Iterable[VmName], scope_ids: Iterable[ScopeId] = ()
    ) -> None: ...

    @property
    def parts(self) -> tuple[tuple[VirtualMachine, ...], Mapping[ScopeId, DeliveryScope]]: ...

    def document_in(self, scope_id: ScopeId) -> Document: ...


class Mirror(Generic[P]):
    """Shows on *board* what it is told; one thread tells it, while *loop* runs on another."""

    def __init__(self, board: BoardInParts[P], loop: asyncio.AbstractEventLoop) -> None:
        self._board = board
        self._loop = loop
        self._told: tuple[set[VmName], set[ScopeId]] | None = None
        """What was told since the feed began with everything, until that is over."""
        self._is_beginning = False
        self._is_behind = False
        self._uncollected = 0
        self.hello: Hello | None = None
        """How the feed began."""
        self.sequence = 0

    @property
    def place(self) -> str:
        """Up to where the feed is shown; empty if it has to be told as a whole."""
        if self.hello is None or self._is_beginning:
            return ""
        return f"{self.hello.feed}:{self.sequence}"

    def lines(self) -> Iterator[bytes]:
        """Yield lines that say all that is shown, without their ends."""
        if self.hello is None:
            return
        vms, scopes = self._board.parts
        yield _write(replace(self.hello, resumed=False))
        yield from map(_write, put_lines(scopes.items(), self._board.document_in, vms))
        if not self._is_beginning:
            yield _write(Mark(sequence=self.sequence))

    def take(self, line: FeedLine) -> None:
        """Show what *line* says; when this returns, polls see it."""
        match line:
            case Hello():
                self._begin(line)
            case Put():
                self._put(line)
            case Gone():
                self._remove(line.virtual_machines, line.scope_ids)
            case Mark():
                self._finish(line.sequence)
            case _ as unknown:
                assert_never(unknown)

    def _begin(self, hello: Hello) -> None:
        self.hello = hello
        self._is_behind = False
        self._is_beginning = not hello.resumed
        has_parts = any(self._board.parts)  # or there is nothing that could be gone
        self._told = (set(), set()) if self._is_beginning and has_parts else None

    def _put(self, line: Put) -> None:
        if self._told is not None:
            names, scope_ids = self._told
            names.update(vm.name for vm in line.virtual_machines)
            scope_ids.update(line.scopes)
        self._say_if_behind(line)
        printed = {
            scope_id: (document, self._board.print(document))
            for scope_id, document in line.documents.items()
        }
        self._enter(partial(self._board.put, printed, line.scopes, line.virtual_machines))
        self._keep_from_collector(len(line.documents) + len(line.virtual_machines))

    def _say_if_behind(self, line: Put) -> None:
        """Say once that the server is behind what is shown: a replica for a moment, or for good."""
        for scope_id, document in line.documents.items():
            shown = self._board.document_in(scope_id).document_incarnation
            if document.document_incarnation < shown and not self._is_behind:
                self._is_behind = True
                told = document.document_incarnation
                _log.warning("feed_behind", scope_id=scope_id, shown=shown, told=told)

    def _keep_from_collector(self, number: int) -> None:
        # What is shown is never garbage. To look through that of 200,000 machines took the garbage
        # collector half a second, with all polls waiting.
        self._uncollected += number
        if self._uncollected >= _FROZEN_AT_ONCE:
            self._uncollected = 0
            gc.freeze()

    def _remove(self, names: Iterable[VmName], scope_ids: Iterable[ScopeId]) -> None:
        for some in batches(names, MOST_IN_A_LINE):
            self._enter(partial(self._board.remove, some))
        for ids in batches(scope_ids, MOST_IN_A_LINE):
            self._enter(partial(self._board.remove, (), ids))

    def _finish(self, sequence: int) -> None:
        if self._told is not None:
            vms, scope_ids = self._board.parts
            told_names, told_scopes = self._told
            self._remove(
                (vm.name for vm in vms if vm.name not in told_names),
                (scope_id for scope_id in scope_ids if scope_id not in told_scopes),
            )
        self._told = None
        self._is_beginning = False
        self.sequence = sequence
        self._board.is_whole = True

    def _enter(self, change: Callable[[], None]) -> None:
        """Have *change* done on the event loop, and wait, so that others have their turn there."""
        done: Future[None] = Future()

        def do() -> None:
            try:
                change()
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(do)
        done.result()


def _write(line: FeedLine) -> bytes:
    return encode_line(line).rstrip(b"\n")
