"""Everything that can hold a Maintenance, brought about on a real store by a real scheduler.

Each sentence that `explain` knows is produced here as an operator would see it.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tasks import RUNNING, Assigner, Workers

from forewarn.clocks import VirtualClock
from forewarn.domain.blockers import Blocker, BlockerKind, VerdictKind
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder, pause
from forewarn.domain.names import MaintenanceId
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.why import ReasonKind
from forewarn.domain.windows import Calendar, read_window
from forewarn.executors.simulated import Manual, Simulated
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_event,
    create_events,
    operate,
    start_event,
)
from forewarn.operations.explain import MaintenanceExplanation, explain_maintenance
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    UnknownMaintenanceError,
    abort_maintenance,
    pause_maintenance,
    resume_maintenance,
    start_maintenance,
)
from forewarn.ports.runner import Assigner as AnyAssigner
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite
from forewarn.wording.command_lines import say_actions, say_blocker, say_verdict

FLEET = """
[[availability_set]]
name = "web"
update_domains = 3
[[availability_set]]
name = "db"
update_domains = 2
[[virtual_machine]]
name = "db-0"
availability_set = "db"
update_domain = 0
host = "kvm-0"
[[virtual_machine]]
name = "db-1"
availability_set = "db"
update_domain = 1
[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-0"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 1
host = "kvm-1"
[[virtual_machine]]
name = "web-2"
availability_set = "web"
update_domain = 2
"""
MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
E1, E2, E3 = (event_id(f"{number:032x}") for number in (2, 3, 4))
SURE = "; first make sure that no task that this ends is still running."
"""The first events: number 1 is the Maintenance, and by host number 2 the operation."""
M1 = MaintenanceId(f"{1:032x}")
WEB, DB = "availability-set/web", "availability-set/db"


class Doors:
    """Gates that say what the test has them say."""

    def __init__(self) -> None:
        self.answer = Answer(status=GateStatus.OPEN)

    def ask(self, question: Question) -> Answer:
        del question
        return self.answer


def unknown(ask_again_at: datetime | None, *, has_no_executor: bool = False) -> Impact:
    """Return what somebody says who has lost count of what it does."""
    return Impact(
        status=ImpactStatus.UNKNOWN,
        reason="no answer",
        ask_again_at=ask_again_at,
        has_no_executor=has_no_executor,
    )


class World:
    """A server without its network."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(MONDAY)
        self.rules = Rules(is_simulated=True)
        self.failures: dict[str, str] = {}
        self.doors = Doors()
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        self.workers = Workers(store)
        self.scheduler = self.lead(
            Simulated(failure_of_impact=lambda _, vm: self.failures.get(vm, ""))
        )

    def context(self) -> Context:
        now = self.clock.now()
        return Context(who="alice", now=now, at=now, new_id=self._ids.__next__, rules=self.rules)

    def lead(self, assigner: AnyAssigner, says: Impact = RUNNING) -> Scheduler:
        """Lead anew; what is not simulated or by hand *says* this."""
        self.workers.says = lambda _: says
        self.scheduler = Scheduler(
            store=self.store,
            assigner=assigner,
            context=self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            gates=self.doors,
        )
        return self.scheduler

    def start(
        self,
        *scopes: str,
        hosts: tuple[str, ...] = (),
        course: Course | None = None,
        event_type: EventType = EventType.FREEZE,
    ) -> Maintenance:
        order = MaintenanceOrder(
            event_type=event_type,
            scopes=scopes,
            hosts=hosts,
            course=course or Course(hold_all=False),
        )
        begun = self.store.write(
            lambda tx: start_maintenance(tx, self.context(), order, gates=["smoke"])
        )
        self.settle()
        return begun

    def announce(self, *names: str) -> ScheduledEvent:
        order = EventOrder(event_type=EventType.FREEZE, resources=names)
        (event,) = self.store.write(lambda tx: create_events(tx, self.context(), order))
        return event

    def restart(self, name: str) -> ScheduledEvent:
        """Restart it as its owner, at once."""
        event = self.store.write(lambda tx: operate(tx, self.context(), name, EventType.REBOOT))
        return self.store.write(lambda tx: start_event(tx, self.context(), event.event_id))

    def approve(self, name: EventId) -> None:
        self.store.write(lambda tx: approve_event(tx, self.context(), name))
        self.settle()

    def complete(self, name: EventId) -> None:
        self.store.write(lambda tx: complete_event(tx, self.context(), name))

    def advance(self, **duration: float) -> None:
        self.workers.advance(self.scheduler, self.clock, timedelta(**duration))

    def settle(self) -> None:
        self.workers.settle(self.scheduler, self.clock.now)

    def apply(self, change: tuple[str, str]) -> None:
        declared = read_fleet_file(FLEET.replace(*change))
        self.store.write(lambda tx: apply_fleet(tx, self.context(), declared))
        self.settle()

    def explain(self, maintenance_id: str = M1) -> MaintenanceExplanation:
        return self.store.read(
            lambda reading: explain_maintenance(reading, self.context(), maintenance_id)
        )

    def blockers(self, maintenance_id: str = M1) -> dict[str, Blocker]:
        return {
            blocker.kind: blocker for blocker in self.explain(maintenance_id).standstill.blockers
        }

    def sentence(self, kind: BlockerKind | ReasonKind) -> str:
        """Return what is said of *kind*, and of nothing but *kind*."""
        blockers = self.explain().standstill.blockers
        assert [blocker.kind for blocker in blockers] == [kind]
        return say_blocker(blockers[0], M1)[0]

    def verdict(self) -> str:
        return say_verdict(self.explain().standstill.verdict)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = open_sqlite(tmp_path / "forewarn.db")
    made = World(store)
    # The first number is for the first Maintenance.
    context = replace(made.context(), new_id=lambda: event_id(uuid4().hex))
    store.write(lambda tx: apply_fleet(tx, context, read_fleet_file(FLEET)))
    yield made
    store.close()


def test_virtual_machine_that_has_not_approved(world: World) -> None:
    world.start("web")

    assert world.sentence(ReasonKind.APPROVAL_OF_ANY) == (
        f"Event {E1} in {WEB}: Not approved yet; one approval is enough (web-0). The event "
        "starts at 2026-01-05 08:15:00 GMT at the latest."
    )
    assert world.verdict() == (
        "The maintenance continues automatically, at 2026-01-05 08:15:00 GMT at the latest."
    )


def test_virtual_machines_that_each_have_to_approve(world: World) -> None:
    world.apply(('name = "db"', 'name = "db"\napproval = "all"'))
    world.start("db")

    assert "Not approved by db-0; every affected virtual machine must approve." in world.sentence(
        ReasonKind.APPROVAL_OF_ALL
    )


def test_virtual_machine_that_has_to_approve_for_all(world: World) -> None:
    world.apply(('name = "db"', 'name = "db"\napproval = "leader"'))
    world.start("db")

    assert (
        "Not approved by db-0, the only virtual machine whose approval counts."
        in world.sentence(ReasonKind.APPROVAL_OF_LEADER)
    )


def test_event_that_starts_together_with_another_of_its_host(world: World) -> None:
    world.start(hosts=("kvm-0",))
    world.approve(E2)

    assert world.sentence(ReasonKind.APPROVAL_OF_ANY) == (
        f"Event {E3} on kvm-0: Not approved yet; one approval is enough (web-0). The event "
        "starts at 2026-01-05 08:15:00 GMT at the latest."
    )
    assert "08:15:00" in world.verdict()


def test_event_that_starts_together_with_one_that_has_more_time(world: World) -> None:
    world.apply(('name = "web"\nupdate_domains', 'name = "web"\nnotice = "1h"\nupdate_domains'))
    world.start(hosts=("kvm-0",))

    assert world.sentence(ReasonKind.APPROVAL_OF_ANY) == (
        "2 events on kvm-0: Not approved yet; one approval is enough for each event (db-0, web-0). "
        "The events start at 2026-01-05 09:00:00 GMT at the latest."
    )


def test_events_of_a_host_that_are_carried_out_by_hand_are_said_once(world: World) -> None:
    world.lead(Manual())
    world.start(hosts=("kvm-0",))
    for name in (E2, E3):
        world.approve(name)

    assert world.sentence(ReasonKind.BY_HAND) == (
        "2 events on kvm-0: The events have been waiting since 2026-01-05 08:00:00 GMT for an "
        "operator to carry out the impact on db-0, web-0 and complete them, with: "
        f"forewarn event complete {E2}; forewarn event complete {E3}"
    )
    assert say_actions(world.explain().standstill.verdict) == (
        f"forewarn event complete {E2}",
        f"forewarn event complete {E3}",
    )


def test_events_of_a_host_without_work_are_not_said_to_precede_it(world: World) -> None:
    world.start(hosts=("kvm-0",))
    for name in (E2, E3):
        world.approve(name)

    assert world.blockers().keys() == {ReasonKind.RUNNING}
    assert "08:05:00 GMT at the latest" in world.verdict()


def test_event_that_is_withdrawn(world: World) -> None:
    world.start("db")
    world.store.write(lambda tx: abort_maintenance(tx, world.context(), M1))

    blockers = world.blockers()

    assert blockers[BlockerKind.ABORTED].sentence == (
        "The maintenance was aborted by alice at 2026-01-05 08:00:00 GMT; no further step "
        "begins, but started events complete."
    )
    assert blockers[ReasonKind.MAINTENANCE_ABORTED].sentence == (
        f"Event {E1} in {DB}: Maintenance {M1} was aborted; the event is being withdrawn."
    )
    assert world.explain().status is MaintenanceStatus.ABORTING


def test_impact_that_is_running(world: World) -> None:
    world.start("db")
    world.approve(E1)

    assert world.sentence(ReasonKind.RUNNING) == (
        f"Event {E1} in {DB}: The impact on db-0 has been running since 2026-01-05 08:00:00 GMT; "
        "the executor is asked again at 2026-01-05 08:05:00 GMT."
    )
    assert "at 2026-01-05 08:05:00 GMT at the latest" in world.verdict()


def test_event_that_waits_for_a_restart_of_its_virtual_machine(world: World) -> None:
    world.start("db")
    restarted = world.restart("db-0")

    world.approve(E1)

    assert world.sentence(ReasonKind.OTHER_EVENT) == (
        f"Event {E1} in {DB}: The event waits for {restarted.event_id} on db-0 to end: a virtual "
        "machine has one impact at a time."
    )
    assert world.explain().standstill.verdict.kind is VerdictKind.BY_PROGRESS
    world.advance(minutes=10)
    assert world.blockers().keys() == {ReasonKind.RUNNING}


def test_event_that_waits_for_a_restart_by_hand(world: World) -> None:
    world.lead(Manual())
    world.start("db")
    restarted = world.restart("db-0")

    world.advance(minutes=16)

    assert world.verdict() == (
        "The maintenance does not continue until an operator acts: forewarn event complete "
        f"{restarted.event_id}{SURE}"
    )


def test_impact_that_is_not_simulated_ends_nobody_knows_when(world: World) -> None:
    world.start("db")
    world.approve(E1)
    world.rules = Rules()

    assert world.verdict() == "The maintenance continues automatically, at an unknown time."


def test_impact_that_is_carried_out_by_hand(world: World) -> None:
    world.lead(Manual())
    world.start("db")
    world.approve(E1)

    assert world.sentence(ReasonKind.BY_HAND) == (
        f"Event {E1} in {DB}: The event has been waiting since 2026-01-05 08:00:00 GMT for an "
        "operator to carry out the impact on db-0 and complete it, with: "
        f"forewarn event complete {E1}"
    )
    assert world.verdict() == (
        "The maintenance does not continue until an operator acts: forewarn event complete "
        f"{E1}{SURE}"
    )


@pytest.mark.parametrize(
    ("ask_again_at", "ending", "kind"),
    [
        (MONDAY + timedelta(minutes=1), "waits and asks again at", VerdictKind.BY_PROGRESS),
        (None, "so the server waits.", VerdictKind.NEVER),
    ],
)
def test_impact_of_which_nobody_knows(
    world: World, ask_again_at: datetime | None, ending: str, kind: VerdictKind
) -> None:
    world.lead(Assigner(), unknown(ask_again_at))
    world.start("db")
    world.approve(E1)

    sentence = world.sentence(ReasonKind.UNKNOWN)

    assert "The state of the impact on db-0 is unknown: no answer" in sentence
    assert ending in sentence
    assert world.explain().standstill.verdict.kind is kind


def test_impact_without_an_executor_waits_for_whoever_corrects_its_file(world: World) -> None:
    said = unknown(MONDAY + timedelta(minutes=1), has_no_executor=True)
    world.lead(Assigner(assignment=Assignment(runner="", said=said)))
    world.start("db")
    world.approve(E1)

    assert "The server cannot use its executors: no answer" in world.sentence(
        ReasonKind.NO_EXECUTOR
    )
    assert world.verdict() == (
        "The maintenance does not continue until an operator acts: "
        "correct the executor file, then send SIGHUP to the server."
    )


def test_new_leader_says_what_the_old_one_said_before_it_has_asked(world: World) -> None:
    world.lead(Manual())
    world.start("db")
    world.approve(E1)
    before = world.explain()

    world.lead(Manual())

    assert ReasonKind.BY_HAND in world.blockers()
    assert world.explain() == before


def test_impact_that_has_not_begun(world: World) -> None:
    world.start("db")
    world.store.write(lambda tx: start_event(tx, world.context(), E1))
    before_it_is_reserved = world.sentence(ReasonKind.NOT_BEGUN)
    world.lead(Assigner()).settle()

    assert before_it_is_reserved == world.sentence(ReasonKind.NOT_BEGUN)
    assert before_it_is_reserved == (
        f"Event {E1} in {DB}: The event started at 2026-01-05 08:00:00 GMT, but the impact on "
        "db-0 has not begun."
    )


def test_event_that_takes_longer_than_expected(world: World) -> None:
    world.rules = Rules(overdue_after=timedelta(minutes=10))
    world.lead(Manual())
    world.start("db")
    world.approve(E1)
    world.advance(minutes=11)

    blockers = world.blockers()

    assert blockers[ReasonKind.OVERDUE].sentence == (
        f"Event {E1} in {DB}: The event has been overdue since 2026-01-05 08:10:00 GMT: it takes "
        "longer than announced."
    )
    assert "until an operator acts" in world.verdict()


def test_pause(world: World) -> None:
    world.start("db")
    world.approve(E1)
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), M1))
    world.advance(minutes=6)

    assert world.sentence(BlockerKind.PAUSED) == (
        "The maintenance was paused by alice at 2026-01-05 08:00:00 GMT; no further step begins. "
        f"Continue with: forewarn maintenance resume {M1}"
    )
    assert world.verdict() == (
        "The maintenance does not continue until an operator acts: forewarn maintenance resume "
        f"{M1}."
    )
    assert world.explain().status is MaintenanceStatus.PAUSED


def test_pause_with_steps_under_way(world: World) -> None:
    world.start("db")
    world.approve(E1)
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), M1))

    assert ReasonKind.RUNNING in world.blockers()
    assert world.verdict() == (
        "Steps under way complete, but no further step begins until an operator acts: "
        f"forewarn maintenance resume {M1}."
    )


def test_pause_with_the_last_step_under_way(world: World) -> None:
    world.start("db")
    world.advance(minutes=16 + 5)
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), M1))

    assert world.verdict() == "Steps under way complete, but no further step begins."
    world.advance(hours=1)
    assert world.explain().status is MaintenanceStatus.COMPLETED


def test_failure_that_holds_everything_but_what_is_under_way(world: World) -> None:
    world.failures["db-0"] = "no disk"
    world.start("db", "web", course=Course(hold_all=True))
    world.approve(E1)
    world.advance(minutes=6)

    assert world.verdict() == (
        "Steps under way complete, but no further step begins until an operator acts: "
        f"forewarn maintenance retry {M1} {DB}, or forewarn maintenance skip {M1} {DB}."
    )


def test_pause_is_that_of_the_maintenance(world: World) -> None:
    world.start("db")
    other = world.start("web")
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), M1))
    world.advance(minutes=1)
    world.store.write(lambda tx: pause_maintenance(tx, world.context(), other.maintenance_id))

    assert "at 2026-01-05 08:00:00 GMT" in world.blockers()[BlockerKind.PAUSED].sentence


def test_pause_that_nobody_is_known_to_have_ordered(world: World) -> None:
    """The audit may have been kept elsewhere."""
    begun = world.start("db")
    world.store.write(lambda tx: tx.put_maintenance(pause(begun)))

    assert "The maintenance was paused; no further step begins." in (
        world.blockers()[BlockerKind.PAUSED].sentence
    )


def test_failure_of_an_impact(world: World) -> None:
    world.failures["db-0"] = "the kernel did not boot"
    world.start("db")
    world.approve(E1)
    world.advance(minutes=6)

    assert world.sentence(BlockerKind.FAILURE) == (
        f"{DB} failed at 2026-01-05 08:05:00 GMT: db-0: the kernel did not boot, "
        f"so no further step begins in {DB}. "
        f"Retry with: forewarn maintenance retry {M1} {DB}; "
        f"or skip it with: forewarn maintenance skip {M1} {DB}"
    )
    assert (
        f"an operator acts: forewarn maintenance retry {M1} {DB}, "
        f"or forewarn maintenance skip {M1} {DB}."
    ) in world.verdict()


def test_event_that_an_operator_has_canceled(world: World) -> None:
    world.start("db")
    world.store.write(lambda tx: cancel_event(tx, world.context(), E1, reason=""))
    world.settle()

    assert f"{DB} was canceled at 2026-01-05 08:00:00 GMT, so no further" in (
        world.sentence(BlockerKind.FAILURE)
    )


def test_failure_that_holds_everything(world: World) -> None:
    world.failures["db-0"] = "no disk"
    world.start("db", "web", course=Course(hold_all=True))
    for name in (E1, E2):
        world.approve(name)
    world.advance(minutes=6)

    assert "no disk, so no further step begins anywhere." in (
        world.sentence(BlockerKind.FAILURE_HOLDS_ALL)
    )


def test_failure_in_one_scope_lets_the_others_go_on(world: World) -> None:
    world.failures["db-0"] = "no disk"
    world.start("db", "web")
    for name in (E1, E2):
        world.approve(name)
    world.advance(minutes=6)

    assert BlockerKind.FAILURE in world.blockers()
    assert "2026-01-05 08:20:00 GMT at the latest" in world.verdict()


def test_canary_that_is_not_through(world: World) -> None:
    world.start("db", "web", course=Course(canary=("db",), hold_all=False))

    blockers = world.blockers()

    assert blockers[BlockerKind.CANARY].sentence == (
        f"The next step in {WEB} waits for the canary ({DB}) to complete."
    )
    assert "08:15:00" in world.verdict()


def test_canary_that_has_to_prove_itself(world: World) -> None:
    course = Course(canary=("db",), soak=timedelta(minutes=30))
    world.start("db", "web", course=course)
    world.advance(minutes=20 + 30 + 20)

    assert world.sentence(BlockerKind.CANARY_SOAK) == (
        f"The canary ({DB}) has completed; the next step in {WEB} waits until 2026-01-05 "
        "09:40:00 GMT, when its soak time ends."
    )
    assert "09:40:00 GMT at the latest" in world.verdict()


def test_canary_that_is_held(world: World) -> None:
    world.failures["db-0"] = "no disk"
    world.start("db", "web", course=Course(canary=("db",), hold_all=False))
    world.advance(minutes=20)

    blockers = world.blockers()

    assert blockers.keys() == {BlockerKind.FAILURE, BlockerKind.CANARY_HELD}
    assert blockers[BlockerKind.CANARY_HELD].sentence == (
        f"The next step in {WEB} waits for the canary ({DB}), which is held."
    )
    assert say_actions(world.explain().standstill.verdict) == (
        f"forewarn maintenance retry {M1} {DB}, or forewarn maintenance skip {M1} {DB}",
    )


def test_canary_that_fails_in_its_last_step(world: World) -> None:
    world.failures["db-1"] = "no disk"
    world.start("db", "web", course=Course(canary=("db",), hold_all=False))
    world.advance(minutes=40)

    blockers = world.blockers()

    assert "db-1: no disk" in blockers[BlockerKind.FAILURE].sentence
    assert BlockerKind.CANARY_HELD in blockers
    assert world.explain().standstill.verdict.kind is VerdictKind.NEVER


def test_canary_whose_host_fails_in_another_scope(world: World) -> None:
    world.apply(('availability_set = "web"\nupdate_domain = 2', 'host = "kvm-2"'))
    world.failures["web-0"] = "no disk"
    world.start(hosts=("kvm-0", "kvm-2"), course=Course(canary=("db",), hold_all=False))
    world.advance(hours=2)

    blockers = world.blockers()

    assert "web-0: no disk" in blockers[BlockerKind.FAILURE].sentence
    assert blockers[BlockerKind.CANARY_HELD].scope_ids == ("virtual-machine/web-2",)
    assert world.explain().standstill.verdict.kind is VerdictKind.NEVER


def test_scope_that_is_busy_with_an_event_of_an_operator(world: World) -> None:
    event = world.announce("web-1")
    begun = world.start("web")

    (blocker,) = world.explain(begun.maintenance_id).standstill.blockers

    assert blocker.sentence == (
        f"The next step in {WEB} waits for event {event.event_id} on web-1 to end "
        "(not part of any maintenance)."
    )
    assert blocker.kind is BlockerKind.BUSY
    verdict = world.explain(begun.maintenance_id).standstill.verdict
    assert verdict.kind is VerdictKind.BY_PROGRESS


def test_scope_that_is_busy_with_another_maintenance(world: World) -> None:
    world.start("web")
    other = world.start("web")

    (blocker,) = world.explain(other.maintenance_id).standstill.blockers

    assert blocker.sentence == (
        f"The next step in {WEB} waits for event {E1} on web-0 to end (a step of maintenance {M1})."
    )


def test_scope_that_is_busy_with_what_somebody_does_by_hand(world: World) -> None:
    world.lead(Manual())
    event = world.announce("web-1")
    begun = world.start("web")
    world.approve(event.event_id)

    verdict = world.explain(begun.maintenance_id).standstill.verdict

    assert say_actions(verdict) == (f"forewarn event complete {event.event_id}",)


def test_scope_that_is_busy_with_what_nobody_knows_of(world: World) -> None:
    world.lead(Assigner(), unknown(None))
    world.start("web")
    other = world.start("web")
    world.approve(E1)

    assert say_verdict(world.explain(other.maintenance_id).standstill.verdict) == (
        "The maintenance does not continue until an operator acts: forewarn event complete "
        f"{E1}{SURE}"
    )


def test_scope_in_which_another_maintenance_is_about_to_begin(world: World) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",))
    begun = [
        world.store.write(lambda tx: start_maintenance(tx, world.context(), order))
        for _ in range(2)
    ]

    first, second = (world.explain(each.maintenance_id).standstill for each in begun)

    assert first.verdict.sentence == "Nothing holds the maintenance; it is about to continue."
    (waiting,) = second.blockers
    assert waiting.sentence == (
        f"The next step in {WEB} waits for another maintenance, which begins a step there first."
    )
    assert waiting.kind is BlockerKind.BUSY_SOON


def test_capacity_while_something_else_is_in_flight(world: World) -> None:
    order = EventOrder(event_type=EventType.REBOOT, resources=("web-2",), started=True)
    (event,) = world.store.write(lambda tx: create_events(tx, world.context(), order))
    begun = world.start("web", course=Course(min_available=60, in_order=True))

    (blocker,) = world.explain(begun.maintenance_id).standstill.blockers

    assert blocker.sentence == (
        f"The next step in {WEB} waits for capacity: 1 of 3 would stay available, "
        f"but the minimum is 2 while {event.event_id} is in flight for web-2."
    )
    assert blocker.kind is BlockerKind.CAPACITY


def test_capacity_while_somebody_does_something_by_hand(world: World) -> None:
    world.lead(Manual())
    order = EventOrder(event_type=EventType.REBOOT, resources=("web-2",), started=True)
    (event,) = world.store.write(lambda tx: create_events(tx, world.context(), order))
    begun = world.start("web", course=Course(min_available=60, in_order=True))

    assert say_verdict(world.explain(begun.maintenance_id).standstill.verdict) == (
        "The maintenance does not continue until an operator acts: forewarn event complete "
        f"{event.event_id}{SURE}"
    )


def test_capacity_that_is_never_there(world: World) -> None:
    world.start("web", course=Course(min_available=60))
    world.approve(E1)
    world.advance(minutes=1)
    world.apply(
        (
            'availability_set = "web"\nupdate_domain = 2',
            'availability_set = "web"\nupdate_domain = 1',
        )
    )
    world.advance(minutes=10)

    assert world.sentence(BlockerKind.CAPACITY_NEVER) == (
        f"The next step in {WEB} takes too many virtual machines at once: 1 of 3 would stay "
        "available, but the minimum is 2. Move some to other update domains, or abort the "
        "maintenance with: "
        f"forewarn maintenance abort {M1}"
    )
    assert f"forewarn maintenance abort {M1}" in world.verdict()


def test_soak(world: World) -> None:
    world.start("db", course=Course(soak=timedelta(hours=1)))
    world.advance(minutes=21)

    assert world.sentence(BlockerKind.SOAK) == (
        f"The next step in {DB} waits until 2026-01-05 09:20:00 GMT, when the soak time ends."
    )
    assert "09:20:00 GMT at the latest" in world.verdict()


@pytest.mark.parametrize(
    "course",
    [
        Course(soak=timedelta(hours=1)),
        Course(calendar=Calendar(windows=(read_window("daily 22:00-22:30 UTC"),))),
    ],
)
def test_younger_maintenance_does_not_promise_the_moment_of_an_older_one(
    world: World, course: Course
) -> None:
    older = world.start("db", course=course)
    world.advance(minutes=21)
    younger = world.start("db", course=course)

    first, second = (world.explain(each.maintenance_id).standstill for each in (older, younger))

    assert first.verdict.kind is VerdictKind.BY_TIME
    assert second.verdict.sentence == (
        "The maintenance continues automatically, at an unknown time."
    )
    assert [blocker.sentence for blocker in second.blockers][-1] == (
        f"The next step in {DB} waits for another maintenance, which begins a step there first."
    )


def nights(text: str) -> Course:
    return Course(calendar=Calendar(windows=(read_window(text),)))


def test_window(world: World) -> None:
    world.start("db", course=nights("daily 22:00-23:00 UTC"))

    assert world.sentence(BlockerKind.CALENDAR) == (
        f"The next step in {DB} waits until 2026-01-05 22:00:00 GMT, when it next fits the "
        "calendar."
    )
    assert "22:00:00 GMT at the latest" in world.verdict()


def test_window_that_has_become_too_short(world: World) -> None:
    world.start("db", course=nights("daily 22:00-22:30 UTC"))
    world.apply(('name = "db"', 'name = "db"\nnotice = "1h"'))

    assert world.sentence(BlockerKind.CALENDAR_NEVER) == (
        f"The next step in {DB} is too long to ever fit the calendar. Abort the "
        f"maintenance with: forewarn maintenance abort {M1}"
    )


def test_notice_outside_the_window_leaves_the_window_for_work(world: World) -> None:
    course = replace(nights("daily 09:00-09:20 UTC"), notice_outside=True)
    world.start("db", course=course)
    assert world.blockers()[BlockerKind.CALENDAR].until == MONDAY + timedelta(minutes=45)

    world.advance(minutes=46)
    assert "09:00:00 GMT at the latest" in world.sentence(ReasonKind.APPROVAL_OF_ANY)
    world.approve(E1)

    assert world.sentence(ReasonKind.WINDOW) == (
        f"Event {E1} in {DB}: The event starts only while the calendar of its maintenance is open, "
        "next at 2026-01-05 09:00:00 GMT."
    )
    assert world.verdict() == (
        "The maintenance continues automatically, at 2026-01-05 09:00:00 GMT at the latest."
    )
    world.advance(minutes=13)
    assert ReasonKind.WINDOW in world.blockers()
    world.advance(minutes=1)
    assert world.blockers().keys() == {ReasonKind.RUNNING}


def test_operator_starts_an_event_outside_the_window(world: World) -> None:
    world.start("db", course=replace(nights("daily 09:00-09:20 UTC"), notice_outside=True))
    world.advance(minutes=46)

    world.store.write(lambda tx: start_event(tx, world.context(), E1))
    world.settle()

    assert world.blockers().keys() == {ReasonKind.RUNNING}


def test_soak_of_another_maintenance_that_has_finished(world: World) -> None:
    world.start("db", course=Course(soak=timedelta(hours=1)))
    world.advance(hours=2)
    assert world.explain().status is MaintenanceStatus.COMPLETED

    other = world.start("db")

    (blocker,) = world.explain(other.maintenance_id).standstill.blockers
    assert blocker.kind is BlockerKind.SOAK
    assert blocker.until == MONDAY + timedelta(hours=2, minutes=40)
    world.advance(minutes=41)
    assert world.blockers(other.maintenance_id).keys() == {ReasonKind.APPROVAL_OF_ANY}


def test_soak_that_ends_when_the_window_has_closed(world: World) -> None:
    course = replace(nights("daily 08:00-09:00 UTC"), soak=timedelta(minutes=50))
    world.start("db", course=course)
    world.advance(minutes=21)

    assert "2026-01-05 09:10:00 GMT, when the soak time ends" in (
        world.blockers()[BlockerKind.SOAK].sentence
    )
    assert "2026-01-06 08:00:00 GMT at the latest" in world.verdict()


def test_soak_before_a_gate_is_asked(world: World) -> None:
    world.start("db", course=Course(gates=("smoke",), soak=timedelta(minutes=50)))
    world.advance(minutes=21)

    assert BlockerKind.SOAK in world.blockers()
    assert world.verdict() == "The maintenance continues automatically, at an unknown time."


def test_no_more_at_once(world: World) -> None:
    world.start("db", "web", course=Course(at_once=1))

    assert world.blockers()[BlockerKind.AT_ONCE].sentence == (
        f"The next step in {WEB} waits: at most 1 may be under way at once (now: {DB})."
    )
    assert "08:15:00" in world.verdict()


SIXTY = """
[[availability_set]]
name = "web"
update_domains = 5
""" + "".join(
    f"""
[[host]]
name = "h{number:02}"
"""
    + (
        f"""
[[virtual_machine]]
name = "web-{number}"
availability_set = "web"
update_domain = {number % 5}
host = "h{number:02}"
"""
        if number % 2
        else ""
    )
    for number in range(60)
)
"""Sixty hosts, every other one of which is empty."""


def test_every_one_of_sixty_hosts_is_counted(world: World) -> None:
    declared = read_fleet_file(SIXTY)
    world.store.write(lambda tx: apply_fleet(tx, world.context(), declared))
    world.rules = replace(world.rules, host_works=(HostWorkRule(),))
    hosts = tuple(f"h{number:02}" for number in range(60))

    begun = world.start(hosts=hosts, course=Course(at_once=1))

    blockers = world.blockers(begun.maintenance_id)
    assert blockers[BlockerKind.AT_ONCE].sentence == (
        "The next step on 30 hosts (h02, h04, h05, h06, h08, h10, h12, h14 and 22 more) waits: "
        "at most 1 may be under way at once (now: h00)."
    )
    assert blockers[BlockerKind.EARLIER_STEP].sentence.startswith("The next step on 29 hosts (")


def test_hosts_that_come_after_others_in_their_scopes(world: World) -> None:
    world.start(hosts=("kvm-0", "kvm-1"))

    assert world.blockers()[BlockerKind.EARLIER_STEP].sentence == (
        "The next step on kvm-1 waits for an earlier step of this maintenance."
    )


def behind_a_gate(world: World, answer: Answer) -> None:
    course = Course(gates=("smoke",), gate_patience=timedelta(minutes=30))
    world.doors.answer = answer
    world.start("db", course=course)
    world.advance(minutes=21)


def test_gate_that_is_asked(world: World) -> None:
    behind_a_gate(world, Answer(status=GateStatus.ASKING, ask_again_at=MONDAY + timedelta(hours=9)))

    assert world.sentence(BlockerKind.GATE_ASKED) == (
        f"The next step in {DB} waits for gate smoke; the server is asking it."
    )
    assert world.verdict() == "The maintenance continues automatically, at an unknown time."


def shut(**again: float) -> Answer:
    return Answer(
        status=GateStatus.SHUT,
        output="error rate 7 %\nThe command ended with 1.",
        ask_again_at=MONDAY + timedelta(**again),
    )


def test_place_that_is_kept_for_whoever_asks_a_gate(world: World) -> None:
    world.doors.answer = shut(hours=9)
    world.start("db", "web", course=Course(gates=("smoke",), at_once=1))
    world.advance(minutes=21)

    assert world.blockers()[BlockerKind.AT_ONCE].sentence.endswith(
        f"waits: at most 1 may be under way at once (now: {WEB})."
    )
    assert BlockerKind.GATE_SHUT in world.blockers()


def test_gate_that_is_shut(world: World) -> None:
    behind_a_gate(world, shut(hours=9))

    assert world.sentence(BlockerKind.GATE_SHUT) == (
        f"The next step in {DB} waits for gate smoke (error rate 7 % / The command ended with "
        "1.); the server asks again until 2026-01-05 08:50:00 GMT."
    )


def test_gate_that_has_been_shut_for_too_long(world: World) -> None:
    behind_a_gate(world, shut(hours=9))
    world.advance(minutes=30)

    assert world.sentence(BlockerKind.GATE_HOLDS) == (
        f"Gate smoke (error rate 7 % / The command ended with 1.) holds the next step in {DB}; "
        f"the server has stopped asking. Ask it again with: forewarn maintenance resume {M1}"
    )
    assert f"forewarn maintenance resume {M1}" in world.verdict()


def test_gate_is_asked_again_when_somebody_resumes(world: World) -> None:
    behind_a_gate(world, shut(hours=9))
    world.advance(minutes=30)
    world.store.write(lambda tx: resume_maintenance(tx, world.context(), M1))

    assert "the server asks again until 2026-01-05 09:21:00 GMT" in world.sentence(
        BlockerKind.GATE_SHUT
    )


def test_host_that_has_come_to_carry_two_update_domains(world: World) -> None:
    world.start(hosts=("kvm-1", "kvm-0"))
    world.advance(minutes=16)
    world.apply(
        (
            'availability_set = "web"\nupdate_domain = 2',
            'availability_set = "web"\nupdate_domain = 2\nhost = "kvm-1"',
        )
    )
    world.advance(minutes=10)

    assert world.sentence(BlockerKind.SHARED_HOST) == (
        f"Host kvm-1 carries virtual machines of more than one update domain of {WEB}: "
        "web-1, web-2. Move some of them to another host first."
    )
    assert "an operator acts: move virtual machines to another host." in world.verdict()


def test_what_is_over_is_held_by_nothing(world: World) -> None:
    world.start("db")
    world.advance(hours=1)

    found = world.explain()

    assert (found.standstill.blockers, found.status) == ((), MaintenanceStatus.COMPLETED)
    assert world.verdict() == "The maintenance has ended."


def test_what_is_done_but_not_yet_recorded_so_is_about_to_go_on(world: World) -> None:
    world.lead(Manual())
    world.start("db")
    world.approve(E1)
    world.complete(E1)
    world.settle()
    world.approve(E2)
    world.complete(E2)

    assert world.explain().standstill.blockers == ()
    assert world.explain().standstill.verdict.kind is VerdictKind.NOW


def test_many_scopes_that_wait_for_the_same_are_said_once(world: World) -> None:
    world.start("db", "web", course=nights("daily 22:00-23:00 UTC"))

    assert f"The next step in 2 scopes ({DB}, {WEB}) waits until" in world.sentence(
        BlockerKind.CALENDAR
    )


def test_maintenance_that_nobody_has_started(world: World) -> None:
    with pytest.raises(UnknownMaintenanceError):
        world.explain("nobody")


def test_host_that_another_maintenance_is_at_work_on(world: World) -> None:
    world.apply(('name = "web-2"', 'name = "web-2"\nhost = "kvm-2"'))
    world.rules = replace(world.rules, host_works=(HostWorkRule(),))
    world.apply(('name = "web-2"', 'name = "web-2"\nhost = "kvm-1"'))
    world.start(hosts=("kvm-2",))

    second = world.start(hosts=("kvm-2",))

    found = world.explain(second.maintenance_id).standstill
    assert [(blocker.kind, blocker.hosts) for blocker in found.blockers] == [
        (BlockerKind.BUSY_HOST, ("kvm-2",))
    ]
    assert found.blockers[0].sentence == (
        "The next step on kvm-2 waits for another maintenance on the same host."
    )


def test_every_kind_that_is_known_is_brought_about_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {
        BlockerKind.ELSEWHERE: "tests/http/control/test_blockers.py",
        BlockerKind.SERVER_PAUSED: "tests/operations/test_pausing.py",
        BlockerKind.BUSY_TASK: "tests/operations/test_word_of_an_operator.py",
        BlockerKind.BUSY_UNKNOWN: "tests/operations/test_word_of_an_operator.py",
    }

    assert [
        kind
        for kind in BlockerKind
        if f"BlockerKind.{kind.name}" not in text and kind not in elsewhere
    ] == []
