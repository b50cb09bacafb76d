"""What becomes of a virtual machine in an event, as the executor that does it says."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from forewarn.domain.names import HostName, check_name


class ImpactStatus(StrEnum):
    """What an executor says of its work on one virtual machine."""

    NOT_BEGUN = "not begun"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerAway:
    """The replica that carries something out, and since when it has not been heard of.

    Operators are paged at *pages_at*; until then it may come back and report the end by itself.
    Both are real times.
    """

    name: str
    since: datetime
    pages_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """An executor's answer, with its reason when it has one; while it runs, its last word.

    *ask_again_at* is when a running impact will have news, if that is known. One that
    *is_by_hand* never has: an operator says when it is over. *has_no_executor* says that the file
    of executors has to be corrected first. Once it is over, *moved_to* is the host that the virtual
    machine is on now, if whoever did it says so; None when the fleet has followed. *status_url* is
    where any server can ask the target of a webhook how far it is.
    """

    status: ImpactStatus
    reason: str = ""
    ask_again_at: datetime | None = None
    is_by_hand: bool = False
    has_no_executor: bool = False
    moved_to: HostName | None = None
    away: OwnerAway | None = None
    status_url: str | None = None

    def __post_init__(self) -> None:
        if self.moved_to is not None:
            check_name(self.moved_to, "host")

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.status in {ImpactStatus.DONE, ImpactStatus.FAILED}

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows how far it is, for now or for good."""
        return self.status is ImpactStatus.UNKNOWN

    @property
    def is_stuck(self) -> bool:
        """Whether it is unknown, and nothing will ever report its end."""
        return self.is_lost and self.ask_again_at is None and not self.is_by_hand

    @property
    def needs_somebody(self) -> bool:
        """Whether nothing more is ever heard of it unless an operator says that it is over."""
        return self.is_by_hand or self.is_stuck

    def has_news(self, now: datetime) -> bool:
        return self.ask_again_at is not None and self.ask_again_at <= now
