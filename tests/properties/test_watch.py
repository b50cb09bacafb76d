"""Whatever a server does to a watch, no event's end is lost and no change is told twice.

The watch talks to the emulator over a real socket, in virtual time on both sides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.sdk.rushed import RushedWatch

from forewarn.client import Change, ChangeKind
from forewarn.domain.fault import FaultKind
from forewarn.testing import EmulatedEvent, EmulatedVm, Emulator, EventStatus

PATIENCE: Final = 30.0
"""Longer than a watch may be misled by a number that comes again, and than any pause in trouble."""
AT_ONCE: Final = 3.0
"""Long enough when there is no trouble: it polls every second."""

ENDS: Final = {
    ChangeKind.COMPLETED: {EventStatus.COMPLETED},
    ChangeKind.CANCELED: {EventStatus.CANCELED},
    ChangeKind.GONE: {EventStatus.COMPLETED, EventStatus.CANCELED},
}
POSSIBLE: Final = {
    ChangeKind.SCHEDULED: set(EventStatus),
    ChangeKind.STARTED: {EventStatus.STARTED, EventStatus.COMPLETED},
    **ENDS,
}
"""What may have become of an event by the time that a change of this kind is told."""

TYPES: Final = ("freeze", "reboot", "redeploy", "preempt", "terminate")
TIMES: Final = st.sampled_from([{}, {"times": 1}, {"times": 2}, {"times": 5}])
NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens to a virtual machine, and how a failed example shows it."""

    name: str
    act: Callable[["Life"], None]

    def __repr__(self) -> str:
        return self.name


class Life:
    """One virtual machine, its events, and what a watch says of them."""

    def __init__(self, emulator: Emulator, watch: RushedWatch, vm: EmulatedVm) -> None:
        self.emulator, self.watch, self.vm = emulator, watch, vm
        self.events: dict[str, EmulatedEvent] = {}

    def announce(self, verb: str, *, started: bool) -> None:
        event: EmulatedEvent = getattr(self.vm, verb)(started=started)
        self.events[event.event_id] = event

    def each(self, status: EventStatus, act: Callable[[EmulatedEvent], None]) -> None:
        for event in self.events.values():
            if event.event_status is status:
                act(event)

    def look(self, seconds: float) -> None:
        """Let the watch go on, and see that it tells no lies."""
        for change in self.watch.look(seconds):
            event = self.events[change.event.event_id]
            assert event.event_status in POSSIBLE[change.kind], change

    def changes_of(self, event: EmulatedEvent) -> list[Change]:
        return [change for change in self.watch.changes if change.event.event_id == event.event_id]


def fault(kind: str, **parameters: Any) -> Step:
    return Step(f"fault({kind}, {parameters})", lambda life: life.vm.fault(kind, **parameters))


def clear(kind: FaultKind | None) -> Step:
    return Step(f"clear({kind})", lambda life: life.vm.clear_faults(kind))


def announce(verb: str, *, started: bool) -> Step:
    name = f"{verb}(started={started})"
    return Step(name, lambda life: life.announce(verb, started=started))


def advance(seconds: int) -> Step:
    return Step(f"advance({seconds})", lambda life: advance_clock(life, seconds))


def advance_clock(life: Life, seconds: int) -> None:
    life.emulator.clock.advance(seconds=seconds)


def look(seconds: int) -> Step:
    return Step(f"look({seconds})", lambda life: life.look(seconds))


SCHEDULED, STARTED = EventStatus.SCHEDULED, EventStatus.STARTED
VERBS: Final = (
    Step("approve", lambda life: life.each(SCHEDULED, EmulatedEvent.approve)),
    Step("start", lambda life: life.each(SCHEDULED, EmulatedEvent.start)),
    Step("cancel", lambda life: life.each(SCHEDULED, EmulatedEvent.cancel)),
    Step("complete", lambda life: life.each(STARTED, EmulatedEvent.complete)),
)
FAULTS: Final = st.one_of(
    TIMES.map(lambda times: fault("reset", **times)),
    TIMES.map(lambda times: fault("empty-body", **times)),
    TIMES.map(lambda times: fault("unknown-type", **times)),
    st.builds(
        lambda status, times: fault("status", status=status, **times),
        st.sampled_from([404, 408, 410, 429, 500, 503]),
        TIMES,
    ),
    TIMES.map(lambda times: fault("slow", seconds=0.001, **times)),
    st.sampled_from([1, 30, 600]).map(lambda seconds: fault("publish-delay", seconds=seconds)),
    st.just(fault("incarnation-reset")),
)
STEPS: Final = st.one_of(
    FAULTS,
    FAULTS,
    st.sampled_from([*FaultKind, None]).map(clear),
    st.builds(announce, st.sampled_from(TYPES), started=st.booleans()),
    st.sampled_from(VERBS),
    st.sampled_from([1, 30, 300, 900]).map(advance),
    st.sampled_from([1, 3, 20]).map(look),
    st.sampled_from([1, 3, 20]).map(look),
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@example(steps=[announce("reboot", started=True), look(3), fault("unknown-type"), look(3)])
@given(steps=st.lists(STEPS, min_size=3, max_size=15))
def test_no_end_is_lost_and_no_change_is_told_twice(emulator: Emulator, steps: list[Step]) -> None:
    vm = emulator.vm(f"vm-{next(NUMBERS)}")
    with RushedWatch(vm.url) as watch:
        life = Life(emulator, watch, vm)
        for step in steps:
            step.act(life)
        vm.clear_faults()
        life.look(PATIENCE)
        assert_up_to_date(life)

        end_everything(life)
        life.look(AT_ONCE)

    assert_told_once_and_to_the_end(life)


def assert_up_to_date(life: Life) -> None:
    for event in life.events.values():
        changes = life.changes_of(event)
        if event.event_status in {SCHEDULED, STARTED}:
            assert changes, f"never told of {event}"
            assert changes[-1].kind == event.event_status.lower(), event
            if event.event_status is SCHEDULED:
                assert changes[-1].event.event_type == event.record.event_type, event


def end_everything(life: Life) -> None:
    life.each(SCHEDULED, EmulatedEvent.cancel)
    life.each(STARTED, EmulatedEvent.complete)


def assert_told_once_and_to_the_end(life: Life) -> None:
    for event in life.events.values():
        changes = life.changes_of(event)
        kinds = [change.kind for change in changes]
        assert kinds.count(ChangeKind.STARTED) <= 1
        assert sum(kind in ENDS for kind in kinds) == min(len(kinds), 1)
        assert not kinds or kinds[-1] in ENDS
        told = [(change.kind, change.event) for change in changes]
        assert all(one != next_one for one, next_one in pairwise(told))
