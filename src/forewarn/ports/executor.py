"""What carries out impacts."""

from typing import Protocol

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.protocol.vocabulary import EventId


class Executor(Protocol):
    """Does to virtual machines what was announced, at most once per event and machine.

    `begin` is called after Started was committed. Called again for the same event and machine, by
    this leader or another, it must do nothing: the target remembers. Both are called by the
    scheduler's loop, so neither waits for anybody outside of this machine.
    """

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Begin the impact of *event* on *vm* for the leader of *epoch*, and say how far it is."""

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Say how far it is, and at what maintenance time to ask again if it is not over."""
