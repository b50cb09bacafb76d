"""When a relay tells its server who has polled, and what it has answered."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from tests.feed.conftest import Center, machine

from forewarn.domain.names import VmName
from forewarn.feed.notes import MOST_COUNTED, SELDOM, Notes
from forewarn.feed.upstream import Upstream
from forewarn.ports.metrics import Tally

A, B = VmName("a"), VmName("b")


class Noting:
    """Notes under a clock that is moved by hand."""

    def __init__(self, center: Center) -> None:
        token = center.relay_token("kvm-1")
        upstream = Upstream(url=f"http://127.0.0.1:{center.port}", token=lambda: token)
        self.tally = Tally()
        self.now = 0.0
        self.notes = Notes(upstream, self.tally, lambda: self.now)

    def poll(self, *vms: VmName) -> None:
        for vm in vms:
            self.notes.note(vm)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.notes.send_due()


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    made.place(machine("a", "kvm-1"), machine("b", "kvm-1"))
    yield made
    made.close()


def test_first_poll_of_a_machine_is_told_soon_and_later_ones_seldom(center: Center) -> None:
    noting = Noting(center)
    noting.poll(A, A)
    noting.wait(0.5)
    noting.poll(A)
    noting.wait(0.5)
    noting.poll(A, B)
    noting.wait(0.5)
    soon = [*center.polled]
    noting.wait(SELDOM)
    noting.poll(A)
    noting.wait(0.5)
    late = [*center.polled]
    noting.wait(SELDOM)

    assert soon == late == [(A,), (B,)]
    assert center.polled == [(A,), (B,), (A,)]


def test_counts_are_told_from_time_to_time(center: Center) -> None:
    noting = Noting(center)
    noting.tally.posts += 3
    noting.wait(SELDOM - 1)
    before = center.tally.posts
    noting.wait(1)
    noting.wait(SELDOM)

    assert (before, center.tally.posts) == (0, 3)


def test_what_could_not_be_told_is_told_later(center: Center) -> None:
    noting = Noting(center)
    noting.tally.posts += 1
    noting.poll(A)
    center.stop()
    with capture_logs() as logs:
        for _ in range(3):
            noting.wait(SELDOM)
    noting.tally.posts += 1
    center.start()
    noting.wait(SELDOM)
    noting.wait(SELDOM)

    assert [line["event"] for line in logs] == ["notes_not_sent"], "told once"
    assert center.polled == [(A,)]
    assert center.tally.posts == 2


def test_counts_of_a_long_outage_are_told_in_parts_that_the_server_takes(center: Center) -> None:
    noting = Noting(center)
    noting.tally.posts += 2 * MOST_COUNTED + 3
    noting.tally.refusals[404] += 7
    told = []
    for _ in range(4):
        noting.wait(SELDOM)
        told.append(center.tally.posts)

    assert told == [MOST_COUNTED, 2 * MOST_COUNTED, *([2 * MOST_COUNTED + 3] * 2)]
    assert center.tally.refusals == {404: 7}


def test_end_tells_what_is_left(center: Center) -> None:
    noting = Noting(center)
    noting.poll(A)
    noting.tally.posts += 1
    noting.notes.stop()
    noting.notes.run()

    assert (center.polled, center.tally.posts) == ([(A,)], 1)


def test_end_without_anything_to_tell_is_silent(center: Center) -> None:
    noting = Noting(center)
    center.stop()
    noting.notes.stop()
    with capture_logs() as logs:
        noting.notes.run()

    assert logs == []
