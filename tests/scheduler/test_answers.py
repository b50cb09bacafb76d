"""The gates between two steps, asked by the loop on a real store."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.scheduler.conftest import FLEET

from forewarn.clocks import VirtualClock
from forewarn.domain.course import Course
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.standing import MaintenanceStatus
from forewarn.executors.simulated import Simulated
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    MaintenanceReport,
    pause_maintenance,
    report_maintenance,
    resume_maintenance,
    start_maintenance,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite

SOLOS = "".join(f'[[virtual_machine]]\nname = "solo-{number}"\n' for number in range(3))
ONE_GATE = Course(gates=("smoke",))
MINUTE = timedelta(minutes=1)
STEP = timedelta(minutes=20)
"""A quarter of an hour of notice, and five minutes of impact."""


class ScriptedGates:
    """Gates that say what they are told to; what was asked is kept."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.asked: list[Question] = []
        self.status = GateStatus.OPEN
        self.shut: set[str] = set()
        self.trouble = ""

    def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        if self.trouble:
            raise RuntimeError(self.trouble)
        again = self.clock.now() + MINUTE
        if question.gate in self.shut:
            return Answer(status=GateStatus.SHUT, output="no", ask_again_at=again)
        if self.status is GateStatus.OPEN:
            return Answer(status=self.status, ask_again_at=again)
        return Answer(status=self.status, output="no", ask_again_at=again)


class Rollout:
    """A Maintenance of two steps with gates between them."""

    def __init__(
        self,
        store: Store,
        *,
        has_gates: bool = True,
        course: Course = ONE_GATE,
        scopes: tuple[str, ...] = ("web",),
    ) -> None:
        self.store = store
        self.clock = VirtualClock(datetime(2026, 1, 5, 8, tzinfo=UTC))
        self.gates = ScriptedGates(self.clock)
        self._ids = (event_id(f"{i:032x}") for i in count(1))
        self.has_gates = has_gates
        self.scheduler = self.lead()
        store.write(lambda tx: apply_fleet(tx, self.context(), read_fleet_file(FLEET + SOLOS)))
        order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=scopes, course=course)
        self.maintenance_id = store.write(
            lambda tx: start_maintenance(tx, self.context(), order, gates=course.gates)
        ).maintenance_id

    def context(self) -> Context:
        now = self.clock.now()
        return Context(who="test", now=now, at=now, new_id=self._ids.__next__)

    def lead(self) -> Scheduler:
        return Scheduler(
            store=self.store,
            assigner=Simulated(),
            context=self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            gates=self.gates if self.has_gates else None,
        )

    def advance(self, duration: timedelta) -> None:
        self.scheduler.advance(duration, move_to=self.clock.move_to)

    def answers(self) -> Mapping[Question, Answer]:
        return self.store.read(lambda reading: reading.gate_answers())

    def report(self) -> MaintenanceReport:
        return self.store.read(
            lambda reading: report_maintenance(reading, self.context(), self.maintenance_id)
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


def test_gate_is_asked_once_before_the_second_step(store: Store) -> None:
    rollout = Rollout(store)

    rollout.advance(2 * STEP)

    (question,) = rollout.gates.asked
    assert (question.gate, question.steps_done) == ("smoke", 1)
    assert rollout.report().status is MaintenanceStatus.COMPLETED
    assert rollout.answers() == {}


def test_shut_gate_is_asked_every_minute_until_it_opens(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.SHUT

    rollout.advance(STEP + 10 * MINUTE)
    waiting = rollout.report()
    asked = len(rollout.gates.asked)
    rollout.gates.status = GateStatus.OPEN
    rollout.advance(MINUTE + STEP)

    assert waiting.status is MaintenanceStatus.WAITING
    assert waiting.stages[0].brakes[0].detail == "no"
    assert asked == 11
    assert rollout.report().status is MaintenanceStatus.COMPLETED


def test_gate_shut_for_longer_than_patience_holds_until_resumed(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.SHUT
    rollout.advance(STEP + timedelta(hours=2))
    held = rollout.report().status
    asked = len(rollout.gates.asked)
    rollout.gates.status = GateStatus.OPEN

    rollout.advance(timedelta(hours=1))
    still = rollout.report().status
    store.write(lambda tx: resume_maintenance(tx, rollout.context(), rollout.maintenance_id))
    rollout.advance(MINUTE + STEP)

    assert held is still is MaintenanceStatus.HELD
    assert asked == 60
    assert rollout.report().status is MaintenanceStatus.COMPLETED


def test_gate_that_is_thinking_is_asked_whenever_the_loop_is_woken(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.ASKING
    rollout.advance(STEP)
    rollout.gates.status = GateStatus.OPEN

    rollout.scheduler.settle()

    assert len(rollout.report().events) == 2


def test_answer_is_forgotten_when_the_question_does_not_matter(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.SHUT
    rollout.advance(STEP)
    assert len(rollout.answers()) == 1

    store.write(lambda tx: pause_maintenance(tx, rollout.context(), rollout.maintenance_id))
    rollout.scheduler.settle()

    assert rollout.answers() == {}


def test_gate_in_trouble_is_shut_and_says_why(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.trouble = "no route"

    rollout.advance(STEP + MINUTE)

    assert rollout.report().stages[0].brakes[0].detail == "no route"
    assert len(rollout.gates.asked) == 7


def test_gate_of_a_server_without_gates_stays_shut(store: Store) -> None:
    rollout = Rollout(store, has_gates=False)

    rollout.advance(STEP + timedelta(hours=2))

    assert rollout.report().status is MaintenanceStatus.HELD
    assert rollout.report().stages[0].brakes[0].detail == ("Unknown gate 'smoke' on this server.")


def test_new_leader_asks_again(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.SHUT
    rollout.advance(STEP + 2 * MINUTE)
    rollout.gates.status = GateStatus.OPEN

    rollout.scheduler = rollout.lead()
    rollout.scheduler.settle()

    assert len(rollout.report().events) == 2


def test_patience_goes_on_under_a_new_leader_which_asks_once_more(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.status = GateStatus.SHUT
    rollout.advance(STEP + 40 * MINUTE)
    before = rollout.report()
    asked = len(rollout.gates.asked)

    rollout.scheduler = rollout.lead()
    at_once = rollout.report()
    rollout.advance(21 * MINUTE)

    assert at_once == before
    assert len(rollout.gates.asked) > asked
    assert rollout.report().status is MaintenanceStatus.HELD


def test_open_gate_is_asked_again_before_the_one_behind_it(store: Store) -> None:
    rollout = Rollout(store, course=Course(gates=("smoke", "ticket")))
    rollout.gates.shut = {"ticket"}
    rollout.advance(STEP)
    rollout.gates.shut = {"smoke", "ticket"}
    rollout.advance(MINUTE)
    rollout.gates.shut = {"smoke"}

    rollout.advance(10 * MINUTE)
    waiting = rollout.report()
    rollout.gates.shut = set()
    rollout.advance(MINUTE)

    assert [brake.gate for brake in waiting.stages[0].brakes] == ["smoke"]
    assert len(waiting.events) == 1
    assert len(rollout.report().events) == 2
    assert [question.gate for question in rollout.gates.asked[-2:]] == ["smoke", "ticket"]


def test_second_gate_wears_out_patience_while_the_first_is_asked_again(store: Store) -> None:
    rollout = Rollout(store, course=Course(gates=("smoke", "ticket")))
    rollout.gates.shut = {"ticket"}

    rollout.advance(STEP + timedelta(hours=2))

    assert rollout.report().status is MaintenanceStatus.HELD
    assert [question.gate for question in rollout.gates.asked] == ["smoke", "ticket"] * 60


def test_patience_is_for_the_gate_and_not_for_each_scope(store: Store) -> None:
    course = Course(gates=("smoke",), at_once=1)
    rollout = Rollout(store, course=course, scopes=("solo-0", "solo-1", "solo-2", "web"))
    rollout.gates.shut = {"smoke"}

    rollout.advance(STEP + timedelta(hours=1))
    asked = len(rollout.gates.asked)

    assert rollout.report().status is MaintenanceStatus.HELD
    assert asked == 60 + 3, "each of the others is asked about once"


def test_patience_begins_anew_when_the_gate_was_open(store: Store) -> None:
    course = Course(gates=("smoke",), at_once=1)
    rollout = Rollout(store, course=course, scopes=("solo-0", "solo-1", "solo-2"))
    rollout.gates.shut = {"smoke"}
    rollout.advance(STEP + 50 * MINUTE)
    rollout.gates.shut = set()
    rollout.advance(MINUTE)
    rollout.gates.shut = {"smoke"}

    rollout.advance(STEP + 50 * MINUTE)

    assert rollout.report().status is MaintenanceStatus.WAITING


def test_each_changed_answer_is_logged_once(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.shut = {"smoke"}

    with capture_logs() as logs:
        rollout.advance(STEP + 10 * MINUTE)
        rollout.gates.shut = set()
        rollout.advance(MINUTE)

    lines = [line for line in logs if line["event"] == "gate_changed"]
    assert [(line["status"], line["output"]) for line in lines] == [("shut", "no"), ("open", "")]
    assert lines[0] == {
        "event": "gate_changed",
        "log_level": "info",
        "gate": "smoke",
        "maintenance_id": rollout.maintenance_id,
        "scope_ids": ["availability-set/web"],
        "status": "shut",
        "output": "no",
    }


def test_gate_that_is_being_asked_again_has_not_changed(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.shut = {"smoke"}

    with capture_logs() as logs:
        rollout.advance(STEP)
        rollout.gates.shut, rollout.gates.status = set(), GateStatus.ASKING
        rollout.advance(MINUTE)
        rollout.gates.shut = {"smoke"}
        rollout.advance(MINUTE)

    assert len(rollout.gates.asked) > 2
    assert [line["status"] for line in logs if line["event"] == "gate_changed"] == ["shut"]


def test_gate_that_is_shut_is_counted_until_it_opens(store: Store) -> None:
    rollout = Rollout(store)
    rollout.gates.shut = {"smoke"}

    rollout.advance(STEP)
    shut = rollout.scheduler.shut_gates
    rollout.gates.shut = set()
    rollout.advance(MINUTE)

    assert (shut, rollout.scheduler.shut_gates) == (1, 0)


def test_maintenances_are_counted_by_where_they_are(store: Store) -> None:
    rollout = Rollout(store, course=Course())
    before = rollout.scheduler.count_maintenances()

    rollout.advance(MINUTE)
    running = rollout.scheduler.count_maintenances()
    store.write(lambda tx: pause_maintenance(tx, rollout.context(), rollout.maintenance_id))
    rollout.advance(STEP)
    paused = rollout.scheduler.count_maintenances()
    store.write(lambda tx: resume_maintenance(tx, rollout.context(), rollout.maintenance_id))
    rollout.advance(2 * STEP)

    assert before == {}
    assert running == {MaintenanceStatus.RUNNING: 1}
    assert paused == {MaintenanceStatus.PAUSED: 1}
    assert rollout.scheduler.count_maintenances() == {}
    assert rollout.scheduler.performance.endings == {MaintenanceOutcome.SUCCEEDED: 1}
