"""How long ahead a virtual machine is told, and when it is told at all."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from forewarn.protocol.vocabulary import EventType

MINIMUM_NOTICE: Final[Mapping[EventType, timedelta]] = {
    EventType.FREEZE: timedelta(minutes=15),
    EventType.REBOOT: timedelta(minutes=15),
    EventType.REDEPLOY: timedelta(minutes=10),
    EventType.PREEMPT: timedelta(seconds=30),
    EventType.TERMINATE: timedelta(minutes=5),
}
LONGEST_TERMINATE_NOTICE: Final = timedelta(minutes=15)
ENABLED_AFTER_POLL: Final = timedelta(hours=24)


class NoticeMode(StrEnum):
    """Whether an operation on virtual machines that nobody polls for is announced."""

    ALWAYS = "always"
    WHEN_ENABLED = "when-enabled"


def minimum_notice(
    event_type: EventType, *, terminate_notice: timedelta | None = None, speed: float = 1
) -> timedelta:
    """Return the shortest notice for *event_type*, divided by *speed*.

    A scale set may lengthen the notice of a Terminate by *terminate_notice*.
    """
    notice = MINIMUM_NOTICE[event_type]
    if event_type is EventType.TERMINATE and terminate_notice is not None:
        notice = terminate_notice
    return notice / speed


def earliest_not_before(now: datetime, notice: timedelta) -> datetime:
    """Return the first whole second that gives *notice* from *now* on."""
    return round_up_to_second(now + notice)


def round_up_to_second(moment: datetime) -> datetime:
    """Return *moment* or the next whole second: the wire has no fractions, notice no loss."""
    whole = moment.astimezone(UTC).replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)


def is_enabled(last_polled_at: datetime | None, now: datetime) -> bool:
    """Tell whether somebody in the scope has polled lately enough to be told of user operations."""
    return last_polled_at is not None and now - last_polled_at < ENABLED_AFTER_POLL
