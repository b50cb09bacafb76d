"""What operators use, on a real store and with clocks that are moved by hand."""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.replicas import ITSELF

from forewarn.clocks import SystemClock
from forewarn.desk.caller import Authenticator
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.desk.services import ClockError, Services
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.emulator.faults import MemoryFaults
from forewarn.emulator.journal import MemoryJournal
from forewarn.gates.asked_gates import AskedGates
from forewarn.operations.context import Context
from forewarn.outbound.client import Outbound
from forewarn.ports.changes import StoreChange
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.lock import SoleReplica
from forewarn.storage.sqlite import open_sqlite

MORNING = datetime(2026, 1, 5, 8, tzinfo=UTC)
TOKEN = "open-sesame"  # noqa: S105
FLEET = {
    "availability_set": [{"name": "web", "update_domains": 3, "postpone_until": "1h"}],
    "virtual_machine": [
        {"name": "web-0", "availability_set": "web", "host": "kvm-0", "addresses": ["10.0.0.10"]},
        {"name": "web-1", "availability_set": "web", "host": "kvm-1"},
        {"name": "solo"},
    ],
}


Tables: TypeAlias = dict[str, list[tuple[object, ...]]]


class HandClock:
    """Maintenance time, moved by hand; real if told to be."""

    def __init__(self) -> None:
        self.kind = "virtual"
        self._now = MORNING

    def now(self) -> datetime:
        return self._now

    def advance(self, duration: timedelta) -> datetime:
        if self.kind == "real":
            raise ClockError
        self._now += duration
        return self._now


class Wall:
    """Real time, moved by hand."""

    def __init__(self) -> None:
        self.now = MORNING


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database nothing is in yet; copying it is cheaper than making it for each test."""
    path = tmp_path_factory.mktemp("new") / "forewarn.db"
    open_sqlite(path).close()
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, new_database: bytes) -> Iterator[Store]:
    (tmp_path / "forewarn.db").write_bytes(new_database)
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def wakeups(store: Store) -> list[str]:
    """What the scheduler was told: one entry for each time."""
    heard: list[str] = []

    def note(change: StoreChange) -> None:
        if change.has_work:
            heard.append("changed")

    store.listen(note)
    return heard


@pytest.fixture
def ledger_watch(store: Store) -> LedgerWatch:
    """What watchers are told, with a heart-beat that tests can wait for."""
    made = LedgerWatch(store, heart_beat=0.2)
    store.listen(made.note)
    return made


@pytest.fixture
def tables(store: Store, tmp_path: Path) -> Callable[[], Tables]:
    """Return every row of every table but the audit."""
    del store

    def look() -> Tables:
        connection = sqlite3.connect(tmp_path / "forewarn.db")
        found = {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name != 'audit'"
            )
        }
        assert {"events", "tokens", "ledger"} <= found.keys()
        connection.close()
        return found

    return look


@pytest.fixture
def services(
    store: Store,
    clock: HandClock,
    wall: Wall,
    wakeups: list[str],
    ledger_watch: LedgerWatch,
) -> Services:
    return make_services(store, clock, wall, wakeups=wakeups, ledger_watch=ledger_watch)


def make_services(
    store: Store,
    clock: HandClock,
    wall: Wall,
    *,
    wakeups: list[str],
    ledger_watch: LedgerWatch,
) -> Services:
    """Return what operators use on *store*, with the ids of its own beginning at one."""
    numbers = count(1)

    def context(who: str) -> Context:
        return Context(
            who=who,
            now=clock.now(),
            at=wall.now,
            new_id=lambda: event_id(f"00000000-0000-4000-8000-{next(numbers):012x}"),
        )

    authenticator = Authenticator(
        store=store, now=lambda: wall.now, admin="alice", admin_secret=lambda: TOKEN
    )
    return Services(
        store=store,
        context=context,
        clock=clock,
        faults=MemoryFaults(
            document_of=lambda _: FIRST_DOCUMENT, clock=clock, changed=lambda: None
        ),
        authenticate=authenticator.authenticate,
        recognise=authenticator.recognise,
        is_ready=lambda: not wakeups or wakeups[-1] != "not ready",
        settle=lambda: None,
        finish_turn=lambda: None,
        replicas=SoleReplica(store, ITSELF, now=lambda: wall.now),
        database="forewarn.db",
        ledger_watch=ledger_watch,
        scenarios=built_in_scenarios(),
        gates=AskedGates(
            {}, outbound=Outbound(), clock=clock, wall=SystemClock(), woken=lambda: None
        ),
        metrics=lambda: b"forewarn_events_overdue 0\n",
        journal=MemoryJournal(clock, SystemClock()).requests,
    )
