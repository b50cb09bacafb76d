"""An operator does it by hand, and says so with `forewarn event complete`."""

from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.protocol.vocabulary import EventId

BY_HAND: Final = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)


class ManualExecutor:
    """Does nothing: a Started event stays Started until it is completed from outside."""

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Leave it to the operator."""
        del epoch
        return self.inquire(event.event_id, vm)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Say that somebody is at it."""
        del event_id, vm
        return BY_HAND
