"""From a poll to an enabled scope."""

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import FLEET, NOW, WEB, Service
from tests.waiting import wait_until

from forewarn.clocks import VirtualClock
from forewarn.domain.names import VmName
from forewarn.metadata.board import Board
from forewarn.metadata.polls import Polls
from forewarn.metadata.store_feed import StoreFeed
from forewarn.ports.store import Store
from forewarn.storage.sqlite import open_sqlite


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


@pytest.fixture
def board(store: Store) -> Board:
    shown = Board()
    StoreFeed(shown, store).begin()
    store.write(lambda tx: tx.put_topology(FLEET))
    return shown


def commit(polls: Polls) -> None:
    """Let the thread run its last turn."""
    polls.rounds.stop()
    thread = threading.Thread(target=polls.rounds.run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the last turn takes no minute"


def test_poll_enables_the_whole_scope(store: Store, board: Board) -> None:
    polls = Polls(store, board, VirtualClock(NOW))
    polls.note(VmName("web-0"))
    polls.note(VmName("gone"))

    commit(polls)

    assert store.read(lambda reading: reading.last_polled_at(WEB)) == NOW


def last_polls(store: Store) -> Mapping[VmName, datetime]:
    return store.read(lambda reading: reading.last_polls(FLEET.virtual_machines))


def test_each_machine_is_told_apart_within_a_scope(store: Store, board: Board) -> None:
    polls = Polls(store, board, VirtualClock(NOW))
    polls.note(VmName("web-0"))

    commit(polls)

    assert last_polls(store) == {VmName("web-0"): NOW}


def test_polls_of_a_machine_are_written_once_a_minute(store: Store, board: Board) -> None:
    clock = VirtualClock(NOW)
    polls = Polls(store, board, clock)
    written = []
    for seconds in (0, 59, 60):
        clock.move_to(NOW + timedelta(seconds=seconds))
        polls.note(VmName("web-0"))
        commit(polls)
        written.append(last_polls(store)[VmName("web-0")] - NOW)

    assert written == [timedelta(0), timedelta(0), timedelta(seconds=60)]


def test_polls_of_many_machines_are_written_over_several_seconds(
    store: Store, board: Board
) -> None:
    polls = Polls(store, board, VirtualClock(NOW))
    names = [VmName(f"vm-{number}") for number in range(2_500)]
    for name in names:
        polls.note(name)

    counts = []
    for _ in range(2):
        commit(polls)
        counts.append(len(store.read(lambda reading: reading.last_polls(names))))

    assert counts == [2_000, 2_500]


def test_renewal_is_written_after_a_minute(store: Store, board: Board) -> None:
    clock = VirtualClock(NOW)
    polls = Polls(store, board, clock)
    for seconds in (0, 30, 61):
        clock.move_to(NOW + timedelta(seconds=seconds))
        polls.note(VmName("web-0"))
        commit(polls)

    assert store.read(lambda reading: reading.last_polled_at(WEB)) == NOW + timedelta(seconds=61)


def test_nothing_is_written_when_nobody_polls(store: Store, board: Board) -> None:
    commit(Polls(store, board, VirtualClock(NOW)))

    assert store.read(lambda reading: reading.setting("last_upkeep")) is None


def test_store_that_cannot_be_written_ends_no_thread_and_is_said_once(service: Service) -> None:
    service.make_read_only()
    polls = Polls(service.store, service.board, VirtualClock(NOW))
    polls.note(VmName("web-0"))

    with capture_logs() as logs:
        commit(polls)
        commit(polls)

    assert [line["event"] for line in logs].count("polls_waits_for_store") == 1


def test_poll_that_cannot_be_written_at_once_is_answered(service: Service) -> None:
    service.make_read_only()
    polls = Polls(service.store, service.board, VirtualClock(NOW), is_eager=True)

    polls.note(VmName("web-0"))

    assert service.store.read(lambda reading: reading.last_polled_at(WEB)) is None


def test_first_polls_that_a_relay_notes_are_written_at_once(store: Store, board: Board) -> None:
    polls = Polls(store, board, VirtualClock(NOW))
    thread = threading.Thread(target=polls.rounds.run)
    thread.start()
    try:
        polls.note_all([VmName("web-0"), VmName("solo")])
        wait_until(lambda: len(last_polls(store)) == 2, "the polls")
    finally:
        polls.rounds.stop()
        thread.join(60)


def test_polls_that_a_relay_notes_in_virtual_time_are_written_when_it_is_answered(
    store: Store, board: Board
) -> None:
    polls = Polls(store, board, VirtualClock(NOW), is_eager=True)

    polls.note_all([VmName("web-0")])

    assert last_polls(store) == {VmName("web-0"): NOW}
