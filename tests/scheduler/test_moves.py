"""The fleet follows the impact: a virtual machine is where its executor says it is now."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.scheduler.moving import Moves, ended

from forewarn.domain.event import Outcome
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.names import ScopeId, VmName
from forewarn.operations.context import Rules
from forewarn.operations.events import complete_event
from forewarn.operations.explain import explain_event
from forewarn.operations.hosts import close_host
from forewarn.operations.pausing import pause_server
from forewarn.ports.changes import StoreChange
from forewarn.protocol.vocabulary import EventStatus
from forewarn.storage.sqlite import open_sqlite

WEB = ScopeId("availability-set/web")


@pytest.fixture
def moves(tmp_path: Path) -> Iterator[Moves]:
    store = open_sqlite(tmp_path / "forewarn.db")
    yield Moves(store)
    store.close()


def incarnation(moves: Moves) -> int:
    return moves.store.read(lambda reading: reading.document(WEB)).document_incarnation


def test_machine_is_on_its_new_host_in_the_commit_that_completes_its_event(moves: Moves) -> None:
    event = moves.begin("web-0")
    seen: list[tuple[str | None, EventStatus]] = []

    def look(_: StoreChange) -> None:
        seen.append((moves.hosts()["web-0"], moves.event(event).event_status))

    moves.store.listen(look)
    moves.say(event, "web-0", ended("kvm-3"))

    assert set(seen) <= {("kvm-1", EventStatus.STARTED), ("kvm-3", EventStatus.COMPLETED)}
    assert seen[-1] == ("kvm-3", EventStatus.COMPLETED)


def test_move_is_in_the_ledger_and_in_the_audit(moves: Moves) -> None:
    event = moves.begin("web-0")

    moves.say(event, "web-0", ended("kvm-3"))

    move = "web-0 moved from kvm-1 to kvm-3"
    assert moves.ledger(event) == [("started", ""), ("moved", move), ("completed", "")]
    (entry, *_) = moves.store.read(lambda reading: reading.audit(limit=1))
    assert (entry.who, entry.action, entry.subject) == ("scheduler", "vm move", "web-0")
    assert entry.detail == f"{move}, as reported by the executor of {event.event_id}"


def test_explanation_of_an_event_says_who_moved_where(moves: Moves) -> None:
    event = moves.begin("web-0")
    moves.say(event, "web-0", ended("kvm-3"))

    found = moves.store.read(
        lambda reading: explain_event(reading, moves.context(), event.event_id)
    )

    sentence = (
        "The executor reported at 2026-01-05 08:00:01 GMT that web-0 moved from kvm-1 to kvm-3."
    )
    assert sentence in [reason.sentence for reason in found.reasons]


def test_move_alters_no_document_but_is_told_to_relays(moves: Moves) -> None:
    event = moves.begin("web-0", "web-1")
    before, changes = incarnation(moves), list[StoreChange]()
    moves.store.listen(changes.append)

    moves.say(event, "web-0", ended("kvm-3"))
    assert (incarnation(moves), moves.hosts()["web-0"]) == (before, "kvm-3")
    assert any(change.topology_version for change in changes)

    moves.say(event, "web-1", ended("kvm-3"))
    assert incarnation(moves) == before + 1


@pytest.mark.parametrize(("said", "host"), [("KVM-3", "kvm-3"), ("new-host", "new-host")])
def test_host_is_found_in_any_case_and_made_if_nobody_knows_it(
    moves: Moves, said: str, host: str
) -> None:
    moves.say(moves.begin("web-0"), "web-0", ended(said))

    assert moves.hosts()["web-0"] == host
    assert host in moves.store.read(lambda reading: reading.topology().hosts)


def test_closed_host_does_not_refuse_what_has_happened(moves: Moves) -> None:
    moves.store.write(lambda tx: close_host(tx, moves.context(), "kvm-3", reason="new kernel"))

    moves.say(moves.begin("web-0"), "web-0", ended("kvm-3"))

    assert moves.hosts()["web-0"] == "kvm-3"


def test_each_machine_of_an_event_is_where_it_is(moves: Moves) -> None:
    event = moves.begin("web-0", "web-1")

    moves.say(event, "web-1", ended())
    moves.say(event, "web-0", ended("kvm-2"))

    assert moves.hosts() == {"web-0": "kvm-2", "web-1": "kvm-1", "db": "kvm-2"}
    assert moves.event(event).outcome is Outcome.SUCCEEDED


def test_machines_that_move_at_the_same_moment_are_all_followed(
    moves: Moves, tmp_path: Path
) -> None:
    event = moves.begin("web-0", "web-1")
    moves.outside.says[event.event_id, "web-0"] = ended("new")

    moves.say(event, "web-1", ended("NEW"))

    expected = {"web-0": "new", "web-1": "new", "db": "kvm-2"}
    assert moves.hosts() == expected
    assert [what for what, _ in moves.ledger(event)] == ["started", "moved", "moved", "completed"]
    moves.store.close()
    with closing(open_sqlite(tmp_path / "forewarn.db")) as another:
        vms = another.read(lambda reading: reading.topology().virtual_machines)
    assert {name: vm.host for name, vm in vms.items()} == expected, "as it is written"


def test_machine_that_is_where_it_was_has_not_moved(moves: Moves) -> None:
    event = moves.begin("web-0")

    moves.say(event, "web-0", ended("kvm-1"))

    assert moves.ledger(event) == [("started", ""), ("completed", "")]


def test_machine_whose_impact_failed_after_its_move_is_on_its_new_host(moves: Moves) -> None:
    event = moves.begin("web-0")

    moves.say(event, "web-0", ended("kvm-2", ImpactStatus.FAILED))

    assert moves.hosts()["web-0"] == "kvm-2"
    assert moves.event(event).outcome is Outcome.FAILED


def test_nothing_moves_when_an_operator_has_completed_the_event(moves: Moves) -> None:
    event = moves.begin("web-0")
    moves.store.write(lambda tx: complete_event(tx, moves.context(), event.event_id))

    moves.say(event, "web-0", ended("kvm-2"))

    assert moves.hosts()["web-0"] == "kvm-1"


def test_move_that_a_dead_leader_has_not_recorded_is_recorded_by_the_next(moves: Moves) -> None:
    event = moves.begin("web-0")
    moves.outside.says[event.event_id, "web-0"] = ended("kvm-2")

    moves.outside.workers.attend(moves.clock.now())

    assert moves.hosts()["web-0"] == "kvm-1"
    moves.lead().settle()
    assert moves.hosts()["web-0"] == "kvm-2"
    assert moves.event(event).event_status is EventStatus.COMPLETED


def test_event_that_lasts_longer_does_not_take_back_a_later_move(moves: Moves) -> None:
    long, short = moves.begin("web-0", "web-1"), moves.begin("web-0")
    moves.say(long, "web-0", ended("kvm-2"))
    moves.say(short, "web-0", ended("kvm-3"))
    assert moves.hosts()["web-0"] == "kvm-3"

    moves.lead().settle()
    moves.say(long, "web-1", ended())

    assert moves.hosts()["web-0"] == "kvm-3"
    assert moves.event(long).event_status is EventStatus.COMPLETED
    assert set(moves.outside.begun.values()) == {1}


def test_move_is_followed_while_the_server_is_paused(moves: Moves) -> None:
    event = moves.begin("web-0")
    moves.store.write(lambda tx: pause_server(tx, moves.context(), "careful"))

    moves.say(event, "web-0", ended("kvm-2"))

    assert moves.hosts()["web-0"] == "kvm-2"
    assert moves.event(event).event_status is EventStatus.COMPLETED


def test_machine_joins_the_maintenance_of_the_host_it_comes_to(moves: Moves) -> None:
    event = moves.begin("web-0")
    moves.maintain("kvm-2")

    moves.say(event, "web-0", ended("kvm-2"))

    (joined,) = moves.in_flight("web-0")
    assert (joined.event_status, joined.host) == (EventStatus.SCHEDULED, "kvm-2")
    assert joined.not_before > moves.in_flight("db")[0].not_before
    assert moves.ledger(joined) == [("scheduled", "came to kvm-2")]


def test_machine_that_comes_to_a_host_whose_maintenance_has_started_is_told_at_once(
    moves: Moves,
) -> None:
    moves.maintain("kvm-2")
    moves.advance(minutes=16)
    event = moves.begin("web-0")

    moves.say(event, "web-0", ended("kvm-2"))

    (joined,) = moves.in_flight("web-0")
    assert (joined.event_status, joined.host) == (EventStatus.STARTED, "kvm-2")
    assert moves.outside.begun[joined.event_id, "web-0"] == 1


def test_machine_is_away_while_its_host_is_worked_on_and_comes_back(moves: Moves) -> None:
    moves.rules = Rules(host_works=(HostWorkRule(has_return=True),))
    moves.maintain("kvm-2")
    moves.advance(minutes=16)
    (event,) = moves.in_flight("db")

    moves.say(event, "db", ended("kvm-3"))
    away = (moves.hosts()["db"], moves.event(event).event_status)
    moves.outside.returns[VmName("db")] = ended("kvm-2")
    moves.lead()
    moves.advance(seconds=2)

    assert away == ("kvm-3", EventStatus.STARTED)
    assert moves.hosts()["db"] == "kvm-2"
    impacts = {key for key in moves.outside.begun if key[1] == "db"}
    assert impacts == {(event.event_id, "db")}, "it is told once"
    (only,) = moves.store.read(lambda reading: reading.events(vm=VmName("db")))
    assert only == moves.event(event)
    assert [what for what, _ in moves.ledger(event)] == [
        *("scheduled", "started", "moved", "moved", "completed")
    ]
