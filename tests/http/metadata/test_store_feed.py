"""How the board learns of what is committed."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import NOW, migrated_database
from tests.http.metadata.test_board import GONE, SCOPE, VM

from forewarn.domain.amending import build_topology
from forewarn.domain.names import VmName
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.metadata.board import Board
from forewarn.metadata.store_feed import StoreFeed
from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.store import SERVER_PAUSE, Reading, StoreUnavailableError
from forewarn.protocol.document import Document
from forewarn.storage.sqlite import SqliteStore

T = TypeVar("T")


class UnluckyStore(SqliteStore):
    """A store in which *meanwhile* happens between listening and reading."""

    meanwhile: Callable[[], None] | None = None
    listener: ChangeListener
    is_readable = True
    reads = 0

    def listen(self, listener: ChangeListener) -> None:
        super().listen(listener)
        self.listener = listener
        if self.meanwhile:
            self.meanwhile()

    def read(self, look: Callable[[Reading], T]) -> T:
        self.reads += 1
        if not self.is_readable:
            raise StoreUnavailableError("too many open files")
        return super().read(look)

    def publish(self, incarnation: int) -> None:
        document = Document(document_incarnation=incarnation)
        self.write(lambda tx: tx.put_document(SCOPE, document, at=NOW))

    def place(self, *names: str) -> None:
        fleet = build_topology(
            scopes=[standalone(VmName(name)) for name in names],
            virtual_machines=[
                VirtualMachine(name=VmName(name), scope_id=standalone(VmName(name)).scope_id)
                for name in names
            ],
        )
        self.write(lambda tx: tx.put_topology(fleet))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UnluckyStore]:
    (tmp_path / "forewarn.db").write_bytes(migrated_database())
    opened = UnluckyStore(tmp_path / "forewarn.db")
    opened.place("a")
    opened.publish(1)
    yield opened
    opened.close()


def test_commit_between_listening_and_reading_is_put_up_once(store: UnluckyStore) -> None:
    shown = Board()
    store.meanwhile = lambda: store.publish(2)
    StoreFeed(shown, store).begin()
    page, reads = shown.page(VM, "2020-07-01"), store.reads

    store.listener(StoreChange(incarnations={SCOPE: 2}, topology_version=1))  # late

    assert page.etag == b"2"
    assert shown.page(VM, "2020-07-01") is page
    assert store.reads == reads == 1


def test_board_shows_what_is_committed_before_that_is_answered(store: UnluckyStore) -> None:
    shown = Board()
    StoreFeed(shown, store).begin()

    store.publish(2)
    store.place("a", "b")
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, ""))

    assert shown.page(VM, "2020-07-01").etag == b"2"
    assert shown.vm_named("b")
    assert store.reads == 3, "what changes neither documents nor the fleet is not read"


def test_board_reads_what_is_committed_when_no_more_files_can_be_opened(
    store: UnluckyStore,
) -> None:
    shown = Board()
    StoreFeed(shown, store).begin()

    def publish(_: Reading) -> bytes:
        # The one connection that is open for everybody is taken.
        with no_more_files(), capture_logs():  # nobody could format a traceback
            store.publish(2)
            return shown.page(VM, "2020-07-01").etag

    assert store.read(publish) == b"2"


@contextmanager
def no_more_files() -> Iterator[None]:
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_could_not_be_read_is_put_up_with_the_next_change(store: UnluckyStore) -> None:
    shown = Board()
    StoreFeed(shown, store).begin()
    store.is_readable = False
    store.publish(2)
    store.is_readable = True

    before = shown.page(VM, "2020-07-01").etag
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, ""))

    assert (before, shown.page(VM, "2020-07-01").etag) == (b"1", b"2")


def test_what_could_not_be_read_is_put_up_although_nothing_else_changes(
    store: UnluckyStore,
) -> None:
    shown = Board()
    feed = StoreFeed(shown, store)
    feed.begin()
    store.is_readable = False
    store.publish(2)
    feed.rounds.turn()
    store.is_readable = True

    thread = threading.Thread(target=feed.rounds.run)
    feed.rounds.stop()
    thread.start()
    thread.join()

    assert shown.page(VM, "2020-07-01").etag == b"2"


def test_outage_is_logged_once_and_without_a_traceback(store: UnluckyStore) -> None:
    feed = StoreFeed(Board(), store)
    feed.begin()

    with capture_logs() as logs:
        store.is_readable = False
        store.publish(2)
        feed.rounds.turn()
        feed.rounds.turn()
        store.is_readable = True
        feed.rounds.turn()

    assert [each["event"] for each in logs] == ["board_waits_for_store", "board_recovered"]
    assert feed.board.is_news(SCOPE, 2) is False


def test_everything_is_shown_as_it_is_after_a_gap_even_if_it_is_older(store: UnluckyStore) -> None:
    shown = Board()
    StoreFeed(shown, store).begin()
    shown.put_up({SCOPE: Document(document_incarnation=9), GONE: Document(document_incarnation=9)})

    store.listener(StoreChange(is_gap=True))

    elsewhere = VirtualMachine(name=VmName("gone"), scope_id=GONE)
    assert shown.page(VM, "2020-07-01").etag == b"1"
    assert shown.page(elsewhere, "2020-07-01").etag == b"0"
