"""Tidying up, out of everybody's way."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from forewarn.domain.access import ConsoleSession
from forewarn.domain.event import Draft, Happening, Share, cancel, schedule
from forewarn.domain.names import ScopeId, VmName
from forewarn.operations.context import Context
from forewarn.ports.entries import AuditEntry, KeptAnswer, LedgerEntry, Membership
from forewarn.ports.store import LeaseLostError, Reading, Store, StoreUnavailableError, Transaction
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventSource, EventType, event_id
from forewarn.scheduler.upkeep import Upkeep
from forewarn.storage.sqlite import open_sqlite

NOW = datetime(2026, 3, 5, 8, tzinfo=UTC)
SCOPE = ScopeId("virtual-machine/solo")
TIMEOUT = 45


def context() -> Context:
    return Context(who="upkeep", now=NOW, at=NOW, new_id=lambda: event_id("X"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


def publish(store: Store, number: int) -> None:
    """Publish so many documents, one each second from 31 days ago on."""

    def work(tx: Transaction) -> None:
        for count in range(1, number + 1):
            published = NOW - timedelta(days=31) + timedelta(seconds=count)
            tx.put_document(SCOPE, Document(document_incarnation=count), at=published)

    store.write(work)


def test_upkeep_forgets_in_batches_and_keeps_what_can_be_asked_for(store: Store) -> None:
    publish(store, 450)

    Upkeep(store, context, epoch=0).tidy_up()

    def look(reading: Reading) -> tuple[object, ...]:
        return (
            reading.superseded_documents(NOW, limit=10),
            reading.document(SCOPE).document_incarnation,
            reading.document_at(SCOPE, NOW - timedelta(days=30)).document_incarnation,
            reading.setting("documents_forgotten_before"),
        )

    assert store.read(look) == ((), 450, 450, (NOW - timedelta(days=30)).isoformat())


def test_upkeep_forgets_where_machines_were_before_what_can_be_asked_for(store: Store) -> None:
    long_ago, recently = NOW - timedelta(days=40), NOW - timedelta(days=3)
    web = ScopeId("availability-set/web")
    moves = [
        Membership(vm=VmName("solo"), since=long_ago, scope_id=SCOPE),
        Membership(vm=VmName("solo"), since=long_ago + timedelta(days=1), scope_id=web),
        Membership(vm=VmName("solo"), since=recently, scope_id=SCOPE),
        Membership(vm=VmName("gone"), since=long_ago, scope_id=web),
        Membership(vm=VmName("gone"), since=long_ago + timedelta(days=1), scope_id=None),
    ]
    store.write(lambda tx: tx.put_memberships(moves))

    Upkeep(store, context, epoch=0).tidy_up()

    def look(reading: Reading) -> tuple[object, ...]:
        return (
            [membership.since for membership in reading.memberships("solo")],
            reading.memberships("gone"),
            reading.setting("documents_forgotten_before"),
        )

    kept = [long_ago + timedelta(days=1), recently]
    assert store.read(look) == (kept, (), (NOW - timedelta(days=30)).isoformat())


def test_upkeep_forgets_answers_after_a_day_of_real_time(store: Store) -> None:
    for key, age in (("old", timedelta(hours=24, seconds=1)), ("new", timedelta(hours=24))):
        answer = KeptAnswer(who="a", key=key, fingerprint="", answered_at=NOW - age, body="{}")
        store.write(lambda tx, answer=answer: tx.put_answer(answer))  # type: ignore[misc]

    Upkeep(store, context, epoch=0).tidy_up()

    assert store.read(lambda reading: reading.kept_answer("a", "old")) is None
    assert store.read(lambda reading: reading.kept_answer("a", "new")) is not None


def test_upkeep_forgets_browsers_that_nobody_has_used_for_an_hour(store: Store) -> None:
    recent, old = NOW - timedelta(hours=1), NOW - timedelta(hours=1, seconds=1)
    for name, used_at in (("recent", recent), ("old", old)):
        session = ConsoleSession(
            session_hash=name,
            token_hash="",
            name="ada",
            is_link=False,
            created_at=NOW - timedelta(days=1),
            used_at=used_at,
        )
        store.write(lambda tx, session=session: tx.put_session(session))  # type: ignore[misc]

    Upkeep(store, context, epoch=0).tidy_up()

    assert store.read(lambda reading: reading.session("recent")) is not None
    assert store.read(lambda reading: reading.session("old")) is None


def test_upkeep_of_a_leader_that_was_replaced_forgets_nothing(store: Store) -> None:
    publish(store, 3)
    epoch = store.write(lambda tx: tx.next_epoch())
    store.write(lambda tx: tx.next_epoch())

    with pytest.raises(LeaseLostError):
        Upkeep(store, context, epoch=epoch).tidy_up()

    assert len(store.read(lambda reading: reading.superseded_documents(NOW, limit=10))) == 2


def test_upkeep_goes_on_when_the_store_is_away_and_ends_when_told() -> None:
    asked = threading.Event()

    class Away:
        def read(self, look: Callable[[Reading], object]) -> object:
            asked.set()
            raise StoreUnavailableError(f"{look} cannot be read now.")

    upkeep = Upkeep(Away(), context, epoch=0)  # type: ignore[arg-type]
    thread = threading.Thread(target=upkeep.rounds.run)
    thread.start()
    assert asked.wait(TIMEOUT), "the store was never asked"
    upkeep.rounds.stop()
    thread.join(TIMEOUT)

    assert not thread.is_alive(), "upkeep did not end"


def test_upkeep_that_is_stopped_ends_after_a_batch(store: Store) -> None:
    publish(store, 402)
    upkeep = Upkeep(store, context, epoch=0)
    upkeep.rounds.stop()

    upkeep.tidy_up()

    left = store.read(lambda reading: reading.superseded_documents(NOW, limit=1000))
    assert len(left) == 201


class Shelf:
    """Records of which some can be removed, unless there is a *problem*."""

    name = "impacts"

    def __init__(self, problem: OSError | None = None) -> None:
        self.problem = problem
        self.asked: list[datetime] = []

    def remove_ended(self, before: datetime, *, pause: Callable[[], bool]) -> int:
        self.asked.append(before)
        if self.problem:
            raise self.problem
        return 0 if pause() else 3


def test_upkeep_has_records_removed_with_what_they_are_about(store: Store) -> None:
    broken, shelf = Shelf(OSError(5, "Input/output error")), Shelf()

    with capture_logs() as logs:
        Upkeep(store, context, epoch=0, archives=(broken, shelf)).tidy_up()

    assert shelf.asked == [NOW - timedelta(days=30)]
    assert [(line["event"], line.get("number"), line.get("error")) for line in logs] == [
        ("records_not_removed", None, "Input/output error"),
        ("history_forgotten", 3, None),
    ]


def record(tx: Transaction, number: int, at: datetime) -> None:
    """Write an event that ended at *at*, with two lines in the ledger and one in the audit."""
    draft = Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        share=Share(scope_id=SCOPE, update_domain=0, resources=(VmName("solo"),)),
    )
    scheduled = schedule(draft, event_id=event_id(f"{number:032x}"), now=at, notice=timedelta(0))
    tx.put_event(cancel(scheduled, now=at))
    for what in (Happening.SCHEDULED, Happening.CANCELED):
        tx.append_ledger(LedgerEntry(event_id=scheduled.event_id, at=at, what=what, who="ada"))
    tx.append_audit(AuditEntry(at=at, maintenance_time=at, who="ada", action="x", subject="x"))


def count(store: Store) -> tuple[int, int, list[str]]:
    """Return the numbers of events and lines of the ledger, and what was done to history."""

    def look(reading: Reading) -> tuple[int, int, list[str]]:
        history = [each for each in reading.audit() if each.action.startswith("history")]
        lines = [f"{each.action} {each.subject} {each.detail}" for each in history]
        return len(reading.events()), len(reading.ledger_after(0, limit=9999)), lines

    return store.read(look)


def test_upkeep_prunes_history_in_batches_and_says_so(store: Store) -> None:
    old = NOW - timedelta(days=90, hours=2)

    def work(tx: Transaction) -> None:
        for number in range(450):
            record(tx, number, old + timedelta(seconds=number))
        record(tx, 999, NOW - timedelta(days=90))

    store.write(work)
    Upkeep(store, context, epoch=0, retention=lambda: timedelta(days=90)).tidy_up()

    day = "2025-12-05 06:0"
    first, second, third = ("0:00", "3:19"), ("3:20", "6:39"), ("6:40", "7:29")
    assert count(store) == (
        1,
        2,
        [
            "history retention history from forever to 90d",
            *(
                f"history prune {kind} {day}{begin} GMT to {day}{end} GMT: {number}"
                for kind, number, (begin, end) in (
                    ("events", "400 ledger, 200 events", first),
                    ("events", "400 ledger, 200 events", second),
                    ("events", "100 ledger, 50 events", third),
                    ("audit", "200 audit", first),
                    ("audit", "200 audit", second),
                    ("audit", "50 audit", third),
                )
            ),
        ],
    )


def test_upkeep_prunes_no_history_unless_it_is_told_to(store: Store) -> None:
    store.write(lambda tx: record(tx, 1, NOW - timedelta(days=3660)))
    store.write(lambda tx: record(tx, 2, NOW))

    Upkeep(store, context, epoch=0).tidy_up()

    assert count(store) == (2, 4, [])


def test_leader_that_was_replaced_prunes_no_history(store: Store) -> None:
    store.write(lambda tx: record(tx, 1, NOW - timedelta(days=100)))
    store.write(lambda tx: record(tx, 2, NOW))
    epoch = store.write(lambda tx: tx.next_epoch())

    def replace_leader() -> timedelta:
        store.write(lambda tx: tx.next_epoch())
        return timedelta(days=90)

    with pytest.raises(LeaseLostError):
        Upkeep(store, context, epoch=epoch, retention=replace_leader).tidy_up()

    assert count(store) == (2, 4, [])
