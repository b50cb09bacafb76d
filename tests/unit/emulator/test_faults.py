"""Faults in memory: replaced, used up, removed, and the documents they remember."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.clocks import VirtualClock
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import ScopeId, VmName
from forewarn.emulator.faults import MemoryFaults
from forewarn.ports.changes import StoreChange
from forewarn.protocol.document import Document

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
WEB, SOLO = VmName("web-0"), VmName("solo")
SLOW = Fault(kind=FaultKind.SLOW, seconds=1)
RESET_TWICE = Fault(kind=FaultKind.RESET, times=2)
COUNT_ANEW = Fault(kind=FaultKind.INCARNATION_RESET)
STALE = Fault(kind=FaultKind.STALE)


class World:
    """A scope whose document is published by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.current = Document(document_incarnation=5)
        self.gone: set[VmName] = set()
        self.wakeups = 0
        self.faults = MemoryFaults(
            document_of=self._document_of, clock=self.clock, changed=self._wake
        )

    def _document_of(self, vm: VmName) -> Document | None:
        return None if vm in self.gone else self.current

    def _wake(self) -> None:
        self.wakeups += 1

    def publish(self, incarnation: int) -> None:
        self.current = Document(document_incarnation=incarnation)
        self.faults.note(StoreChange(incarnations={ScopeId("s"): incarnation}))

    def wait(self, seconds: float) -> None:
        self.clock.move_to(self.clock.now() + timedelta(seconds=seconds))

    @property
    def seen(self) -> int:
        return self.faults.show(WEB, self.current).document_incarnation


@pytest.fixture
def world() -> World:
    return World()


def delay(seconds: float) -> Fault:
    return Fault(kind=FaultKind.PUBLISH_DELAY, seconds=seconds)


def test_fault_is_of_one_virtual_machine(world: World) -> None:
    world.faults.put(WEB, SLOW)

    assert WEB in world.faults
    assert SOLO not in world.faults
    assert world.faults.take(SOLO, FaultKind.SLOW) is None
    assert world.faults.take(WEB, FaultKind.RESET) is None
    assert world.faults.take(WEB, FaultKind.SLOW) == SLOW


def test_same_kind_replaces_and_other_kinds_stay(world: World) -> None:
    longer = Fault(kind=FaultKind.SLOW, seconds=2)
    for fault in (RESET_TWICE, SLOW, longer):
        world.faults.put(WEB, fault)

    assert world.faults.all() == {WEB: (longer, RESET_TWICE)}


def test_fault_is_used_up_by_itself(world: World) -> None:
    world.faults.put(WEB, RESET_TWICE)

    first = world.faults.take(WEB, FaultKind.RESET)
    left: Mapping[VmName, tuple[Fault, ...]] = world.faults.all()
    second = world.faults.take(WEB, FaultKind.RESET)

    assert (first, left) == (RESET_TWICE, {WEB: (Fault(kind=FaultKind.RESET, times=1),)})
    assert second is not None
    assert world.faults.take(WEB, FaultKind.RESET) is None
    assert WEB not in world.faults
    assert world.faults.all() == {}


def test_many_threads_take_no_more_than_there_is(world: World) -> None:
    world.faults.put(WEB, Fault(kind=FaultKind.RESET, times=100))

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: world.faults.take(WEB, FaultKind.RESET), range(1000)))

    assert sum(fault is not None for fault in taken) == 100


@pytest.mark.parametrize(
    ("kind", "left"), [(FaultKind.SLOW, (RESET_TWICE,)), (FaultKind.STATUS, (SLOW, RESET_TWICE))]
)
def test_one_kind_is_removed(world: World, kind: FaultKind, left: tuple[Fault, ...]) -> None:
    world.faults.put(WEB, SLOW)
    world.faults.put(WEB, RESET_TWICE)

    world.faults.remove(WEB, kind)

    assert world.faults.all() == {WEB: left}


def test_all_kinds_are_removed_and_nothing_can_be_removed(world: World) -> None:
    for fault in (SLOW, RESET_TWICE, COUNT_ANEW, delay(10)):
        world.faults.put(WEB, fault)
    world.faults.put(SOLO, SLOW)

    world.faults.remove(WEB)
    world.faults.remove(WEB)

    assert world.faults.all() == {SOLO: (SLOW,)}
    assert world.seen == 5


def test_polls_that_wait_hear_of_each_change(world: World) -> None:
    world.faults.put(WEB, SLOW)
    world.faults.remove(WEB)

    assert world.wakeups == 2


def test_incarnation_is_counted_from_the_moment_it_is_set(world: World) -> None:
    world.faults.put(WEB, COUNT_ANEW)
    at_once = world.seen
    world.publish(6)
    later = world.seen
    world.faults.put(WEB, COUNT_ANEW)
    again = world.seen
    world.faults.remove(WEB, FaultKind.INCARNATION_RESET)

    assert (at_once, later, again, world.seen) == (0, 1, 0, 6)


def test_publication_is_seen_after_the_delay(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)

    seen = [world.seen]
    for seconds in (59, 0.999, 0.001):
        world.wait(seconds)
        seen.append(world.seen)

    assert seen == [5, 5, 5, 6]


def test_each_publication_has_its_own_delay(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)
    world.wait(30)
    world.publish(7)
    world.wait(29)

    seen = [world.seen]
    for seconds in (1, 29, 1):
        world.wait(seconds)
        seen.append(world.seen)

    assert seen == [5, 6, 6, 7]


def test_change_of_something_else_is_no_publication(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)
    world.wait(59)
    world.faults.note(StoreChange())
    world.wait(1)

    assert world.seen == 6


def test_longer_delay_takes_nothing_back_that_was_seen(world: World) -> None:
    world.faults.put(WEB, delay(10))
    world.publish(6)
    world.wait(10)
    world.publish(7)

    world.faults.put(WEB, delay(60))

    assert world.seen == 6
    world.wait(60)
    assert world.seen == 7


def test_end_of_the_delay_shows_what_it_held_back(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)

    world.faults.remove(WEB, FaultKind.PUBLISH_DELAY)

    assert world.seen == 6


def test_counting_anew_begins_with_what_is_seen(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)
    world.faults.put(WEB, COUNT_ANEW)

    before = world.seen
    world.wait(60)

    assert (before, world.seen) == (0, 1)


def test_stale_document_is_that_of_the_moment_it_was_set(world: World) -> None:
    world.faults.put(WEB, STALE)
    world.publish(6)
    early = world.seen
    world.faults.put(WEB, STALE)
    again = world.seen
    world.publish(7)
    late = world.seen
    world.faults.remove(WEB, FaultKind.STALE)

    assert (early, again, late, world.seen) == (5, 6, 6, 7)


def test_stale_document_is_shown_so_many_times(world: World) -> None:
    world.faults.put(WEB, replace(STALE, times=2))
    world.publish(6)

    assert [world.seen for _ in range(3)] == [5, 5, 6]
    assert WEB not in world.faults


def test_stale_document_is_the_one_that_is_seen(world: World) -> None:
    world.faults.put(WEB, delay(60))
    world.publish(6)
    world.faults.put(WEB, STALE)
    world.wait(60)
    world.faults.put(WEB, COUNT_ANEW)

    stale = world.seen
    world.faults.remove(WEB, FaultKind.STALE)

    assert (stale, world.seen) == (0, 1)


def test_incarnation_jumps_and_comes_back(world: World) -> None:
    world.faults.put(WEB, Fault(kind=FaultKind.INCARNATION_JUMP))
    jumped = world.seen
    world.publish(6)
    later = world.seen
    world.faults.remove(WEB, FaultKind.INCARNATION_JUMP)

    assert (jumped, later, world.seen) == (2147483653, 2147483654, 6)


def test_virtual_machine_that_leaves_takes_its_faults_along(world: World) -> None:
    world.faults.put(WEB, SLOW)
    world.faults.put(SOLO, SLOW)
    world.gone.add(WEB)

    world.faults.note(StoreChange(topology_version=2))

    assert world.faults.all() == {SOLO: (SLOW,)}
