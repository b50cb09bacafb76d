"""Who does the work on hosts themselves."""

from collections.abc import Sequence
from typing import Protocol

from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact


class HostWorker(Protocol):
    """Does the tasks of host operations, each at most once.

    `begin` is called after the operation was recorded as having come this far. Called again for
    the same task, by this leader or another, it must do nothing: the target remembers. Neither
    method waits for anybody outside of this machine.
    """

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        """Which hosts have work, in the order in which they are tried."""

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        """Begin *task* for the leader of *epoch*, and say how far it is."""

    def inquire(self, task: HostTask) -> Impact:
        """Say how far it is, and at what maintenance time to ask again if it is not over."""
