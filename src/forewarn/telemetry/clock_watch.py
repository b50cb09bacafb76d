"""Whether the clock of the machine jumps: set by hand or by NTP, or the machine was suspended.

Time of day is compared with monotonic time, which nobody sets. Both go on alike while a thread is
late, so a busy machine is no jump; and a clock that is slewed drifts too slowly to be one.
"""

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog

from forewarn.ports.clock import ClockJump, WallClock
from forewarn.rounds import Rounds

log = structlog.get_logger()

SMALLEST_JUMP: Final = timedelta(seconds=3)
KEPT: Final = 10
"""So many of the last jumps are remembered."""

_EVERY: Final = 1.0
_TOGETHER: Final = 0.1
"""Two clocks that were read within so many seconds were read together."""


class ClockWatch:
    """Notices jumps of *wall*. One thread looks; others only read what was noticed."""

    def __init__(self, wall: WallClock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lead = self._read_lead()
        self._last: deque[ClockJump] = deque(maxlen=KEPT)
        self.rounds: Final = Rounds("clock_watch", self.look, every=_EVERY)
        self.number = 0
        """How many jumps there were."""

    @property
    def jumps(self) -> tuple[ClockJump, ...]:
        """The last jumps, oldest first."""
        return tuple(self._last)

    def look(self) -> None:
        """Log and count a jump, if there was one since the last look."""
        known, self._lead = self._lead, self._read_lead()
        seconds = self._lead - known
        if abs(seconds) < SMALLEST_JUMP.total_seconds():
            return
        jump = ClockJump(at=self._wall.now(), seconds=round(seconds, 1))
        self._last.append(jump)
        self.number += 1
        log.warning("clock_jumped", seconds=jump.seconds, at=jump.at.isoformat())

    def _read_lead(self) -> float:
        """Return by how many seconds the time of day is ahead of monotonic time."""
        while True:
            before = self._monotonic()
            now = self._wall.now().timestamp()
            if self._monotonic() - before < _TOGETHER:
                return now - before
