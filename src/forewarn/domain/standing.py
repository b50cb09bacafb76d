"""Where a Maintenance is, altogether and with each of its places."""

from enum import StrEnum
from typing import Final


class MaintenanceStatus(StrEnum):
    """Where a Maintenance is."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    HELD = "held"
    ABORTING = "aborting"
    ABORTED = "aborted"
    INCOMPLETE = "incomplete"
    COMPLETED = "completed"


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
    MaintenanceStatus.PAUSED,
    MaintenanceStatus.HELD,
    MaintenanceStatus.ABORTING,
)
"""Where a Maintenance can be that is not over."""
NOT_DONE: Final = frozenset({Standing.GONE, Standing.SKIPPED})
"""What a Maintenance leaves undone for good."""
