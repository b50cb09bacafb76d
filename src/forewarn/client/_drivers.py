"""Carry out conversations, blocking; `_async_driver.py` has the driver that awaits."""

import contextlib
import threading
from queue import Empty, SimpleQueue
from typing import TypeVar

from forewarn.client._errors import ClosedError
from forewarn.client._messages import Conversation, NoAnswer, Pause, Request, Response
from forewarn.client._transport import Transport, renew_after_fork

_T = TypeVar("_T")


class Driver:
    """Carries out conversations, one at a time, on one connection."""

    def __init__(self) -> None:
        self._transport = Transport()
        self._turn = threading.Lock()
        self._is_closed = False
        # Not an Event: a signal handler that sets one deadlocks if it interrupts who waits for it.
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        renew_after_fork(self)

    def run(self, conversation: Conversation[_T]) -> _T:
        """Return what comes of *conversation*."""
        with self._turn, contextlib.closing(conversation):
            answer: Response | NoAnswer | None = None
            while True:
                try:
                    step = conversation.send(answer)
                except StopIteration as end:
                    result: _T = end.value
                    return result
                answer = self._perform(step)

    def close(self) -> None:
        """Let nothing go on or begin; for any thread, and for signal handlers."""
        self._is_closed = True
        self._wake_ups.put(None)
        self._transport.close()

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._transport.abandon()
        self._transport, self._turn = Transport(), threading.Lock()
        self._wake_ups = SimpleQueue()
        if self._is_closed:
            self.close()

    def _perform(self, step: Request | Pause) -> Response | NoAnswer | None:
        answer = None
        if isinstance(step, Pause):
            with contextlib.suppress(Empty):
                self._wake_ups.get(timeout=step.seconds)
        else:
            answer = self._transport.send(step)
        if self._is_closed:
            raise ClosedError
        return answer
