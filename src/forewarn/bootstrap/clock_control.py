"""Maintenance time as an operator sees and moves it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from forewarn.bootstrap.leader import Candidate
from forewarn.clocks import VirtualClock
from forewarn.desk.services import ClockControl, ClockError
from forewarn.ports.clock import Clock
from forewarn.ports.store import Store


def clock_control(clock: Clock, store: Store, candidate: Candidate) -> ClockControl:
    """Return what fits *clock*."""
    if isinstance(clock, VirtualClock):
        return _VirtualClockControl(clock, store, candidate)
    return _RealClockControl(clock)


@dataclass(frozen=True, slots=True)
class _RealClockControl:
    clock: Clock
    kind: str = "real"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:  # noqa: ARG002 - nothing to advance
        raise ClockError


@dataclass(frozen=True, slots=True)
class _VirtualClockControl:
    clock: VirtualClock
    store: Store
    candidate: Candidate
    kind: str = "virtual"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:
        return self.candidate.scheduler.advance(duration, move_to=self._move_to)

    def _move_to(self, moment: datetime) -> None:
        # Written first: after a restart time goes on from here, and never back.
        self.store.write(lambda tx: tx.put_setting("virtual_now", moment.isoformat()))
        self.clock.move_to(moment)
