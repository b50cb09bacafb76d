"""Maintenance time as an operator sees and moves it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from forewarn.bootstrap.leader import Candidate
from forewarn.clocks import VirtualClock
from forewarn.desk.services import ClockError
from forewarn.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class ReplicaClockControl:
    """Shows the *clock* of a replica, and moves it if it is virtual."""

    clock: Clock
    candidate: Candidate

    @property
    def kind(self) -> str:
        return "virtual" if isinstance(self.clock, VirtualClock) else "real"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:
        if not isinstance(self.clock, VirtualClock):
            raise ClockError
        return self.candidate.scheduler.advance(duration, move_to=self.clock.move_to)
