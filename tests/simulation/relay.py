"""A simulated relay: it follows the feed of a server, and shows it to the machines of a host.

A connection breaks at any line; then it follows on, at whichever server answers.
"""

import asyncio
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from tests.simulation.world import Process, World

from forewarn.domain.names import HostName
from forewarn.feed.frames import decode_line
from forewarn.feed.hub import Hub
from forewarn.feed.mirror import Mirror
from forewarn.feed.subscriptions import Following
from forewarn.metadata.board import Board, Pages

T = TypeVar("T")


class _TimelessSelector(selectors.DefaultSelector):
    """Never waits: if nothing is ready, as much time as it should wait has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed += timeout or 0.0
        return super().select(0)


def _make_loop() -> asyncio.AbstractEventLoop:
    selector = _TimelessSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.passed  # type: ignore[method-assign]
    return loop


_idle: Final[list[asyncio.AbstractEventLoop]] = []


class StepExecutor(Executor):
    """Does work at once; or a moment later, in a step of its own, if it has an *owner*."""

    def __init__(self, world: World, owner: Process | None = None) -> None:
        self._world = world
        self._owner = owner

    def submit(self, work: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(work(*args, **options))
            except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                future.set_exception(error)

        if self._owner is None:
            do()
        else:
            self._world.later(self._world.timing.between(100, 100_000), do, self._owner)
        return future


def make_hub(world: World, board: Board, process: Process) -> Hub:
    """Return the hub of a server, whose followers are never kept waiting."""

    def make_pool(_: int, name: str) -> Executor:
        return StepExecutor(world, process if name == "feed" else None)

    return Hub(board, heartbeat=1.0, make_pool=make_pool)


class _NoLoop:
    """The loop of a board whose readers are on the same thread."""

    def call_soon_threadsafe(self, work: Callable[[], object]) -> None:
        work()


class Relay:
    """Shows the machines of *host* what the feed says."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.name = f"relay-{host}"
        self.host = HostName(host)
        self.starts = 0
        self.server: Process | None = None
        self._stream: AsyncGenerator[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.break_rate = 0.0
        self.start()

    def start(self) -> None:
        """Begin with nothing."""
        self.leave()
        self.starts += 1
        self.board = Board()
        self.board.is_whole = False
        self._mirror: Mirror[Pages] = Mirror(self.board, _NoLoop())  # type: ignore[arg-type]

    @property
    def is_connected(self) -> bool:
        return self.server is not None and self.server.is_alive and not self.server.is_paused

    def follow(self, hub: Hub, server: Process) -> None:
        """Follow the feed of *server* from where it was left."""
        self.leave()
        feed, _, sequence = self._mirror.place.partition(":")
        following = Following(host=self.host, feed=feed, sequence=int(sequence or 0))
        self._loop = _idle.pop() if _idle else _make_loop()
        self._stream = hub.stream(following)
        self.server = server

    def read(self) -> None:
        """Read what there is, up to where nothing is new or the connection breaks."""
        for _ in range(20):
            if self._stream is None or self._loop is None or not self.is_connected:
                return
            try:
                part = drive(anext(self._stream), self._loop)
            except StopAsyncIteration:
                self.leave()
                return
            for text in part.splitlines():
                if self.world.faults.happens(self.break_rate):
                    self.world.injected["feed broken"] += 1
                    self.world.note(self.name, "loses its connection")
                    self.leave()
                    return
                line = decode_line(text)
                if line is not None:
                    self._mirror.take(line)
            if part.count(b"\n") == 1 and b"mark" in part:
                return

    def leave(self) -> None:
        """Close the connection."""
        if self._stream is not None and self._loop is not None:
            drive(self._stream.aclose(), self._loop)
            _idle.append(self._loop)
        self._stream = self._loop = self.server = None


def drive(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine to its end, also inside a step in which another one runs."""
    outer = asyncio._get_running_loop()  # noqa: SLF001
    asyncio._set_running_loop(None)  # noqa: SLF001
    used = loop or (_idle.pop() if _idle else _make_loop())
    try:
        return used.run_until_complete(work)
    finally:
        if loop is None:
            _idle.append(used)
        asyncio._set_running_loop(outer)  # noqa: SLF001
