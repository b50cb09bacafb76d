"""The two times. They are never mixed: ARCHITECTURE.md#two-times."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

VIRTUAL_NOW: Final = "virtual_now"
"""The setting of the store that keeps virtual time."""


class Clock(Protocol):
    """Maintenance time: notice, NotBefore, windows, durations of simulated impact."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump:
    """Real time went forward by *seconds* at once, or back if they are negative; *at* is after."""

    at: datetime
    seconds: float


class WallClock(Protocol):
    """Real time: leases, time-outs, back-off, the Date header, audit rows."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
