"""What goes wrong with connections, said once a minute however often it happens."""

import asyncio
from collections import Counter
from typing import Final

import structlog

SECONDS: Final = 60.0
MOST_ORIGINS: Final = 100
"""How many origins are told apart in a minute; the rest counts as one."""
OTHERS: Final = "others"

_log = structlog.get_logger(__name__)


class Troubles:
    """Counts by origin. The first of an origin is logged at once, the number after a minute."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._counts = Counter[tuple[str, str]]()

    def note(self, origin: str, what: str) -> None:
        """Count that *what* happened to *origin*; called on the event loop."""
        if not self._counts:
            asyncio.get_running_loop().call_later(self._seconds, self._say)
        if (origin, what) not in self._counts and len(self._counts) >= MOST_ORIGINS:
            origin = OTHERS
        if (origin, what) not in self._counts:
            _log.warning("connection_refused", origin=origin, problem=what)
        self._counts[origin, what] += 1

    def _say(self) -> None:
        counts, self._counts = self._counts, Counter()
        for (origin, what), number in counts.items():
            if number > 1:
                _log.warning("connections_refused", origin=origin, problem=what, number=number)
