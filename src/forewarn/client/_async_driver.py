"""Carry out conversations, awaiting. Only who asks for an AsyncClient imports this, and asyncio."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from forewarn.client._errors import ClosedError
from forewarn.client._messages import Conversation, Failure, Pause, Request, Response
from forewarn.client._transport import Transport

_T = TypeVar("_T")


class AsyncDriver:
    """Carries out conversations as `Driver` does, its connection in a thread of its own."""

    def __init__(self) -> None:
        self._transport = Transport()
        self._thread = ThreadPoolExecutor(1, "forewarn-client")
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()

    async def run(self, conversation: Conversation[_T]) -> _T:
        """Return what comes of *conversation*."""
        async with self._turn:
            with contextlib.closing(conversation):
                return await self._carry_out(conversation)

    def close(self) -> None:
        """Let nothing go on or begin."""
        self._closing.set()
        self._transport.close()
        self._thread.shutdown(wait=False)

    async def _carry_out(self, conversation: Conversation[_T]) -> _T:
        answer: Response | Failure | None = None
        while True:
            try:
                step = conversation.send(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            answer = await self._perform(step)

    async def _perform(self, step: Request | Pause) -> Response | Failure | None:
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

    async def _send(self, request: Request) -> Response | Failure:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._transport.send, request)
        except asyncio.CancelledError:
            # The thread would wait for an answer that nobody wants any more.
            self._transport.close()
            self._transport = Transport()
            raise
