"""Maintenance time as an operator sees and moves it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from forewarn.bootstrap.leader import Candidate
from forewarn.clocks import VirtualClock
from forewarn.desk.services import ClockError
from forewarn.ports.clock import Clock
from forewarn.ports.store import Store


@dataclass(frozen=True, slots=True)
class ReplicaClockControl:
    """Shows the *clock* of a replica, and moves it if it is virtual."""

    clock: Clock
    store: Store
    candidate: Candidate

    @property
    def kind(self) -> str:
        return "virtual" if isinstance(self.clock, VirtualClock) else "real"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:
        clock = self.clock
        if not isinstance(clock, VirtualClock):
            raise ClockError

        def move_to(moment: datetime) -> None:
            # Written first: after a restart time goes on from here, and never back.
            self.store.write(lambda tx: tx.put_setting("virtual_now", moment.isoformat()))
            clock.move_to(moment)

        return self.candidate.scheduler.advance(duration, move_to=move_to)
