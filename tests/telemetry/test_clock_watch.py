"""Jumps of the clock, told from threads that are late and clocks that drift."""

from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from forewarn.ports.clock import ClockJump
from forewarn.telemetry.clock_watch import KEPT, ClockWatch

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = 3600.0


class Machine:
    """Two clocks. *delays* are seconds that pass between one reading of a clock and the next."""

    def __init__(self) -> None:
        self.elapsed = 1000.0
        self.offset = 0.0
        self.delays: list[float] = []

    def now(self) -> datetime:
        self._delay()
        return NOON + timedelta(seconds=self.elapsed - 1000 + self.offset)

    def monotonic(self) -> float:
        self._delay()
        return self.elapsed

    def _delay(self) -> None:
        if self.delays:
            self.elapsed += self.delays.pop(0)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def watch(machine: Machine) -> ClockWatch:
    return ClockWatch(machine, machine.monotonic)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR, 5.0, -5.0])
def test_jump_is_noticed_once(machine: Machine, watch: ClockWatch, seconds: float) -> None:
    machine.elapsed += 1
    machine.offset += seconds

    with capture_logs() as logs:
        watch.look()
        machine.elapsed += 1
        watch.look()

    after = NOON + timedelta(seconds=1 + seconds)
    assert watch.jumps == (ClockJump(at=after, seconds=seconds),)
    assert watch.number == 1
    assert logs == [
        {
            "event": "clock_jumped",
            "log_level": "warning",
            "seconds": seconds,
            "at": after.isoformat(),
        }
    ]


def test_thread_that_is_late_by_an_hour_sees_no_jump(machine: Machine, watch: ClockWatch) -> None:
    machine.elapsed += HOUR

    watch.look()

    assert watch.jumps == ()


@pytest.mark.parametrize("delays", [[HOUR], [0, HOUR], [0, 0, HOUR], [0, HOUR, 0, 0, HOUR]])
def test_thread_that_is_held_up_between_two_clocks_sees_no_jump(
    machine: Machine, watch: ClockWatch, delays: list[float]
) -> None:
    machine.delays = delays

    watch.look()
    watch.look()

    assert watch.jumps == ()


def test_clock_that_is_slewed_does_not_jump(machine: Machine, watch: ClockWatch) -> None:
    for _ in range(1000):
        machine.elapsed += 1
        machine.offset += 0.1
        watch.look()

    assert watch.jumps == ()


def test_only_the_last_jumps_are_remembered(machine: Machine, watch: ClockWatch) -> None:
    for minute in range(1, 14):
        machine.offset += 60.0 * minute
        watch.look()

    assert watch.number == 13
    assert [jump.seconds for jump in watch.jumps] == [60.0 * n for n in range(14 - KEPT, 14)]
