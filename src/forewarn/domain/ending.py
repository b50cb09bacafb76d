"""How a Maintenance ended."""

from collections.abc import Iterable
from enum import StrEnum

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.maintenance import Maintenance, own_events


class Ending(StrEnum):
    """How a Maintenance ended. It is INCOMPLETE if an event of it failed or was canceled."""

    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"


def ending_of(maintenance: Maintenance, events: Iterable[ScheduledEvent]) -> Ending:
    """Say how *maintenance* ended, from its own among *events*, all of which are over."""
    if maintenance.is_aborted:
        return Ending.ABORTED
    own = own_events(maintenance, events)
    is_done = all(event.outcome is Outcome.SUCCEEDED for event in own)
    return Ending.SUCCEEDED if is_done else Ending.INCOMPLETE
