"""The board by itself: what it shows, what it shares, and how it learns of what is committed."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import NOW, migrated_database

from forewarn.domain.amending import build_topology
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.metadata.board import Board
from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.store import SERVER_PAUSE, Reading, StoreUnavailableError
from forewarn.protocol.document import Document, Event
from forewarn.protocol.versions import PreviewWire, served_versions
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id
from forewarn.storage.sqlite import SqliteStore

T = TypeVar("T")

SCOPE = ScopeId("virtual-machine/a")
GONE = ScopeId("virtual-machine/gone")
VM = VirtualMachine(name=VmName("a"), scope_id=SCOPE)


def board() -> Board:
    return Board(served_versions(PreviewWire.DOCUMENTED))


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
    shown = board()
    store.meanwhile = lambda: store.publish(2)
    shown.follow(store)
    page, reads = shown.page(VM, "2020-07-01"), store.reads

    store.listener(StoreChange(incarnations={SCOPE: 2}, topology_version=1))  # late

    assert page.etag == b"2"
    assert shown.page(VM, "2020-07-01") is page
    assert store.reads == reads == 1


def test_board_shows_what_is_committed_before_that_is_answered(store: UnluckyStore) -> None:
    shown = board()
    shown.follow(store)

    store.publish(2)
    store.place("a", "b")
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, ""))

    assert shown.page(VM, "2020-07-01").etag == b"2"
    assert shown.vm_named("b")
    assert store.reads == 3, "what changes neither documents nor the fleet is not read"


def test_board_reads_what_is_committed_when_no_more_files_can_be_opened(
    store: UnluckyStore,
) -> None:
    shown = board()
    shown.follow(store)

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
    shown = board()
    shown.follow(store)
    store.is_readable = False
    store.publish(2)
    store.is_readable = True

    before = shown.page(VM, "2020-07-01").etag
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, ""))

    assert (before, shown.page(VM, "2020-07-01").etag) == (b"1", b"2")


def test_what_could_not_be_read_is_put_up_although_nothing_else_changes(
    store: UnluckyStore,
) -> None:
    shown = board()
    shown.follow(store)
    store.is_readable = False
    store.publish(2)
    shown.catch_up()
    store.is_readable = True

    thread = threading.Thread(target=shown.rounds.run)
    shown.rounds.stop()
    thread.start()
    thread.join()

    assert shown.page(VM, "2020-07-01").etag == b"2"


def test_everything_is_shown_as_it_is_after_a_gap_even_if_it_is_older(store: UnluckyStore) -> None:
    shown = board()
    shown.follow(store)
    shown.put_up({SCOPE: Document(document_incarnation=9), GONE: Document(document_incarnation=9)})

    store.listener(StoreChange(is_gap=True))

    elsewhere = VirtualMachine(name=VmName("gone"), scope_id=GONE)
    assert shown.page(VM, "2020-07-01").etag == b"1"
    assert shown.page(elsewhere, "2020-07-01").etag == b"0"


def test_late_change_does_not_bring_back_an_older_document() -> None:
    shown = board()
    shown.put_up({SCOPE: Document(document_incarnation=7)})
    shown.put_up({SCOPE: Document(document_incarnation=6)})

    assert shown.page(VM, "2020-07-01").etag == b"7"


def test_versions_that_look_alike_share_their_bytes() -> None:
    shown = board()
    event = Event(
        event_id=event_id("x"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=("a",),
    )
    shown.put_up({SCOPE: Document(document_incarnation=1, events=(event,))})

    pages = {name: shown.page(VM, name) for name in shown.versions}

    assert pages["2017-08-01"] is pages["2019-01-01"]
    assert len({id(page) for page in pages.values()}) == 5


def test_fleet_is_shown_as_it_was_last_told() -> None:
    shown = board()
    topology = Topology(virtual_machines={VM.name: VM}, scopes={}, hosts={})

    shown.put_up({}, topology)

    assert shown.topology is topology


@pytest.mark.no_cover  # to trace it takes as long as it may take
def test_fleet_of_100_000_is_learned_at_once() -> None:
    vms = {
        VmName(f"vm-{n}"): VirtualMachine(
            name=VmName(f"vm-{n}"),
            scope_id=ScopeId(f"virtual-machine/vm-{n}"),
            vm_id=f"id-{n}",
            addresses=(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}",),
        )
        for n in range(100_000)
    }
    scopes = {vm.scope_id: standalone(vm.name) for vm in vms.values()}
    documents = {scope_id: Document(document_incarnation=0) for scope_id in scopes}
    shown = board()

    began = perf_counter()
    shown.put_up(documents, Topology(virtual_machines=vms, scopes=scopes, hosts={}))
    learning = perf_counter() - began
    began = perf_counter()
    shown.put_up({SCOPE: Document(document_incarnation=1)})

    assert learning < 10, "ten times what it takes"
    assert perf_counter() - began < 1, "a document does not rebuild the indexes"
    found = shown.vm_at("10.1.134.159")
    assert found is not None
    assert found.name == "vm-99999"
