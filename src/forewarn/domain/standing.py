"""Where a Maintenance is, altogether and with each of its places."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MaintenanceStatus(StrEnum):
    """Where a Maintenance is."""

    RUNNING = "running"
    WAITING = "waiting"
    AWAY = "waiting for replica"
    PAUSED = "paused"
    HELD = "held"
    STUCK = "stuck"
    ABORTING = "aborting"
    ABORTED = "aborted"
    INCOMPLETE = "incomplete"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """The status of a Maintenance, the same wherever it is shown.

    *detail* says what a STUCK Maintenance is stuck on, or which replica is AWAY.
    """

    status: MaintenanceStatus
    detail: str = ""

    @property
    def text(self) -> str:
        """The status and its detail, as they follow after "is"."""
        between = ": " if self.status is MaintenanceStatus.STUCK else " "
        return f"{self.status}{between}{self.detail}" if self.detail else str(self.status)


class Standing(StrEnum):
    """Where a Maintenance is with one host or scope. Of several, the last in this list counts."""

    NOTHING_TO_DO = "nothing to do"
    SUCCEEDED = "succeeded"
    GONE = "left the fleet"
    SKIPPED = "skipped"
    WAITING = "waiting"
    FAILED = "failed"
    UNDER_WAY = "under way"


ATTENTION: Final = (
    Standing.FAILED,
    Standing.UNDER_WAY,
    Standing.WAITING,
    Standing.SKIPPED,
    Standing.GONE,
    Standing.SUCCEEDED,
    Standing.NOTHING_TO_DO,
)
"""What an operator looks for first comes first."""
NOT_OVER: Final = (
    MaintenanceStatus.RUNNING,
    MaintenanceStatus.WAITING,
    MaintenanceStatus.AWAY,
    MaintenanceStatus.PAUSED,
    MaintenanceStatus.HELD,
    MaintenanceStatus.STUCK,
    MaintenanceStatus.ABORTING,
)
"""Where a Maintenance can be that is not over."""
NEEDS_OPERATOR: Final = frozenset({MaintenanceStatus.HELD, MaintenanceStatus.STUCK})
"""Where an operator has to act, and is paged."""
NOT_DONE: Final = frozenset({Standing.GONE, Standing.SKIPPED})
"""What a Maintenance leaves undone for good."""
