"""The journal in memory: bounded for each virtual machine, in the order in which requests came."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from forewarn.clocks import VirtualClock
from forewarn.domain.names import VmName
from forewarn.emulator.journal import KEPT, MemoryJournal

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MAY = datetime(2030, 5, 1, tzinfo=UTC)
WEB, SOLO = VmName("web-0"), VmName("solo")


def make_journal() -> tuple[MemoryJournal, VirtualClock]:
    wall = VirtualClock(NOON)
    return MemoryJournal(VirtualClock(MAY), wall), wall


def test_entry_has_both_times_and_how_long_it_took() -> None:
    journal, wall = make_journal()

    begun = journal.begin(WEB, "GET", "/")
    wall.move_to(NOON + timedelta(seconds=2.5))
    journal.end(replace(begun, status=200))

    (entry,) = journal.requests_of(WEB)
    assert (entry.at, entry.maintenance_time, entry.seconds) == (NOON, MAY, 2.5)
    assert entry.status == 200


def test_order_is_that_of_coming_not_of_ending() -> None:
    journal, _ = make_journal()

    slow, other, fast = (journal.begin(vm, "GET", "/") for vm in (WEB, SOLO, WEB))
    for entry in (fast, other, slow):
        journal.end(replace(entry, status=200))

    assert [entry.sequence for entry in journal.requests()] == [1, 2, 3]
    assert [entry.sequence for entry in journal.requests_of(WEB)] == [1, 3]


def test_oldest_requests_are_forgotten_machine_by_machine() -> None:
    journal, _ = make_journal()
    forgotten = journal.begin(WEB, "GET", "/first")
    journal.begin(SOLO, "GET", "/solo")

    for _ in range(KEPT):
        journal.begin(WEB, "GET", "/later")
    journal.end(replace(forgotten, status=200))

    assert len(journal.requests_of(WEB)) == KEPT
    assert {entry.path for entry in journal.requests_of(WEB)} == {"/later"}
    assert [entry.path for entry in journal.requests_of(SOLO)] == ["/solo"]


def test_caller_who_becomes_known_meanwhile_is_known_from_then_on() -> None:
    journal, _ = make_journal()
    stranger, lost = (journal.begin(None, "GET", path) for path in ("/vm/web-0/", "/vm/web-9/"))
    journal.begin(WEB, "GET", "/later")

    journal.end(replace(stranger, vm=WEB))
    journal.end(lost)

    assert [entry.path for entry in journal.requests_of(WEB)] == ["/vm/web-0/", "/later"]
    assert [entry.path for entry in journal.requests_of(None)] == ["/vm/web-9/"]


def test_nobody_has_asked_at_first() -> None:
    journal, _ = make_journal()

    assert journal.requests() == journal.requests_of(WEB) == journal.requests_of(None) == ()
