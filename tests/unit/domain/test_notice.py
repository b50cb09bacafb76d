from datetime import datetime, timedelta

import pytest

from forewarn.domain.notice import (
    earliest_not_before,
    is_enabled,
    minimum_notice,
    round_up_to_second,
)
from forewarn.protocol.vocabulary import EventType

NOTICES = {
    EventType.FREEZE: timedelta(minutes=15),
    EventType.REBOOT: timedelta(minutes=15),
    EventType.REDEPLOY: timedelta(minutes=10),
    EventType.PREEMPT: timedelta(seconds=30),
    EventType.TERMINATE: timedelta(minutes=5),
}


@pytest.mark.parametrize("event_type", EventType)
def test_each_type_has_its_minimum_notice(event_type: EventType) -> None:
    assert minimum_notice(event_type) == NOTICES[event_type]


def test_scale_set_lengthens_the_notice_of_a_terminate() -> None:
    notice = minimum_notice(EventType.TERMINATE, terminate_notice=timedelta(minutes=15))

    assert notice == timedelta(minutes=15)


@pytest.mark.parametrize("event_type", sorted(set(EventType) - {EventType.TERMINATE}))
def test_terminate_notice_is_for_terminate_alone(event_type: EventType) -> None:
    notice = minimum_notice(event_type, terminate_notice=timedelta(minutes=12))

    assert notice == NOTICES[event_type]


@pytest.mark.parametrize("event_type", EventType)
def test_speed_divides_the_notice(event_type: EventType) -> None:
    assert minimum_notice(event_type, speed=60) == NOTICES[event_type] / 60


def test_speed_divides_the_terminate_notice_of_a_scale_set() -> None:
    notice = minimum_notice(EventType.TERMINATE, terminate_notice=timedelta(minutes=10), speed=10)

    assert notice == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("fraction", "seconds"), [(0, 0), (1, 1), (500_000, 1), (999_999, 1), (1_000_000, 1)]
)
def test_moment_is_rounded_up_to_the_whole_second(
    now: datetime, fraction: int, seconds: int
) -> None:
    rounded = round_up_to_second(now + timedelta(microseconds=fraction))

    assert rounded == now + timedelta(seconds=seconds)


def test_rounding_never_shortens_the_notice(now: datetime) -> None:
    notice = timedelta(milliseconds=1500)

    assert earliest_not_before(now, notice) == now + timedelta(seconds=2)


@pytest.mark.parametrize(
    ("since_poll", "enabled"),
    [
        (timedelta(0), True),
        (timedelta(hours=23, minutes=59, seconds=59), True),
        (timedelta(hours=24), False),
        (timedelta(days=3), False),
    ],
)
def test_scope_is_enabled_for_a_day_after_a_poll(
    now: datetime, since_poll: timedelta, *, enabled: bool
) -> None:
    assert is_enabled(now - since_poll, now) is enabled


def test_scope_that_was_never_polled_is_not_enabled(now: datetime) -> None:
    assert not is_enabled(None, now)
