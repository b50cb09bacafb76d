"""The clocks: the real one, and one that stands still until it is told to go on."""

from datetime import UTC, datetime


class SystemClock:
    """The time of day, for maintenance time and real time alike."""

    def now(self) -> datetime:
        """Return the present moment."""
        return datetime.now(UTC)


class VirtualClock:
    """Maintenance time under control: it moves only when somebody moves it, and never back."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        """Return the moment it was last moved to."""
        return self._now

    def move_to(self, moment: datetime) -> None:
        """Go on to *moment*."""
        self._now = max(self._now, moment)
