"""What was seen while a change was on its way is what was served until it had arrived."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import migrated_database
from tests.http.metadata.test_store_feed import UnluckyStore

from forewarn.files.fleet import read_fleet
from forewarn.metadata.board import Board
from forewarn.metadata.showings import Showings
from forewarn.metadata.store_feed import StoreFeed
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.seen import see
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import Showing
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventType, event_id
from forewarn.storage.sqlite import open_sqlite

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
Work = Callable[[Transaction, Context], object]


class TickingClock:
    """A clock of which a microsecond is over whenever somebody looks."""

    def __init__(self) -> None:
        self._ticks = count()

    def now(self) -> datetime:
        return NOW + timedelta(microseconds=next(self._ticks))


class Server:
    """A store, a board and what notes the showings; polls are written down."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = TickingClock()
        self.board = Board()
        self.showings = Showings(store, self.clock)
        self.ids = count(1)
        self.served: list[tuple[datetime, bytes]] = []
        self.feed = StoreFeed(self.board, store, self.showings.note)
        self.feed.begin()

    def context(self) -> Context:
        return Context(
            who="x",
            now=self.clock.now(),
            at=NOW,
            new_id=lambda: event_id(f"00000000-0000-4000-8000-{next(self.ids):012x}"),
        )

    def poll(self) -> None:
        vm = self.board.vm_named("a")
        if vm is not None:
            self.served.append((self.clock.now(), self.board.page(vm, NEWEST.name).body))

    def write(self, work: Work) -> None:
        """Do it, with polls before, after, and while it is done and committed."""

        def polled(tx: Transaction) -> None:
            work(tx, self.context())
            self.poll()

        self.poll()
        self.store.write(polled)
        self.poll()

    def place(self, **place: str) -> None:
        declared = read_fleet(
            {
                "availability_set": [{"name": "blue"}, {"name": "green"}],
                "virtual_machine": [{"name": "a", **place}, {"name": "b"}],
            }
        )
        self.write(lambda tx, context: apply_fleet(tx, context, declared))

    def announce(self) -> None:
        order = EventOrder(event_type=EventType.REBOOT, resources=("b",))
        self.write(lambda tx, context: create_events(tx, context, order))

    def seen(self) -> list[tuple[datetime, bytes]]:
        return [(at, self.see(at)) for at, _ in self.served]

    def see(self, at: datetime) -> bytes:
        pending, context = self.showings.pending(), self.context()
        return self.store.read(
            lambda reading: see(reading, context, "a", at, NEWEST.name, pending=pending)
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


@pytest.fixture
def server(store: Store) -> Server:
    """A server whose machine *a* has moved twice while it polled."""
    made = Server(store)
    made.place()
    made.place(availability_set="blue")
    made.announce()
    made.place(availability_set="green")
    assert len({body for _, body in made.served}) == 3
    return made


def test_machine_has_seen_what_it_was_served_while_it_moved(server: Server) -> None:
    assert server.seen() == server.served


def test_machine_has_not_seen_what_the_board_could_not_read_yet(tmp_path: Path) -> None:
    (tmp_path / "forewarn.db").write_bytes(migrated_database())
    store = UnluckyStore(tmp_path / "forewarn.db")
    server = Server(store)
    server.place()
    store.is_readable = False
    server.place(availability_set="blue")
    server.announce()
    server.place(availability_set="green")
    store.is_readable = True
    assert len({body for _, body in server.served}) == 1

    server.feed.catch_up()
    server.poll()

    assert server.seen() == server.served
    store.close()


def test_it_is_known_after_it_was_written_down_too(server: Server) -> None:
    server.showings.rounds.stop()
    thread = threading.Thread(target=server.showings.rounds.run)
    thread.start()
    thread.join(60)

    assert not thread.is_alive(), "the last turn takes no minute"
    assert server.showings.pending() == ()
    assert server.seen() == server.served


def test_what_changes_no_document_and_takes_no_time_is_no_showing(store: Store) -> None:
    class StandingClock:
        def now(self) -> datetime:
            return NOW

    showings = Showings(store, StandingClock())
    for change in (StoreChange(has_ledger_grown=True), StoreChange(recorded_at=NOW)):
        showings.note(change)
    showings.commit()

    assert showings.pending() == ()


def test_what_cannot_be_written_is_kept_and_logged_once(server: Server, tmp_path: Path) -> None:
    pending = server.showings.pending()
    database = tmp_path / "forewarn.db"
    aside = database.rename(tmp_path / "aside.db")
    server.showings.rounds.stop()  # so that each run is one round

    with capture_logs() as logs:
        server.showings.rounds.run()
        server.showings.rounds.run()
        assert server.showings.pending() == pending != ()
        aside.rename(database)
        server.showings.rounds.run()

    assert server.showings.pending() == ()
    told = [line["event"] for line in logs if line["event"].startswith("showings")]
    assert told == ["showings_waits_for_store", "showings_recovered"]


def test_showings_that_are_over_can_be_forgotten(store: Store) -> None:
    made = [
        Showing(
            recorded_at=NOW + timedelta(minutes=minutes),
            shown_at=NOW + timedelta(minutes=minutes, seconds=1),
        )
        for minutes in (0, 1)
    ]
    store.write(lambda tx: tx.put_showings(made))

    store.write(lambda tx: tx.prune_showings(before=NOW + timedelta(seconds=30)))

    assert [find(store, each.recorded_at) for each in made] == [None, made[1]]


def find(store: Store, at: datetime) -> Showing | None:
    return store.read(lambda reading: reading.showing(at))
