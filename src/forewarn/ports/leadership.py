"""Which replica leads. Leases last in real time, never in maintenance time."""

from datetime import timedelta
from typing import Protocol

from forewarn.domain.errors import says
from forewarn.protocol.errors import ForewarnError


@says("This replica is not the leader; ask the leader, or try again later.")
class NotLeadingError(ForewarnError):
    """Another replica leads, so nothing can be done here that only a leader does."""


class Leadership(Protocol):
    """The lease that all replicas of a store want, and one at a time has.

    Every gain has an epoch of its own, which all writes of that leader carry. So a leader that
    does not know yet that its lease is over can do no harm.
    """

    def clock_offset(self) -> timedelta:
        """Return by how much this machine's clock is ahead of the store's; negative if behind."""

    def campaign(self) -> int | None:
        """Return a new epoch if the lease is this replica's now, and none while others hold it."""

    def renew(self, epoch: int) -> bool:
        """Hold on to the lease of *epoch*; tell whether it is still this replica's."""

    def resign(self, epoch: int) -> None:
        """Let others have the lease of *epoch* at once, if it is still this replica's."""
