"""The loop on a real store, with the simulated executor and a clock that is moved by hand."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.scheduler.conftest import FLEET
from tests.tasks import DONE, RUNNING, Assigner, Workers

from forewarn.bootstrap.supervision import Supervisor
from forewarn.clocks import VirtualClock
from forewarn.domain.decisions import next_deadline
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import VmName
from forewarn.domain.notification import Target
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.task import MANUAL, Task, TaskState
from forewarn.emulator.faults import MemoryFaults
from forewarn.executors.simulated import Manual, Simulated
from forewarn.files.fleet import read_fleet_file
from forewarn.files.scenario import read_scenario
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, complete_event, create_events, start_event
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.operations.maintenances import (
    report_maintenances,
    start_maintenance,
)
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.scenarios import ScenarioReport, report_scenario_run, start_scenario
from forewarn.operations.snapshots import look
from forewarn.ports.faults import FaultControl
from forewarn.ports.runner import Assigner as AnyAssigner
from forewarn.ports.store import LeaseLostError, Store
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.scheduler.tick import Turn, decide_and_record
from forewarn.storage.sqlite import open_sqlite

TIMEOUT = 45
NEVER = datetime(2027, 1, 1, tzinfo=UTC)
LATE = read_scenario("""
name = "late"
[[step]]
at = "1m"
announce = "Freeze"
notice = "10m"
impact = "3m"
[[step]]
at = "2m"
approve = true
[[step]]
at = "3m"
cancel = true
""")

FAULTY = read_scenario("""
name = "faulty"
[[step]]
at = "0s"
fault = "publish-delay"
seconds = 300
[[step]]
at = "0s"
fault = "reset"
times = 2
[[step]]
at = "1m"
clear = "reset"
[[step]]
at = "2m"
clear = true
""")


class World:
    """A server without its network."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(datetime(2026, 1, 5, 8, tzinfo=UTC))
        self.rules = Rules()
        self.failures: dict[str, str] = {}
        self._ids = (event_id(f"{i:032x}") for i in count(1))
        self.simulated = Simulated(failure_of_impact=lambda _, vm: self.failures.get(vm, ""))

    def context(self) -> Context:
        now = self.clock.now()
        new_id = self._ids.__next__
        return Context(who="test", now=now, at=now, new_id=new_id, rules=self.rules)

    def lead(
        self,
        assigner: AnyAssigner | None = None,
        context: Callable[[], Context] | None = None,
        faults: FaultControl | None = None,
    ) -> Scheduler:
        return Scheduler(
            store=self.store,
            assigner=assigner or self.simulated,
            context=context or self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            faults=faults,
        )

    def advance(self, scheduler: Scheduler, **duration: float) -> None:
        scheduler.advance(timedelta(**duration), move_to=self.clock.move_to)

    def create(self, *names: str, started: bool = False) -> ScheduledEvent:
        order = EventOrder(event_type=EventType.REBOOT, resources=names, started=started)
        return self.store.write(lambda tx: create_events(tx, self.context(), order))[0]

    def run(self, *names: str) -> Callable[[], ScenarioReport]:
        """Begin the scenario, and return what reports where it is."""
        run = self.store.write(lambda tx: start_scenario(tx, self.context(), LATE, names))
        return lambda: self.store.read(lambda reading: report_scenario_run(reading, run.run_id))

    def tasks(self, event: ScheduledEvent) -> tuple[Task, ...]:
        return self.store.read(lambda reading: reading.tasks_of(event.event_id))

    def event(self, event: ScheduledEvent) -> ScheduledEvent:
        found = self.store.read(lambda reading: reading.event(event.event_id))
        assert found
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = open_sqlite(tmp_path / "forewarn.db", busy_timeout=0.2)
    made = World(store)
    store.write(lambda tx: apply_fleet(tx, made.context(), read_fleet_file(FLEET)))
    yield made
    store.close()


def test_event_that_takes_too_long_is_overdue_once(world: World) -> None:
    world.rules = Rules(overdue_after=timedelta(hours=1), targets=(Target(name="ops"),))
    scheduler = world.lead(Manual())
    event = world.create("web-0")

    world.advance(scheduler, minutes=74)
    assert world.event(event).overdue_at is None
    world.advance(scheduler, hours=5)

    assert world.event(event).overdue_at == event.not_before + timedelta(hours=1)
    entries = world.store.read(lambda reading: reading.ledger(event.event_id))
    assert [entry.what for entry in entries] == ["scheduled", "started", "overdue"]
    messages = world.store.read(lambda reading: reading.notifications())
    assert [message.phase for message in messages] == ["scheduled", "started", "overdue"]


def test_event_starts_at_not_before_and_ends_when_its_impact_does(world: World) -> None:
    scheduler = world.lead()
    created = world.create("web-0")

    world.advance(scheduler, minutes=20)
    started = world.event(created)
    world.advance(scheduler, minutes=5)
    ended = world.event(created)

    assert (started.event_status, started.started_at) == (EventStatus.STARTED, created.not_before)
    assert ended.outcome is Outcome.SUCCEEDED
    assert ended.ended_at == created.not_before + timedelta(minutes=10)


def test_what_is_written_while_time_advances_starts_at_not_before(world: World) -> None:
    scheduler, created = world.lead(), []

    with ThreadPoolExecutor(max_workers=1) as pool:
        for _ in range(30):
            advancing = pool.submit(world.advance, scheduler, hours=1)
            created.append(world.create("web-0"))
            advancing.result(TIMEOUT)
            world.advance(scheduler, hours=1)

    late = [e for e in map(world.event, created) if e.started_at != e.not_before]
    assert late == []


def test_ledger_says_how_late_an_event_starts_that_waited_for_another(world: World) -> None:
    events = [world.create("web-0"), world.create("web-0")]

    world.advance(world.lead(), hours=1)

    ledgers = world.store.read(lambda reading: [reading.ledger(e.event_id) for e in events])
    assert [ledger[1].detail for ledger in ledgers] == ["NotBefore reached", "10m after NotBefore"]


def test_failure_of_an_impact_is_the_outcome_of_its_event(world: World) -> None:
    world.failures["web-0"] = "no power"
    created = world.create("web-0")

    world.advance(world.lead(), hours=1)

    ended = world.event(created)
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "web-0: no power")


def test_new_leader_goes_on_where_the_old_one_was(world: World) -> None:
    created = world.create("web-0")
    world.advance(world.lead(), minutes=16)

    world.advance(world.lead(), hours=1)

    ended = world.event(created)
    entries = world.store.read(lambda reading: reading.ledger(created.event_id))
    assert ended.ended_at == created.not_before + timedelta(minutes=10)
    assert [entry.what for entry in entries] == ["scheduled", "started", "completed"]


def test_old_leader_can_write_no_more(world: World) -> None:
    old = world.lead()
    world.create("web-0")
    world.lead()

    with pytest.raises(LeaseLostError):
        world.advance(old, hours=1)


def test_manual_impact_lasts_until_an_operator_says_so(world: World) -> None:
    scheduler = world.lead(Manual())
    created = world.create("web-0")
    world.advance(scheduler, days=2)

    waiting = world.event(created)
    world.store.write(lambda tx: complete_event(tx, world.context(), created.event_id))
    scheduler.settle()

    assert waiting.event_status is EventStatus.STARTED
    assert world.event(created).event_status is EventStatus.COMPLETED


def test_impact_by_hand_stays_so_when_there_is_an_executor_for_it(world: World) -> None:
    created = world.create("web-0", started=True)
    world.lead(Manual()).settle()

    world.advance(world.lead(world.simulated), hours=1)

    assert world.event(created).event_status is EventStatus.STARTED
    (task,) = world.tasks(created)
    assert (task.runner, task.state) == (MANUAL, TaskState.BEGUN)


def test_report_after_an_operator_completed_is_ignored(world: World) -> None:
    scheduler = world.lead()
    created = world.create("web-0")
    world.advance(scheduler, minutes=16)
    world.store.write(lambda tx: complete_event(tx, world.context(), created.event_id))

    world.advance(scheduler, hours=1)

    assert world.event(created).ended_at == created.not_before + timedelta(minutes=1)


def test_maintenance_walks_to_its_end_one_update_domain_at_a_time(world: World) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
    world.store.write(lambda tx: start_maintenance(tx, world.context(), order))

    world.advance(world.lead(), hours=1)

    (report,) = world.store.read(lambda reading: report_maintenances(reading, world.context()))
    first, second = report.events
    assert report.status is MaintenanceStatus.COMPLETED
    assert report.maintenance.finished_at == second.ended_at
    assert first.ended_at == second.created_at


def test_end_of_a_maintenance_is_in_the_audit(world: World) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
    started = world.store.write(lambda tx: start_maintenance(tx, world.context(), order))

    world.advance(world.lead(), hours=1)

    (line,) = world.store.read(lambda reading: reading.audit(action="maintenance finish"))
    assert (line.who, line.subject) == ("test", started.maintenance_id)
    assert line.detail == MaintenanceOutcome.SUCCEEDED


def test_each_step_is_one_line_in_the_log(world: World) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
    begun = world.store.write(lambda tx: start_maintenance(tx, world.context(), order))

    with capture_logs() as logs:
        world.advance(world.lead(), hours=1)

    (report,) = world.store.read(lambda reading: report_maintenances(reading, world.context()))
    assert [line for line in logs if line["event"] == "step_announced"] == [
        {
            "event": "step_announced",
            "log_level": "info",
            "maintenance_id": begun.maintenance_id,
            "host": None,
            "scope_ids": ["availability-set/web"],
            "event_ids": [event.event_id],
        }
        for event in report.events
    ]


def test_each_change_of_an_impact_is_one_line_in_the_log(world: World) -> None:
    world.failures["web-1"] = "no power"
    good, bad = world.create("web-0"), world.create("web-1")

    with capture_logs() as logs:
        world.advance(world.lead(), minutes=16)
        world.advance(world.lead(), hours=1)  # what it finds was logged by the one before

    lines = [line for line in logs if line["event"] == "impact_changed"]
    told = [(line["event_id"], line["vm"], line["status"]) for line in lines]
    assert told == [
        (good.event_id, "web-0", "running"),
        (bad.event_id, "web-1", "running"),
        (good.event_id, "web-0", "done"),
        (bad.event_id, "web-1", "failed"),
    ]
    assert (lines[-1]["log_level"], lines[-1]["reason"]) == ("warning", "no power")


def test_impact_that_is_unknown_is_logged_once_and_again_when_it_is_known(world: World) -> None:
    unknown = Impact(status=ImpactStatus.UNKNOWN, reason="no route", ask_again_at=NEVER)
    words = {"web-0": unknown}
    workers = Workers(world.store, lambda task: words[task.name])
    scheduler = world.lead(Assigner())
    world.create("web-0", started=True)

    with capture_logs() as logs:
        for said in (unknown, unknown, RUNNING, DONE):
            words["web-0"] = said
            workers.advance(scheduler, world.clock, timedelta(minutes=10))

    statuses = [line["status"] for line in logs if line["event"] == "impact_changed"]
    assert statuses == ["unknown", "running", "done"]


def test_impact_is_reserved_with_the_start_of_its_event_and_closed_with_its_end(
    world: World,
) -> None:
    scheduler = world.lead(Assigner())
    event = world.create("web-0")
    seen: list[tuple[EventStatus, list[TaskState]]] = []
    world.store.listen(
        lambda _: seen.append(
            (world.event(event).event_status, [task.state for task in world.tasks(event)])
        )
    )

    world.advance(scheduler, minutes=15)
    waiting = world.store.read(lambda reading: reading.tasks())
    Workers(world.store).settle(scheduler, world.clock.now)

    assert seen[0] == (EventStatus.STARTED, [TaskState.RESERVED])
    assert waiting == (
        Task(
            subject=event.event_id,
            name="web-0",
            vm=VmName("web-0"),
            runner="command",
            node="",
            epoch=scheduler.epoch,
            said=Impact(status=ImpactStatus.NOT_BEGUN),
            reserved_at=event.not_before,
        ),
    )
    assert world.event(event).outcome is Outcome.SUCCEEDED
    assert world.store.read(lambda reading: reading.tasks()) == ()
    assert [task.closed_at for task in world.tasks(event)] == [world.clock.now()]


@pytest.mark.parametrize("started", [True, False])
def test_nothing_is_reserved_while_the_server_is_paused(world: World, *, started: bool) -> None:
    scheduler = world.lead(Assigner())
    event = world.create("web-0", started=started)
    world.store.write(lambda tx: pause_server(tx, world.context()))

    world.advance(scheduler, hours=1)
    during = world.tasks(event)
    world.store.write(lambda tx: resume_server(tx, world.context()))
    scheduler.settle()

    assert during == ()
    assert [task.state for task in world.tasks(event)] == [TaskState.RESERVED]


def test_leader_that_has_lost_its_lease_reserves_nothing(world: World) -> None:
    scheduler = world.lead(Assigner())
    event = world.create("web-0", started=True)
    world.store.write(lambda tx: tx.next_epoch())

    with pytest.raises(LeaseLostError):
        scheduler.settle()

    assert world.tasks(event) == ()


def test_impact_that_was_reserved_by_a_leader_that_died_is_begun_once_by_the_next(
    world: World,
) -> None:
    event = world.create("web-0", started=True)
    world.rules = Rules(node="n1")
    world.lead(Assigner()).settle()
    (reserved,) = world.tasks(event)

    world.rules = Rules(node="n2")
    scheduler = world.lead(Assigner())
    scheduler.settle()
    (taken_over,) = world.tasks(event)
    old, new = Workers(world.store, node="n1"), Workers(world.store, node="n2")
    old.attend(world.clock.now())
    new.settle(scheduler, world.clock.now)

    assert (reserved.node, reserved.assignment) == ("n1", 1)
    assert taken_over == replace(reserved, node="n2", assignment=2, epoch=scheduler.epoch)
    assert (old.begun.total(), new.begun.total()) == (0, 1)
    assert world.event(event).event_status is EventStatus.COMPLETED


def test_what_another_node_has_begun_is_waited_for_whoever_leads(world: World) -> None:
    event = world.create("web-0", started=True)
    world.rules = Rules(node="n1")
    world.lead(Assigner()).settle()
    old = Workers(world.store, lambda _: RUNNING, node="n1")
    old.attend(world.clock.now())

    world.rules = Rules(node="n2")
    scheduler = world.lead(Assigner())
    scheduler.settle()
    (task,) = world.tasks(event)
    old.says = lambda _: DONE
    old.attend(world.clock.now())
    scheduler.settle()

    assert (task.node, task.state) == ("n1", TaskState.BEGUN)
    assert world.event(event).outcome is Outcome.SUCCEEDED


def test_impact_behind_another_on_the_same_machine_is_reserved_when_that_is_over(
    world: World,
) -> None:
    scheduler = world.lead(Assigner())
    first, second = (world.create("web-0", started=True) for _ in range(2))
    words = {first.event_id: RUNNING, second.event_id: RUNNING}
    workers = Workers(world.store, lambda task: words[EventId(task.subject)])

    workers.settle(scheduler, world.clock.now)
    behind = world.tasks(second)
    words[first.event_id] = DONE
    workers.settle(scheduler, world.clock.now)

    assert behind == ()
    assert [task.state for task in world.tasks(second)] == [TaskState.BEGUN]


def test_older_event_that_is_started_later_waits_for_what_is_reserved_already(
    world: World,
) -> None:
    scheduler = world.lead(Assigner())
    older, younger = world.create("web-0"), world.create("web-0", started=True)
    scheduler.settle()
    world.store.write(lambda tx: start_event(tx, world.context(), older.event_id))

    scheduler.settle()

    assert (len(world.tasks(younger)), len(world.tasks(older))) == (1, 0)


def test_impact_is_not_begun_when_an_operator_has_completed_its_event(world: World) -> None:
    scheduler = world.lead(Assigner())
    event = world.create("web-0", started=True)
    scheduler.settle()
    world.store.write(lambda tx: complete_event(tx, world.context(), event.event_id))
    workers = Workers(world.store)

    workers.attend(world.clock.now())
    withdrawn = world.tasks(event)
    workers.settle(scheduler, world.clock.now)

    assert workers.begun.total() == 0
    assert [task.state for task in withdrawn] == [TaskState.WITHDRAWN]
    (task,) = world.tasks(event)
    assert (task.state, task.closed_at) == (TaskState.WITHDRAWN, world.clock.now())


def test_impact_that_takes_its_time_costs_no_commit_but_that_of_the_clock(world: World) -> None:
    scheduler = world.lead()
    world.create("web-0", started=True)
    world.advance(scheduler, minutes=1)
    commits = world.store.commits.total

    world.advance(scheduler, minutes=5)

    assert world.store.commits.total == commits + 1


def test_thread_does_what_is_due_when_woken_and_stops(world: World) -> None:
    scheduler = world.lead()
    done = threading.Event()
    world.store.listen(lambda _: done.set())
    thread = threading.Thread(target=scheduler.rounds.run)
    thread.start()
    created = replace(world.create("web-0"))
    world.clock.move_to(created.not_before)
    done.clear()

    scheduler.wake()
    seen = done.wait(TIMEOUT)
    scheduler.rounds.stop()
    thread.join(TIMEOUT)

    assert seen, "the scheduler did not start the event"
    assert not thread.is_alive()
    assert world.event(created).event_status is EventStatus.STARTED


def test_thread_ends_when_the_lease_is_lost(world: World) -> None:
    scheduler = world.lead()
    created = world.create("web-0")
    world.lead()
    world.clock.move_to(created.not_before)
    thread = threading.Thread(target=scheduler.rounds.run)

    thread.start()
    thread.join(TIMEOUT)

    assert not thread.is_alive()
    assert world.event(created).event_status is EventStatus.SCHEDULED


def test_thread_goes_on_when_the_store_is_back(world: World, tmp_path: Path) -> None:
    scheduler = world.lead()
    created = world.create("web-0")
    world.clock.move_to(created.not_before)
    database = tmp_path / "forewarn.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=scheduler.rounds.run)
        thread.start()
        waited = wait_until(lambda: not world.store.is_writable())
        blocker.execute("ROLLBACK")
    scheduler.wake()
    recovered = wait_until(lambda: world.event(created).event_status is EventStatus.STARTED)
    scheduler.rounds.stop()
    thread.join(TIMEOUT)

    assert waited, "the scheduler did not notice"
    assert recovered, "the scheduler did not recover"


def test_scheduler_that_dies_of_what_nobody_thought_of_is_started_again(world: World) -> None:
    supervisor = Supervisor(first_pause=0.01)
    scheduler = Scheduler(
        store=world.store, assigner=world.simulated, context=broken_context, epoch=1
    )

    thread = supervisor.start("scheduler", scheduler.rounds)
    assert wait_until(lambda: supervisor.failures["scheduler"] >= 2)
    thread.stop()
    thread.join()


def broken_context() -> Context:
    raise ZeroDivisionError


def wait_until(condition: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        pause.wait(0.02)
    return False


def test_scenario_is_walked_by_its_deadlines(world: World) -> None:
    report = world.run("web-0")
    began = world.clock.now()

    world.advance(world.lead(), hours=1)

    happened = [((line.at - began) / timedelta(minutes=1), line.what) for line in report().log]
    assert happened == [
        (1, "scheduled"),
        (2, "approved"),
        (2, "started"),
        (3, "step skipped"),
        (5, "completed"),
    ]
    assert [line.detail for line in report().log] == [
        "",
        "scenario late",
        "approved",
        "step 3 of scenario late was too late",
        "",
    ]
    assert report().run.finished_at == began + timedelta(minutes=5)
    last = world.store.read(lambda reading: reading.audit())[-1]
    assert (last.action, last.subject) == ("scenario finish", report().run.run_id)


def test_scenario_sets_and_clears_faults_of_its_machines(world: World) -> None:
    faults = MemoryFaults(document_of=lambda _: None, clock=world.clock, changed=lambda: None)
    vms = ("web-0", "web-1")
    world.store.write(lambda tx: start_scenario(tx, world.context(), FAULTY, vms, 10))
    scheduler = world.lead(faults=faults)

    scheduler.settle()
    at_first = faults.all()
    world.store.write(lambda tx: remove_vm(tx, world.context(), "web-1"))
    world.advance(scheduler, seconds=6)
    later = faults.all()
    world.advance(scheduler, seconds=6)

    delay = Fault(kind=FaultKind.PUBLISH_DELAY, seconds=30)
    reset = Fault(kind=FaultKind.RESET, times=2)
    assert at_first == dict.fromkeys(("web-0", "web-1"), (reset, delay))
    assert later[VmName("web-0")] == (delay,)
    assert faults.all().keys() == {"web-1"}
    entries = world.store.read(lambda reading: reading.audit())
    assert [
        (entry.subject, entry.action, entry.detail)
        for entry in entries
        if entry.action.startswith("fault")
    ] == [
        ("web-0", "fault set", "publish-delay, seconds 30.0"),
        ("web-1", "fault set", "publish-delay, seconds 30.0"),
        ("web-0", "fault set", "reset, times 2"),
        ("web-1", "fault set", "reset, times 2"),
        ("web-0", "fault clear", "reset"),
        ("web-0", "fault clear", "all"),
    ]


def test_new_leader_goes_on_with_a_scenario(world: World) -> None:
    report = world.run("web-0", "web-1")
    world.advance(world.lead(), minutes=1)
    announced = report()

    world.advance(world.lead(), minutes=9)

    assert announced.run.steps_done == 1
    assert {event.event_status for event in announced.events} == {EventStatus.SCHEDULED}
    assert report().run.steps_done == 3
    assert [event.event_id for event in report().events] == list(announced.run.event_ids)
    assert {event.outcome for event in report().events} == {Outcome.SUCCEEDED}


@pytest.mark.parametrize("reading", range(1, 5))
def test_deadline_that_passes_while_the_loop_looks_is_not_slept_through(
    world: World, reading: int
) -> None:
    event = world.create("web-0")
    readings = count(1)

    def context() -> Context:
        if next(readings) == reading:
            world.clock.move_to(event.not_before)
        return world.context()

    scheduler = world.lead(context=context)
    running = threading.Thread(target=scheduler.rounds.run)
    running.start()
    try:
        assert wait_until(lambda: world.event(event).event_status is EventStatus.STARTED), (
            "it sleeps, though the event is due"
        )
    finally:
        scheduler.rounds.stop()
        running.join(TIMEOUT)


def test_how_late_a_deadline_was_met_is_known(world: World) -> None:
    scheduler = world.lead()
    event = world.create("web-0")
    running = threading.Thread(target=scheduler.rounds.run)

    running.start()
    try:
        assert wait_until(lambda: scheduler.deadline is not None), "it does not know the event"
        world.clock.move_to(event.not_before + timedelta(seconds=3))
        scheduler.wake()
        assert wait_until(lambda: world.event(event).event_status is EventStatus.STARTED)
    finally:
        scheduler.rounds.stop()
        running.join(TIMEOUT)

    assert not running.is_alive()
    assert scheduler.performance.lateness.total == 3
    assert sum(scheduler.performance.lateness.counts) == 1


def test_what_a_turn_leaves_is_what_the_next_look_sees(world: World) -> None:
    # A roll-out, a scenario and a single event, from their beginnings to their ends.
    epoch = world.store.write(lambda tx: tx.next_epoch())
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
    world.store.write(lambda tx: start_maintenance(tx, world.context(), order))
    world.run("web-1")
    world.create("web-0")
    turns = 0
    while deadline := world.store.read(
        lambda reading: next_deadline(look(reading, world.context(), {}), world.clock.now())
    ):
        world.clock.move_to(deadline)
        for _ in range(5):  # starts, ends impacts, then their events, goes on, finds nothing
            turn, seen = _turn_and_look(world, epoch)
            turns += bool(turn.decisions.actions)
            assert turn.after == seen

    assert turns > 8
    assert world.store.read(lambda reading: reading.events_under_way()) == ()


def _turn_and_look(world: World, epoch: int) -> tuple[Turn, Snapshot]:
    """Take a turn, and look."""
    turn = world.store.write(
        lambda tx: decide_and_record(tx, world.context(), {}, world.simulated, epoch=epoch)
    )
    return turn, world.store.read(lambda reading: look(reading, world.context(), {}))
