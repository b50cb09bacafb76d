"""The requests that the server makes itself, to gates, executors and targets of notifications.

All of them wait on one loop, which a thread runs from the first one on. Only on a loop can a
deadline be one for all of a request: those of a blocking client begin anew with every byte.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from forewarn.protocol.errors import ForewarnError

_LONGEST_RETRY_AFTER: Final = 86_400
_MOST_LOOKUPS: Final = 64

P = ParamSpec("P")
T = TypeVar("T")
LookUp: TypeAlias = Callable[..., list[Any]]
"""What finds the addresses of a name, as `socket.getaddrinfo` does."""


class NoAnswerError(ForewarnError):
    """There was no answer, or none in time. It names neither addresses nor secrets of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    """What is sent, and how many seconds all of the answer may take. A *secret* signs it."""

    method: str
    url: str = field(repr=False)
    timeout: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. A body that broke off or took too long has a *trouble*."""

    status: int
    said: str
    headers: Mapping[str, str]
    content: bytes
    trouble: str = ""

    @property
    def body(self) -> str:
        """The content as UTF-8, whatever the header says; what is not has replacements."""
        return self.content.decode("utf-8-sig", errors="replace")

    @property
    def is_success(self) -> bool:
        """Whether the status says that all is well."""
        return 200 <= self.status < 300

    def whole(self) -> "Reply":
        """Return it, or refuse it if its body did not come in time."""
        if self.trouble:
            raise NoAnswerError(self.trouble)
        return self

    def retry_after(self, now: datetime) -> timedelta:
        """Return how long to wait, as it says: in seconds or by a date, a day at most."""
        text = self.headers.get("Retry-After", "")
        try:
            seconds = int(text) if text.isdecimal() else _seconds_until(text, now)
        except (ValueError, OverflowError):  # the latter for years and time zones of many digits
            return timedelta(0)
        return timedelta(seconds=min(max(seconds, 0), _LONGEST_RETRY_AFTER))


class _Transport(Protocol):
    """What sends requests on the loop."""

    async def send(self, request: OutboundRequest, *, now: datetime) -> Reply:
        """Return the answer to *request*, or refuse with a `NoAnswerError`."""

    async def close(self) -> None:
        """Drop the connections."""


class Outbound:
    """Sends requests, from any thread; closing it ends whatever still waits."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._transport: _Transport | None = None
        self._is_closed = False

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have *work* done on the loop, and return its future."""
        with self._starting:
            if self._is_closed:
                work.close()
                raise NoAnswerError("The server is stopping.")
            if self._loop is None:
                self._loop = _Loop(self._look_up)
                # A daemon: who waits for a slow answer must not keep the process from ending.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="outbound", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, request: OutboundRequest, *, now: datetime) -> Reply:
        """Send *request* and wait for the answer, in another thread than that of the loop."""
        return self.finish(self.send(request, now=now))

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Have *work* done on the loop and wait for it, in another thread than that of the loop."""
        try:
            return self.begin(work).result()
        except CancelledError:
            raise NoAnswerError("The server is stopping.") from None

    async def send(self, request: OutboundRequest, *, now: datetime) -> Reply:
        """Send *request*, on the loop, and return the answer as far as it came in time."""
        if self._transport is None:
            # Slow to load, and most servers in tests never send anything.
            from forewarn.outbound.transport import HttpTransport  # noqa: PLC0415

            self._transport = HttpTransport()
        return await self._transport.send(request, now=now)

    def close(self) -> None:
        """Cancel what is under way, and drop the connections."""
        with self._starting:
            self._is_closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def _end(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._transport is not None:
            await self._transport.close()


def _seconds_until(text: str, now: datetime) -> float:
    moment = parsedate_to_datetime(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()


class _Loop(asyncio.SelectorEventLoop):
    """A loop that looks up so many names at once at most; the others wait for their turn."""

    def __init__(self, look_up: LookUp) -> None:
        super().__init__()
        self._look_up = look_up
        self._daemons = Daemons()
        self._turns = asyncio.Semaphore(_MOST_LOOKUPS)
        self.set_default_executor(self._daemons)

    async def getaddrinfo(self, *name: Any, **kind: Any) -> list[Any]:
        """Return the addresses of *name*, of that *kind*."""
        await self._turns.acquire()
        lookup = self._daemons.submit(self._look_up, *name, **kind)
        # Not when nobody waits any more: the thread is there until it has an answer.
        lookup.add_done_callback(self._end_turn)
        return await asyncio.wrap_future(lookup, loop=self)

    def _end_turn(self, _: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.call_soon_threadsafe(self._turns.release)


class Daemons(ThreadPoolExecutor):
    """Where names are looked up and commands run: on daemons, for which nobody waits.

    A loop closes only when the threads of its usual executor have ended, and a lookup can take
    much longer than the request that needs it.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for
                done.set_exception(error)

        # From here on it cannot be canceled, only left alone.
        done.set_running_or_notify_cancel()
        try:
            threading.Thread(target=run, name="outbound-work", daemon=True).start()
        except RuntimeError as error:  # there can be no more threads
            done.set_exception(error)
        return done
