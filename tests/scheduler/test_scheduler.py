"""The loop on a real store, with the simulated executor and a clock that is moved by hand."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.scheduler.conftest import FLEET

from forewarn.bootstrap.supervision import Supervisor
from forewarn.clocks import VirtualClock
from forewarn.domain.decisions import next_deadline
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.knowledge import NOTHING, Knowledge
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import VmName
from forewarn.domain.notification import Target
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.emulator.faults import MemoryFaults
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.files.fleet import read_fleet_file
from forewarn.files.scenario import read_scenario
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, complete_event, create_events
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.operations.maintenances import (
    report_maintenances,
    start_maintenance,
)
from forewarn.operations.scenarios import ScenarioReport, report_scenario_run, start_scenario
from forewarn.operations.snapshots import look
from forewarn.ports.executor import Executor
from forewarn.ports.faults import FaultControl
from forewarn.ports.store import LeaseLostError, Store
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.scheduler.tick import Turn, decide_and_record
from forewarn.storage.sqlite import open_sqlite

TIMEOUT = 45
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
        self.simulated = SimulatedExecutor(
            store, self.clock, failure_of=lambda _, vm: self.failures.get(vm, "")
        )

    def context(self) -> Context:
        now = self.clock.now()
        new_id = self._ids.__next__
        return Context(who="test", now=now, at=now, new_id=new_id, rules=self.rules)

    def lead(
        self,
        executor: Executor | None = None,
        context: Callable[[], Context] | None = None,
        faults: FaultControl | None = None,
    ) -> Scheduler:
        return Scheduler(
            store=self.store,
            executor=executor or self.simulated,
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
    scheduler = world.lead(ManualExecutor())
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
    scheduler = world.lead(ManualExecutor())
    created = world.create("web-0")
    world.advance(scheduler, days=2)

    waiting = world.event(created)
    world.store.write(lambda tx: complete_event(tx, world.context(), created.event_id))
    scheduler.settle()

    assert waiting.event_status is EventStatus.STARTED
    assert world.event(created).event_status is EventStatus.COMPLETED


def test_impact_by_hand_stays_so_when_there_is_an_executor_for_it(world: World) -> None:
    created = world.create("web-0", started=True)
    world.lead(ManualExecutor()).settle()

    world.advance(world.lead(world.simulated), hours=1)

    assert world.event(created).event_status is EventStatus.STARTED
    begun = world.store.read(
        lambda reading: reading.simulated_impact(created.event_id, VmName("web-0"))
    )
    assert begun is None


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
        world.advance(world.lead(), hours=1)  # a new leader, which has to ask what was begun

    lines = [line for line in logs if line["event"] == "impact_changed"]
    told = [(line["event_id"], line["vm"], line["status"]) for line in lines]
    assert told == [
        (good.event_id, "web-0", "running"),
        (bad.event_id, "web-1", "running"),
        (good.event_id, "web-0", "running"),
        (bad.event_id, "web-1", "running"),
        (good.event_id, "web-0", "done"),
        (bad.event_id, "web-1", "failed"),
    ]
    assert (lines[-1]["log_level"], lines[-1]["reason"]) == ("warning", "no power")


def test_impact_that_is_unknown_is_logged_once_and_again_when_it_is_known(world: World) -> None:
    flaky = Flaky(world.simulated)
    scheduler = world.lead(flaky)
    world.create("web-0")

    with capture_logs() as logs:
        world.advance(scheduler, minutes=30)
        flaky.is_broken = False
        world.advance(scheduler, minutes=11)

    statuses = [line["status"] for line in logs if line["event"] == "impact_changed"]
    assert statuses == ["unknown", "not begun", "running", "done"]


class WatchedExecutor:
    """The simulated one, with what happens right *before* it begins or is asked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: list[Impact | None] = []
        self.before_begin: Callable[[], object] = lambda: None
        self.before_inquire: Callable[[], object] = lambda: None

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        known = self.world.store.read(lambda reading: reading.knowledge())
        self.before_begin()
        self.begun.append(known.impacts.get((event.event_id, vm)))
        return self.ask_soon(self.world.simulated.begin(event, vm, epoch=epoch))

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        self.before_inquire()
        return self.ask_soon(self.world.simulated.inquire(event_id, vm))

    def ask_soon(self, said: Impact) -> Impact:
        if said.status is not ImpactStatus.RUNNING:
            return said
        return replace(said, ask_again_at=self.world.clock.now() + timedelta(seconds=30))


def test_impact_is_reserved_before_it_begins_and_forgotten_when_it_is_over(world: World) -> None:
    executor = WatchedExecutor(world)
    scheduler = world.lead(executor)
    event = world.create("web-0")

    world.advance(scheduler, minutes=15)
    while_it_runs = world.store.read(lambda reading: reading.knowledge())
    world.advance(scheduler, minutes=10)

    assert executor.begun == [Impact(status=ImpactStatus.NOT_BEGUN)]
    (said,) = while_it_runs.impacts.values()
    assert said.status is ImpactStatus.RUNNING
    assert world.event(event).event_status is EventStatus.COMPLETED
    assert not world.store.read(lambda reading: reading.knowledge())


def test_leader_that_has_lost_its_lease_begins_nothing(world: World) -> None:
    executor = WatchedExecutor(world)
    scheduler = world.lead(executor)
    world.create("web-0", started=True)
    executor.before_inquire = lambda: world.store.write(lambda tx: tx.next_epoch())

    with pytest.raises(LeaseLostError):
        scheduler.settle()

    assert executor.begun == []


def test_impact_that_was_reserved_by_a_leader_that_died_is_begun_by_the_next(
    world: World,
) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    executor = WatchedExecutor(world)
    executor.before_begin = die
    event = world.create("web-0", started=True)
    with pytest.raises(KeyboardInterrupt):
        world.lead(executor).settle()

    executor.before_begin = lambda: None
    world.advance(world.lead(executor), minutes=10)

    assert len(executor.begun) == 1
    assert world.event(event).event_status is EventStatus.COMPLETED


def test_answer_that_is_the_same_again_is_not_written(world: World) -> None:
    executor, asked = WatchedExecutor(world), list[datetime]()
    executor.before_inquire = lambda: asked.append(world.clock.now())
    scheduler = world.lead(executor)
    world.create("web-0", started=True)
    world.advance(scheduler, minutes=1)
    commits, before = world.store.commits.total, len(asked)

    world.advance(scheduler, minutes=5)

    assert len(asked) == before + 10
    assert world.store.commits.total == commits


def test_simulated_impact_begins_once(world: World) -> None:
    epoch = world.store.write(lambda tx: tx.next_epoch())
    event = world.create("web-0")
    vm = VmName("web-0")

    world.simulated.begin(event, vm, epoch=epoch)
    first = world.simulated.inquire(event.event_id, vm)
    world.clock.move_to(world.clock.now() + timedelta(minutes=1))
    world.simulated.begin(event, vm, epoch=epoch)

    assert world.simulated.inquire(event.event_id, vm) == first


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


class Flaky:
    """An executor that raises until it is mended."""

    def __init__(self, mended: Executor) -> None:
        self.is_broken = True
        self._mended = mended

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        if self.is_broken and vm == "web-0":
            raise OSError("no route to the host")
        return self._mended.begin(event, vm, epoch=epoch)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        if self.is_broken and vm == "web-0":
            raise OSError("no route to the host")
        return self._mended.inquire(event_id, vm)


def test_executor_in_trouble_is_asked_again_and_holds_nobody_else(world: World) -> None:
    flaky = Flaky(world.simulated)
    scheduler = world.lead(flaky)
    troubled, other = world.create("web-0"), world.create("web-1")
    world.advance(scheduler, minutes=30)

    waiting, ended = world.event(troubled), world.event(other)
    flaky.is_broken = False
    world.advance(scheduler, minutes=11)

    assert waiting.event_status is EventStatus.STARTED
    assert ended.outcome is Outcome.SUCCEEDED
    assert world.event(troubled).outcome is Outcome.SUCCEEDED


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
        store=world.store, executor=world.simulated, context=broken_context, epoch=1
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
        lambda reading: next_deadline(look(reading, world.context(), NOTHING), world.clock.now())
    ):
        world.clock.move_to(deadline)
        for _ in range(4):  # starts, ends what was started, goes on, finds nothing
            turn, seen = _turn_and_look(world, epoch)
            turns += bool(turn.decisions.actions)
            assert turn.after == seen

    assert turns > 8
    assert world.store.read(lambda reading: reading.events_under_way()) == ()


def _turn_and_look(world: World, epoch: int) -> tuple[Turn, Snapshot]:
    """Take a turn in a world in which every impact is over at once, and look."""
    in_flight = world.store.read(lambda reading: reading.events_in_flight())
    impacts = {
        (event.event_id, vm): Impact(status=ImpactStatus.DONE)
        for event in in_flight
        for vm in event.resources
    }
    turn = world.store.write(
        lambda tx: decide_and_record(tx, world.context(), Knowledge(impacts=impacts), epoch=epoch)
    )
    return turn, world.store.read(
        lambda reading: look(reading, world.context(), Knowledge(impacts=impacts))
    )
