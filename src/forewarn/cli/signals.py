"""SIGTERM and SIGHUP, from before there is something to clean up until it is gone.

Until somebody takes them they do what Ctrl-C does, but for the exit code; after that they and
Ctrl-C do what is wished, and never interrupt the cleaning up.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    import asyncio

KILLED: Final = 128
"""What an exit code has more than the number of the signal that it is about."""


class StopSignals:
    """What happens at a signal. Made by `stop_signals`."""

    def __init__(self) -> None:
        self.interrupted_by: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._react: Callable[[int], object] = lambda _: None

    def hand_to(self, react: Callable[[int], object]) -> None:
        """Have *react* called by the event loop that runs, from now on, also at Ctrl-C."""
        import asyncio  # noqa: PLC0415 - slow to load

        self._react = react
        with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, react, signal.SIGINT)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            if self.interrupted_by is not None:  # where an exception gets lost, in a __del__
                react(self.interrupted_by)

    def take(self, number: int, frame: FrameType | None) -> None:
        """Take the signal *number*, as the interpreter brings it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the end has come already
                self._loop.call_soon_threadsafe(lambda: self._react(number))
        elif self.interrupted_by is None:
            self.interrupted_by = number
            # An event loop that is about to run has put its own there, which ends it in order.
            interrupt = signal.getsignal(signal.SIGINT)
            if not callable(interrupt):
                raise KeyboardInterrupt
            interrupt(number, frame)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold signals back while something is made and handed to whoever removes it."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Exit with 128 and the number when a signal comes before anybody has taken it."""
    signals = StopSignals()
    found = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
    # What is ignored, by nohup for one, stays ignored.
    numbers = [each for each in found if each and signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.take) for number in numbers}
    try:
        yield signals
    except KeyboardInterrupt:
        if signals.interrupted_by is None:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signals.interrupted_by is not None:
        raise typer.Exit(KILLED + signals.interrupted_by)
