"""Carry out conversations, awaiting. Only who asks for an AsyncClient imports this, and asyncio."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from forewarn.client._errors import ClosedError
from forewarn.client._messages import Conversation, NoAnswer, Pause, Request, Response
from forewarn.client._transport import Transport, renew_after_fork

_T = TypeVar("_T")


class AsyncDriver:
    """Carries out conversations as `Driver` does, each request in a thread that nobody waits for.

    A pool of threads would hold up the end of the process until the last poll is answered.
    """

    def __init__(self) -> None:
        self._transport = Transport()
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        renew_after_fork(self)

    async def run(self, conversation: Conversation[_T]) -> _T:
        """Return what comes of *conversation*."""
        async with self._turn:
            with contextlib.closing(conversation):
                return await self._carry_out(conversation)

    def close(self) -> None:
        """Let nothing go on or begin."""
        self._closing.set()
        self._transport.close()

    def renew(self) -> None:
        """Begin anew in a forked child."""
        is_closed = self._closing.is_set()
        self._transport.abandon()
        self._transport, self._turn = Transport(), asyncio.Lock()
        self._closing = asyncio.Event()
        if is_closed:
            self.close()

    async def _carry_out(self, conversation: Conversation[_T]) -> _T:
        answer: Response | NoAnswer | None = None
        while True:
            try:
                step = conversation.send(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            answer = await self._perform(step)

    async def _perform(self, step: Request | Pause) -> Response | NoAnswer | None:
        answer = None
        if self._closing.is_set():
            raise ClosedError
        if isinstance(step, Pause):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(step.seconds):
                    await self._closing.wait()
        else:
            answer = await self._send(step)
        if self._closing.is_set():
            raise ClosedError
        return answer

    async def _send(self, request: Request) -> Response | NoAnswer:
        try:
            return await _call_in_thread(partial(self._transport.send, request))
        except asyncio.CancelledError:
            # The thread would wait for an answer that nobody wants any more.
            self._transport.close()
            self._transport = Transport()
            raise


async def _call_in_thread(call: Callable[[], _T]) -> _T:
    done: Future[_T] = Future()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it belongs to who awaits it
            done.set_exception(error)

    # From here on it cannot be canceled, only left alone.
    done.set_running_or_notify_cancel()
    threading.Thread(target=work, name="forewarn-client", daemon=True).start()
    return await asyncio.wrap_future(done)
