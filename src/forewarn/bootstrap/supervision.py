"""The threads of a server, and what happens when one of them dies."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

log = structlog.get_logger()

_LONGEST_PAUSE: Final = 60.0


class Loop(Protocol):
    """A part with a thread of its own."""

    def run(self) -> None:
        """Go on until stopped, or until there is nothing left to do."""

    def stop(self) -> None:
        """Have `run` return soon; called on any thread."""


class Supervisor:
    """Runs loops in threads, and starts them again when they die.

    What a loop expects it deals with itself. Whatever else it dies of is a mistake of ours, which
    must not end its work for good, nor pass unnoticed.
    """

    def __init__(self, *, first_pause: float = 1.0) -> None:
        self._first_pause = first_pause
        self._failing: set[str] = set()
        self.failures: Final = Counter[str]()
        """How often each loop has died."""

    @property
    def failing(self) -> tuple[str, ...]:
        """The loops that have died and wait to be started again."""
        return tuple(sorted(self._failing))

    def start(
        self,
        name: str,
        loop: Loop,
        *,
        ended: Callable[[], None] = lambda: None,
        patience: float | None = None,
    ) -> "SupervisedThread":
        """Run *loop* in a thread of that *name*; when it has returned, call *ended* there.

        At the end it is waited for, but not longer than for *patience* seconds.
        """
        self.failures[name] += 0  # a figure from the start, so that its first increase is seen
        stopping = threading.Event()

        def run() -> None:
            self._keep_running(name, loop, stopping)
            ended()

        # Daemons: who waits for a slow receiver must not keep the server from ending.
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return SupervisedThread(thread, loop, stopping, patience)

    def _keep_running(self, name: str, loop: Loop, stopping: threading.Event) -> None:
        pause = self._first_pause
        while not stopping.is_set():
            since = time.monotonic()
            try:
                loop.run()
            except Exception:
                if time.monotonic() - since > _LONGEST_PAUSE:
                    pause = self._first_pause
                log.exception("loop_failed", loop=name, again_after=pause)
            else:
                return
            self.failures[name] += 1
            self._failing.add(name)
            stopping.wait(pause)
            self._failing.discard(name)
            pause = min(pause * 2, _LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class SupervisedThread:
    """A loop that runs, until it is told to stop."""

    thread: threading.Thread
    loop: Loop
    stopping: threading.Event
    patience: float | None

    def stop(self) -> None:
        """Let the loop end after what it is at, and do not start it again."""
        self.stopping.set()
        self.loop.stop()

    def join(self) -> None:
        """Wait until the loop has ended, or leave behind one that takes too long."""
        self.thread.join(self.patience)
