"""The two times. They are never mixed: ARCHITECTURE.md#two-times."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Maintenance time: notice, NotBefore, windows, durations of simulated impact."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        ...


class WallClock(Protocol):
    """Real time: leases, time-outs, back-off, the Date header, audit rows."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        ...
