"""Sources that answer, fail, hang and change, and a fleet on a real store that follows them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.waiting import wait_until

from forewarn.clocks import SystemClock
from forewarn.discovery.explorer import Explorer
from forewarn.discovery.sources import KnownSource, MachineSource, SourceError
from forewarn.files.fleet import read_fleet, standalone_vms
from forewarn.operations.context import Context
from forewarn.operations.discovery import SourceStatus, find_sources
from forewarn.operations.reconciling import Census, Terms
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.sqlite import open_sqlite

NUMBERS = count(1)


@dataclass
class ScriptedSource:
    """A source that says what a test has it say."""

    say: Callable[[], Census]
    times: int = 0

    def count(self, stopping: threading.Event) -> Census:
        del stopping
        self.times += 1
        return self.say()


@dataclass
class HangingSource:
    """A source that answers nothing until it is told to stop."""

    is_asked: threading.Event = field(default_factory=threading.Event)
    has_stopped: threading.Event = field(default_factory=threading.Event)

    def count(self, stopping: threading.Event) -> Census:
        self.is_asked.set()
        wait_until(stopping.is_set, "the end")
        self.has_stopped.set()
        return fail()


def saying(*names: str) -> Callable[[], Census]:
    return lambda: Census(fleet=read_fleet(standalone_vms(*names)))


def known(name: str, source: MachineSource, **terms: int) -> KnownSource:
    return KnownSource(
        name=name,
        kind="run",
        source=source,
        every=timedelta(milliseconds=20),
        terms=Terms(source=name, **terms),
    )


@dataclass
class Expedition:
    """An explorer at work."""

    store: Store
    sources: tuple[KnownSource, ...] = ()
    changes: list[str] = field(default_factory=list)
    thread: threading.Thread | None = None

    @property
    def is_at_work(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    @contextmanager
    def under_way(self) -> Iterator[Explorer]:
        explorer = Explorer(
            lambda: self.sources,
            store=self.store,
            context=_context,
            wall=SystemClock(),
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            changed=lambda: self.changes.append("changed"),
        )
        self.thread = threading.Thread(target=explorer.run)
        self.thread.start()
        try:
            yield explorer
        finally:
            explorer.stop()
            self.thread.join(60)
            assert not self.is_at_work

    @property
    def fleet(self) -> set[str]:
        return set(self.store.read(lambda reading: reading.topology()).virtual_machines)

    def status(self, name: str) -> SourceStatus | None:
        found = self.store.read(find_sources)
        return next((each for each in found if each.name == name), None)

    def problem(self, name: str) -> str:
        status = self.status(name)
        return status.problem if status else ""


def _context(who: str) -> Context:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    return Context(who=who, now=now, at=now, new_id=lambda: event_id(f"{next(NUMBERS):032x}"))


@pytest.fixture
def expedition(tmp_path: Path) -> Iterator[Expedition]:
    store = open_sqlite(tmp_path / "forewarn.db")
    yield Expedition(store)
    store.close()


def fail() -> Census:
    raise SourceError("kvm-1 is away.")


def test_fleet_follows_a_source(expedition: Expedition) -> None:
    source = ScriptedSource(saying("a", "b"))
    expedition.sources = (known("kvm", source, remove_after=2, most_missing=50),)

    with expedition.under_way():
        wait_until(lambda: expedition.fleet == {"a", "b"}, "the machines")
        source.say = saying("b")
        wait_until(lambda: expedition.fleet == {"b"}, "a machine that goes")
        wait_until(lambda: (found := expedition.status("kvm")) and found.machines == 1, "it counts")

    assert expedition.changes == ["changed", "changed"]


def test_source_that_fails_changes_nothing_and_says_so(expedition: Expedition) -> None:
    source = ScriptedSource(saying("a"))
    expedition.sources = (known("kvm", source, remove_after=1),)

    with expedition.under_way():
        wait_until(lambda: expedition.fleet == {"a"}, "the machine")
        source.say = fail
        wait_until(lambda: expedition.problem("kvm") == "kvm-1 is away.", "the problem")
        failed = expedition.status("kvm")
        source.say = saying()
        wait_until(lambda: "reports no" in expedition.problem("kvm"), "the doubt")
        doubted = expedition.status("kvm")
        source.say = saying("a")
        wait_until(lambda: not expedition.problem("kvm"), "the recovery")

    assert expedition.fleet == {"a"}
    assert failed
    assert doubted
    assert failed.since == doubted.since, "it has not worked since then"
    assert (failed.machines, doubted.machines) == (1, 1)


def test_source_that_breaks_in_a_way_nobody_thought_of_is_asked_again(
    expedition: Expedition,
) -> None:
    def break_down() -> Census:
        raise ZeroDivisionError

    source = ScriptedSource(break_down)
    expedition.sources = (known("kvm", source),)

    with expedition.under_way():
        wait_until(lambda: "server log" in expedition.problem("kvm"), "the problem")
        source.say = saying("a")
        wait_until(lambda: expedition.fleet == {"a"}, "the machine")


def test_answer_that_breaks_the_server_in_a_way_nobody_thought_of_holds_up_no_other(
    expedition: Expedition,
) -> None:
    half = read_fleet({"virtual_machine": [{"name": "a", "labels": {"tier": "\ud800"}}]})
    breaking, working = ScriptedSource(lambda: Census(fleet=half)), ScriptedSource(saying("b"))
    expedition.sources = (known("breaking", breaking), known("working", working))

    with expedition.under_way():
        wait_until(lambda: "server log" in expedition.problem("breaking"), "the problem")
        wait_until(lambda: expedition.fleet == {"b"}, "the machine of the other")
        asked = breaking.times
        wait_until(lambda: breaking.times > asked, "another question")


def test_answer_that_the_fleet_cannot_take_is_a_problem(expedition: Expedition) -> None:
    wrong = read_fleet({"virtual_machine": [{"name": "a", "host": "kvm 1"}]})
    expedition.sources = (known("kvm", ScriptedSource(lambda: Census(fleet=wrong))),)

    with expedition.under_way():
        wait_until(lambda: "kvm 1" in expedition.problem("kvm"), "the problem")

    assert not expedition.fleet


def test_source_that_hangs_holds_up_no_other_and_no_stop(expedition: Expedition) -> None:
    let_go = threading.Event()

    def hang() -> Census:
        let_go.wait(60)
        return fail()

    hanging, working = ScriptedSource(hang), ScriptedSource(saying("a"))
    expedition.sources = (known("hanging", hanging), known("working", working))

    with expedition.under_way():
        wait_until(lambda: working.times > 3, "rounds of the other")
    let_go.set()

    assert hanging.times == 1
    assert expedition.fleet == {"a"}


def test_sources_of_a_file_that_is_read_again_are_others(expedition: Expedition) -> None:
    expedition.sources = (known("old", ScriptedSource(saying("a"))),)

    with expedition.under_way() as explorer:
        wait_until(lambda: expedition.status("old"), "the first")
        expedition.sources = (known("new", ScriptedSource(saying("b"))),)
        explorer.wake()
        wait_until(lambda: expedition.status("new"), "the second")

    assert expedition.status("old") is None
    assert expedition.fleet == {"a", "b"}, "what a source has brought stays without it"


def test_source_that_is_no_longer_in_the_file_is_told_to_stop(expedition: Expedition) -> None:
    """Otherwise each SIGHUP would leave another program behind that hangs."""
    hanging = HangingSource()
    expedition.sources = (known("old", hanging),)

    with expedition.under_way() as explorer:
        wait_until(hanging.is_asked.is_set, "the question")
        expedition.sources = ()
        explorer.wake()
        wait_until(hanging.has_stopped.is_set, "the end of the question")


def test_source_that_is_asked_is_told_that_the_server_stops(expedition: Expedition) -> None:
    hanging = HangingSource()
    expedition.sources = (known("old", hanging),)

    with expedition.under_way():
        wait_until(hanging.is_asked.is_set, "the question")

    wait_until(hanging.has_stopped.is_set, "the end of the question")


def test_statuses_survive_a_change_of_the_leader(expedition: Expedition) -> None:
    expedition.sources = (known("kvm", ScriptedSource(fail)),)
    with expedition.under_way():
        wait_until(lambda: expedition.problem("kvm"), "the problem")
    before = expedition.status("kvm")

    source = ScriptedSource(fail)
    expedition.sources = (known("kvm", source),)
    with expedition.under_way():
        wait_until(lambda: source.times > 1, "questions of the next leader")

    assert expedition.status("kvm") == before


def test_nothing_is_written_under_a_lease_that_is_lost(expedition: Expedition) -> None:
    source = ScriptedSource(saying("a"))
    expedition.sources = (known("kvm", source),)

    with expedition.under_way():
        wait_until(lambda: expedition.fleet == {"a"}, "the machine")
        expedition.store.write(lambda tx: tx.next_epoch())
        source.say = saying("a", "b")
        wait_until(lambda: not expedition.is_at_work, "the end of the explorer")

    assert expedition.fleet == {"a"}


def test_partial_answer_is_a_problem_that_hinders_no_arrivals(expedition: Expedition) -> None:
    source = ScriptedSource(lambda: replace(saying("a")(), trouble="kvm-2 is away."))
    expedition.sources = (known("kvm", source),)

    with expedition.under_way():
        wait_until(lambda: expedition.problem("kvm") == "kvm-2 is away.", "the problem")

    assert expedition.fleet == {"a"}


def test_address_that_is_left_out_is_shown_and_logged_once(expedition: Expedition) -> None:
    wrong = {"name": "a", "addresses": ["127.0.0.1", "10.0.0.1"]}
    fleet = read_fleet({"virtual_machine": [wrong, {"name": "b"}]})
    source = ScriptedSource(lambda: Census(fleet=fleet))
    expedition.sources = (known("kvm", source),)

    with capture_logs() as logged, expedition.under_way():
        wait_until(lambda: source.times > 3, "several answers")

    status = expedition.status("kvm")
    assert status
    (remark,) = status.remarks
    assert remark.startswith("a: address 127.0.0.1 is left out: it is loopback")
    assert [each["remark"] for each in logged if each["event"] == "discovery_remark"] == [remark]
    assert expedition.fleet == {"a", "b"}
