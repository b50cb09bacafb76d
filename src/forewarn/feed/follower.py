"""A relay's thread that follows the feed of a server, for as long as it runs.

It connects again after every trouble, later and later, and goes on where it was. What it was told
stays on the board meanwhile: polls are answered without the server.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, TypeAlias, TypeVar

import structlog

from forewarn.feed.frames import FeedLine, FeedLineError, Hello, Mark, decode_line
from forewarn.feed.mirror import Mirror
from forewarn.feed.upstream import Upstream, UpstreamRefusedError
from forewarn.ports.store import StoreUnavailableError
from forewarn.transport.connection import StreamedReply
from forewarn.transport.requests import TransportError

P = TypeVar("P")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 15.0
_MISSED_HEARTBEATS: Final = 3
_TROUBLES: Final = (TransportError, FeedLineError, UpstreamRefusedError, StoreUnavailableError)

_log = structlog.get_logger(__name__)

LineKeeper: TypeAlias = Callable[[bytes, FeedLine], None]
"""Somebody who keeps each line, without its end, before it is shown."""


def back_off(failures: int, chance: float) -> float:
    """Return how long to wait after so many *failures*; *chance* spreads those who wait."""
    longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
    return longest * (0.5 + chance / 2)


class Follower(Generic[P]):
    """Shows on *mirror* what the server *upstream* says.

    *troubled* is told why it cannot be followed; what it raises ends the following.
    """

    def __init__(
        self,
        upstream: Upstream,
        mirror: Mirror[P],
        *,
        chance: Callable[[], float],
        keep: LineKeeper = lambda _text, _line: None,
        troubled: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._upstream = upstream
        self._mirror = mirror
        self._chance = chance
        self._keep = keep
        self._troubled = troubled
        self._stopping = threading.Event()
        self._reply: StreamedReply | None = None
        self._trouble = ""
        self._failures = 0
        self.is_current = False
        """Whether the server can be heard, and all that it has said so far is shown."""

    def run(self) -> None:
        """Follow until stopped."""
        while not self._stopping.is_set():
            began = monotonic()
            trouble = self._follow()
            if self._stopping.is_set():
                return
            self._failures = 1 if self.is_current else self._failures + 1
            is_clean_end = self.is_current and not trouble
            self.is_current = False
            if not is_clean_end:
                self._tell(trouble or "The server ended the feed.")
            if not is_clean_end or monotonic() - began < LONGEST_PAUSE:
                self._stopping.wait(back_off(self._failures, self._chance()))

    def stop(self) -> None:
        """Follow no more; called on any thread."""
        self._stopping.set()
        reply = self._reply
        if reply is not None:
            reply.hang_up()

    def _follow(self) -> str:
        """Follow until the feed ends, and return why, if it should not have."""
        try:
            with self._upstream.follow(self._mirror.place) as reply:
                self._reply = reply
                for text in reply.raw_lines():
                    if self._stopping.is_set():
                        break
                    self._take(text, reply)
        except _TROUBLES as error:
            self._troubled(error)
            return str(error) or type(error).__name__
        finally:
            self._reply = None
        return ""

    def _take(self, text: bytes, reply: StreamedReply) -> None:
        if not text.endswith(b"\n"):
            raise FeedLineError("The feed ended in the middle of a line.")
        line = decode_line(text)
        if line is None:  # a newer server says more
            return
        if isinstance(line, Hello):
            reply.wait_for(_MISSED_HEARTBEATS * line.heartbeat_seconds)
        self._keep(text.rstrip(b"\n"), line)
        self._mirror.take(line)
        if isinstance(line, Mark):
            if not self.is_current:
                self._trouble = ""
                _log.info("feed_followed", sequence=line.sequence)
            self.is_current = True

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("feed_lost", error=trouble)
        self._trouble = trouble
