"""What one server reserved or began and another finds: servers on one database, without networks.

Each has files of its own and looks after its own tasks; one leads at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import TypeAlias

import pytest
from tests.executors.target import OrderTarget, say
from tests.findings import find_problems
from tests.waiting import wait_until
from tests.web_site import OUTBOUND

from forewarn.bootstrap.runners import ReloadableRunners
from forewarn.bootstrap.start import make_rules, new_id
from forewarn.bootstrap.task_records import FOLDER, TaskRecords
from forewarn.clocks import SystemClock
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.standing import MaintenanceState, MaintenanceStatus
from forewarn.domain.task import OWNER_GRACE, STATUS_URL, Owner, Task, TaskKey, TaskState
from forewarn.executors.task_input import Permit, Runner, TaskInput
from forewarn.executors.task_log import TaskLog
from forewarn.executors.watcher import TaskWatcher
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, complete_event, create_events, find_event
from forewarn.operations.explain import explain_event, explain_maintenance
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import start_maintenance
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.restoring import RESTORED_AT
from forewarn.operations.snapshots import look
from forewarn.operations.tasks import begin_task, forget_owner
from forewarn.ports.entries import AuditEntry
from forewarn.ports.store import LeaseLostError, Transaction
from forewarn.protocol.vocabulary import EventStatus, EventType
from forewarn.scheduler.scheduler import Scheduler
from forewarn.settings import make_settings
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore
from forewarn.storage.postgres_session import PostgresAddress

FLEET = '[[virtual_machine]]\nname = "web-0"\nhost = "kvm-0"\n'
WEB_0 = VmName("web-0")
OPERATION = HostOperation(
    operation_id=OperationId("9F6D1B52-6E70-4E36-8C5A-6B4C8C4E7D10"),
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    created_at=SystemClock().now(),
    phase=HostPhase.WORK,
)
LEASE_SECONDS = 0.05
QUICK = 100_000
"""So many times faster does maintenance time pass for notices and simulated impacts."""
AWAY, TOO_LONG = timedelta(minutes=1), OWNER_GRACE + timedelta(minutes=1)


Restore: TypeAlias = "Callable[[Node], ScheduledEvent]"


class StoppedError(Exception):
    """The server ends here."""


@dataclass
class StoppingRunners:
    """Runners of a server that stops at the permit of the first task, just before or after it."""

    runners: ReloadableRunners
    after_commit: bool
    late: list[Callable[[], Impact | None]] = field(default_factory=list)
    problem: str = ""

    def runner(self, name: str) -> Runner | None:
        made = self.runners.runner(name)
        return None if made is None else StoppingRunner(made, self)


@dataclass
class StoppingRunner:
    """What begins is kept in *stopping*, to be gone on with when another server leads."""

    made: Runner
    stopping: StoppingRunners

    @property
    def repeats(self) -> bool:
        return self.made.repeats

    def begin(self, order: TaskInput, permit: Permit) -> Impact | None:
        if self.stopping.after_commit:
            self.made.begin(order, StoppingPermit(permit))
            self.made.close()
        else:
            self.stopping.late.append(lambda: self.made.begin(order, permit))
        return None

    def inquire(self, order: TaskInput) -> Impact:
        return self.made.inquire(order)

    def close(self) -> None:
        self.made.close()


@dataclass
class StoppingPermit:
    """A permit after which the server ends."""

    permit: Permit

    @property
    def refusal(self) -> ImpactStatus:
        return self.permit.refusal

    def obtain(self) -> bool:
        assert self.permit.obtain()
        raise StoppedError

    def is_valid(self) -> bool:
        return self.permit.is_valid()


class Node:
    """A server without its network. It leads, and looks after its tasks, when it is told to."""

    def __init__(self, url: str, node: str, settings: dict[str, object], stack: ExitStack) -> None:
        made = make_settings({**settings, "speed": QUICK})
        self.store = stack.enter_context(closing(PostgresStore(PostgresAddress(url), node=node)))
        self.leadership = DatabaseLeadership(
            self.store.address, node, now=SystemClock().now, seconds=LEASE_SECONDS
        )
        stack.callback(self.leadership.close)
        wall = SystemClock()
        records = TaskRecords(made.state_directory, self.store, node, node.partition(":")[0])
        self.log: TaskLog = records.log
        self.runners = ReloadableRunners(made, self.store, wall, records.log, OUTBOUND)
        stack.enter_context(closing(self.runners))
        self.watcher = TaskWatcher(
            self.store,
            runners=self.runners,
            register=lambda: records.begin(wall.now()),
            records=records.log,
            wall=wall,
        )
        self._rules = replace(make_rules(made), node=node)

    @property
    def owner(self) -> Owner:
        return self.watcher.owner

    def context(self) -> Context:
        now = SystemClock().now()
        rules = replace(self._rules, host_works=tuple(self.runners.rules))
        return Context(who="test", now=now, at=now, new_id=new_id, rules=rules)

    def lead(self) -> Scheduler:
        """Take the lease, and do once what a leader does."""
        epochs: list[int] = []

        def campaign() -> bool:
            epochs.extend(filter(None, [self.leadership.campaign()]))
            return bool(epochs)

        wait_until(campaign, "the lease of the other ends")
        scheduler = Scheduler(
            store=self.store, assigner=self.runners, context=self.context, epoch=epochs[0]
        )
        scheduler.settle()
        return scheduler

    def attend(self) -> None:
        self.watcher.attend()

    def stop_at_a_permit(self, *, after_commit: bool) -> StoppingRunners:
        """Look after the tasks until the first of them is about to begin, or was just begun."""
        stopping = StoppingRunners(self.runners, after_commit=after_commit)
        watcher = self.watcher
        watcher.runners = stopping
        watcher.attend()
        watcher.runners = self.runners
        return stopping

    def create(self) -> ScheduledEvent:
        order = EventOrder(event_type=EventType.REBOOT, resources=("web-0",), started=True)
        return self.store.write(lambda tx: create_events(tx, self.context(), order))[0]

    def find(self, event: ScheduledEvent) -> ScheduledEvent:
        return self.store.read(lambda reading: find_event(reading, event.event_id))

    def task(self, key: TaskKey) -> Task:
        found = self.store.read(lambda reading: reading.task(key))
        assert found is not None
        return found

    def away(self, event: ScheduledEvent) -> OwnerAway | None:
        """Return which owner of the impact of *event* everybody is told to be away."""
        seen = self.store.read(lambda reading: look(reading, self.context()))
        return seen.impacts[event.event_id, WEB_0].away

    def explain(self, event: ScheduledEvent) -> list[str]:
        found = self.store.read(
            lambda reading: explain_event(reading, self.context(), event.event_id)
        )
        return [reason.sentence for reason in found.reasons]

    def state(self, maintenance_id: MaintenanceId) -> MaintenanceState:
        found = self.store.read(
            lambda reading: explain_maintenance(reading, self.context(), maintenance_id)
        )
        return found.state

    def silence(self, since: timedelta) -> None:
        """Have this node not be heard of *since* then."""
        owner = replace(self.owner, heard_at=SystemClock().now() - since)
        self.store.write(lambda tx: tx.put_owner(owner))


class Lab:
    """Nodes on one database, and what is really done for them."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.target = OrderTarget()
        stack.enter_context(self.target.listening())
        self._url = url
        self._stack = stack
        stack.callback(self.let_go)
        script = folder / "script"
        script.write_text(
            f'#!/bin/sh\necho "$EVENT_VM$OPERATION_TASK" >> {folder}/deeds\n'
            f"while [ -e {folder}/hold ]; do sleep 0.02; done\n"
        )
        script.chmod(0o755)
        (folder / "command.toml").write_text(
            f'[[command]]\nrun = ["{script}"]\n[[host_work]]\nrun = ["{script}"]\n'
        )
        (folder / "webhook.toml").write_text(
            f'[[webhook]]\nurl = "{self.target.url}"\n[[host_work]]\nurl = "{self.target.url}"\n'
        )

    def node(self, machine: str, kind: str = "command") -> Node:
        """Start the server of that machine, once more if it was started before."""
        settings: dict[str, object] = {"state_dir": self.state_dir(machine)}
        if kind == "simulated":
            settings["executor"] = kind
        elif kind != "manual":
            settings["executor_file"] = self.folder / f"{kind}.toml"
        return Node(self._url, f"{machine}:{0:032x}", settings, self._stack)

    def state_dir(self, machine: str) -> Path:
        directory = self.folder / machine
        directory.mkdir(exist_ok=True)
        return directory

    def hold(self) -> None:
        """Have every script take until it is let go."""
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def deeds(self) -> list[str]:
        try:
            return (self.folder / "deeds").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []

    def await_deed(self, *watching: Node) -> None:
        """Wait until a script runs."""

        def is_done() -> bool:
            for node in watching:
                node.attend()
            return bool(self.deeds())

        wait_until(is_done, "a script to run")

    def await_post(self, watching: Node) -> None:
        """Wait until an order was taken by the target."""

        def is_done() -> bool:
            watching.attend()
            return bool(self.target.deeds)

        wait_until(is_done, "an order to be posted")


@pytest.fixture
def lab(postgres_url: str, tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        made = Lab(postgres_url, tmp_path, stack)
        with closing(PostgresStore(PostgresAddress(postgres_url))) as store:
            now = SystemClock().now()
            context = Context(who="test", now=now, at=now, new_id=new_id)
            fleet = read_fleet_file(FLEET)
            store.write(lambda tx: apply_fleet(tx, context, fleet))
        yield made


def settle_until_over(
    scheduler: Scheduler, event: ScheduledEvent, *nodes: Node, node: Node
) -> ScheduledEvent:
    """Have *nodes* look after their tasks, and the leader do its part, until *event* is over."""

    def is_completed() -> bool:
        for each in nodes:
            each.attend()
        scheduler.settle()
        return node.find(event).event_status is EventStatus.COMPLETED

    wait_until(is_completed, "the event to complete")
    return node.find(event)


def attend_until(node: Node, key: TaskKey, *states: TaskState) -> None:
    def is_so() -> bool:
        node.attend()
        return node.task(key).state in states

    wait_until(is_so, f"{key} to be one of {states}")


def await_status_url(node: Node, key: TaskKey) -> None:
    """Wait until the row of the task says where the target is asked."""

    def is_so() -> bool:
        node.attend()
        return STATUS_URL in node.task(key).details

    wait_until(is_so, "the target to accept the order")


def key_of(event: ScheduledEvent) -> TaskKey:
    return event.event_id, WEB_0


def late_endings(node: Node) -> tuple[AuditEntry, ...]:
    return node.store.read(lambda reading: reading.audit(action="task late", limit=10))


def findings(node: Node) -> str:
    """Return the sentences of all findings."""
    return "\n".join(each.sentence for each in find_problems(node.store, node.context()))


# What was only reserved.


def test_what_was_only_reserved_is_begun_once_by_the_next_leader(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    former = one.lead()
    stopped = one.stop_at_a_permit(after_commit=False)
    reserved = one.task(key_of(event))

    scheduler = two.lead()

    taken = two.task(key_of(event))
    assert (reserved.node, reserved.state) == (one.owner.node, TaskState.RESERVED)
    assert (taken.node, taken.state) == (two.owner.node, TaskState.RESERVED)
    assert (taken.assignment, taken.epoch) == (reserved.assignment + 1, scheduler.epoch)
    (begin_late,) = stopped.late
    begin_late()
    one.runners.close()
    assert lab.deeds() == [], "a permit for what another owns by now is refused"
    ended = settle_until_over(scheduler, event, one, two, node=two)
    assert ended.outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]
    one.create()
    with pytest.raises(LeaseLostError):
        former.settle()


def test_permit_that_comes_first_wins_over_the_next_leader(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    one.attend()
    one.runners.close()

    scheduler = two.lead()

    assert two.task(key_of(event)).node == one.owner.node
    settle_until_over(scheduler, event, two, one, node=two)
    assert lab.deeds() == ["web-0"]


def test_nothing_that_was_reserved_before_a_pause_is_begun_in_it(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    stopped = one.stop_at_a_permit(after_commit=False)
    one.store.write(lambda tx: pause_server(tx, one.context(), "storm"))

    (begin_late,) = stopped.late
    begin_late()
    one.runners.close()
    scheduler = two.lead()
    two.attend()
    two.runners.close()

    assert lab.deeds() == []
    two.store.write(lambda tx: resume_server(tx, two.context()))
    scheduler.settle()
    settle_until_over(scheduler, event, two, node=two)
    assert lab.deeds() == ["web-0"]


def test_what_an_operator_completed_is_not_begun_afterwards(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    stopped = one.stop_at_a_permit(after_commit=False)

    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.SUCCEEDED, "")
    )
    (begin_late,) = stopped.late
    begin_late()
    one.runners.close()
    two.lead()
    one.attend()
    two.attend()

    assert two.find(event).event_status is EventStatus.COMPLETED
    assert two.store.read(lambda reading: reading.tasks()) == ()
    assert lab.deeds() == []


def reserve_work(node: Node) -> TaskKey:
    """Have *node* reserve the work on the host."""
    kernel = Maintenance(
        maintenance_id=OPERATION.maintenance_id,
        event_type=OPERATION.event_type,
        started_at=OPERATION.created_at,
    )

    def work(tx: Transaction) -> None:
        tx.put_maintenance(kernel)
        tx.put_operation(OPERATION)

    node.store.write(work)
    node.lead()
    (task,) = node.store.read(lambda reading: reading.tasks())
    assert (task.node, task.state) == (node.owner.node, TaskState.RESERVED)
    return task.key


def test_work_on_a_host_that_was_only_reserved_is_begun_by_the_next_leader(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    key = reserve_work(one)

    two.lead()
    attend_until(two, key, TaskState.ENDED)
    one.attend()

    assert lab.deeds() == ["work"]


# What a server has begun that does not lead any more.


def without_file(lab: Lab) -> str:
    del lab
    return "manual"


def simulated(lab: Lab) -> str:
    del lab
    return "simulated"


def file_removed(lab: Lab) -> str:
    (lab.folder / "command.toml").unlink()
    return "command"


def file_for_other_runners(lab: Lab) -> str:
    (lab.folder / "webhook.toml").replace(lab.folder / "command.toml")
    return "command"


CHANGES = (without_file, simulated, file_removed, file_for_other_runners)


@pytest.mark.parametrize("change", CHANGES)
def test_end_is_reported_whatever_became_of_the_executor_file(
    lab: Lab, change: Callable[[Lab], str]
) -> None:
    lab.hold()
    one = lab.node("db-1")
    event = one.create()
    one.lead()
    lab.await_deed(one)
    attend_until(one, key_of(event), TaskState.BEGUN)

    again = lab.node("db-1", change(lab))
    for _ in range(2):
        again.attend()
    assert again.task(key_of(event)).state is TaskState.BEGUN
    lab.let_go()

    attend_until(again, key_of(event), TaskState.ENDED)
    assert again.task(key_of(event)).said == Impact(status=ImpactStatus.DONE)
    assert lab.deeds() == ["web-0"]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_begins_that_the_executor_file_does_not_name_any_more(
    lab: Lab, change: Callable[[Lab], str]
) -> None:
    one = lab.node("db-1")
    event = one.create()
    one.lead()

    again = lab.node("db-1", change(lab))
    attend_until(
        again,
        key_of(event),
        TaskState.RESERVED if change is file_removed else TaskState.ENDED,
    )

    said = again.task(key_of(event)).said
    if change is file_removed:
        assert said.status is ImpactStatus.NOT_BEGUN
        assert "command.toml" in said.reason
    else:
        reason = "the executor file has no command for a Reboot on host kvm-0"
        assert said == Impact(status=ImpactStatus.FAILED, reason=reason)
    assert lab.deeds() == []


@pytest.mark.parametrize("kind", ["manual", "command"])
def test_what_nobody_will_ever_tell_is_unknown_without_the_executor_file(
    lab: Lab, kind: str
) -> None:
    """But while the file is only wrong, there is time to correct it."""
    one = lab.node("db-1", "webhook")
    event = one.create()
    one.lead()
    lab.await_post(one)
    await_status_url(one, key_of(event))
    (lab.folder / "command.toml").unlink()

    again = lab.node("db-1", kind)
    for _ in range(2):
        again.attend()
    again.lead()

    task = again.task(key_of(event))
    assert task.state is (TaskState.UNKNOWN if kind == "manual" else TaskState.BEGUN)


def test_what_may_have_begun_is_not_failed_because_the_executor_file_changed(lab: Lab) -> None:
    one = lab.node("db-1", "webhook")
    event = one.create()
    one.lead()
    reserved, now = one.task(key_of(event)), SystemClock().now()
    assert one.store.write(lambda tx: begin_task(tx, one.owner, reserved, now))

    again = lab.node("db-1", "manual")
    for _ in range(3):
        again.attend()
    again.lead()

    task = again.task(key_of(event))
    reason = "the executor file has no webhook for a Reboot on host kvm-0"
    assert (task.state, task.said.reason) == (TaskState.UNKNOWN, reason)


def test_script_runs_once_and_its_server_says_how_it_ended_while_another_leads(lab: Lab) -> None:
    lab.hold()
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    lab.await_deed(one)

    scheduler = two.lead()
    two.attend()
    scheduler.settle()
    while_it_runs = two.task(key_of(event))
    lab.let_go()
    attend_until(one, key_of(event), TaskState.ENDED)
    scheduler.settle()

    assert (while_it_runs.node, while_it_runs.state) == (one.owner.node, TaskState.BEGUN)
    assert two.find(event).outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def test_silent_owner_is_shown_as_away_then_its_task_is_unknown_and_its_word_still_counts(
    lab: Lab,
) -> None:
    lab.hold()
    one, two = lab.node("db-1"), lab.node("db-2")
    order = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web-0",))
    kernel = one.store.write(lambda tx: start_maintenance(tx, one.context(), order))
    leader = one.lead()
    event = start_announced(leader, one)
    lab.await_deed(one)
    scheduler = two.lead()
    one.silence(-AWAY)
    present = two.away(event)

    one.silence(AWAY)
    scheduler.settle()
    away, running = two.away(event), two.state(kernel.maintenance_id)
    one.silence(TOO_LONG)
    scheduler.settle()
    lost, stuck = two.task(key_of(event)), two.state(kernel.maintenance_id)
    (explained, *_) = two.explain(event)
    two.attend()
    lab.let_go()
    settle_until_over(scheduler, event, one, node=two)

    assert present is None
    assert away is not None
    assert (away.name, away.pages_at - away.since) == ("db-1", OWNER_GRACE)
    assert running.status is MaintenanceStatus.AWAY
    assert running.detail.startswith("db-1 (away since ")
    assert lost.state is TaskState.UNKNOWN
    assert lost.said.reason.startswith("replica db-1 began it, and has been away since ")
    assert (stuck.status, stuck.detail) == (
        MaintenanceStatus.STUCK,
        "the state of the impact on web-0 is unknown",
    )
    assert lost.said.reason in explained
    assert two.find(event).outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def start_announced(scheduler: Scheduler, node: Node) -> ScheduledEvent:
    def has_started() -> bool:
        scheduler.settle()
        return bool(_started(node))

    wait_until(has_started, "the event to start")
    (event,) = _started(node)
    return event


def _started(node: Node) -> tuple[ScheduledEvent, ...]:
    events = node.store.read(lambda reading: reading.events_in_flight())
    return tuple(event for event in events if event.event_status is EventStatus.STARTED)


def test_end_that_comes_after_an_operator_has_settled_it_changes_nothing(lab: Lab) -> None:
    lab.hold()
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    lab.await_deed(one)
    one.silence(TOO_LONG)
    scheduler = two.lead()

    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.FAILED, "it burned")
    )
    scheduler.settle()
    settled = two.task(key_of(event))
    lab.let_go()
    wait_until(lambda: one.log.ended(key_of(event)), "the script to end")
    one.attend()
    one.attend()
    scheduler.settle()

    ended = two.find(event)
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "it burned")
    assert settled.state is TaskState.SETTLED
    assert two.task(key_of(event)) == replace(settled, details={**settled.details, "late": "done"})
    assert [(entry.who, entry.detail) for entry in late_endings(two)] == [("db-1", "done")]
    assert "db-1 reports the impact on web-0 as done, but it was settled as failed" in findings(two)


def test_forgotten_replica_that_returns_is_a_new_generation_and_reports_what_it_had_begun(
    lab: Lab,
) -> None:
    lab.hold()
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    lab.await_deed(one)
    former = one.owner
    one.silence(TOO_LONG)
    scheduler = two.lead()
    two.store.write(lambda tx: forget_owner(tx, two.context(), "db-1"))
    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.FAILED, "it burned")
    )
    scheduler.settle()

    for _ in range(3):
        one.attend()
    while_it_runs = findings(two)
    lab.let_go()
    wait_until(lambda: one.log.ended(key_of(event)), "the script to end")
    one.attend()

    assert one.owner.node == former.node
    assert one.owner.generation > former.generation
    assert "db-1 reports the impact on web-0 as running" in while_it_runs
    assert [entry.detail for entry in late_endings(two)] == ["running", "done"]
    assert two.task(key_of(event)).state is TaskState.SETTLED
    assert lab.deeds() == ["web-0"]


def test_target_that_accepted_an_order_is_asked_by_the_next_owner(lab: Lab) -> None:
    one, two = lab.node("db-1", "webhook"), lab.node("db-2", "webhook")
    event = one.create()
    one.lead()
    lab.await_post(one)
    await_status_url(one, key_of(event))

    scheduler = two.lead()
    one.silence(AWAY)
    scheduler.settle()
    two.attend()
    waited_for = two.task(key_of(event))
    one.silence(TOO_LONG)
    scheduler.settle()
    adopted = two.task(key_of(event))
    lab.target.end("web-0", "done")
    ended = settle_until_over(scheduler, event, two, node=two)

    assert waited_for.node == one.owner.node
    assert (adopted.node, adopted.state) == (two.owner.node, TaskState.BEGUN)
    assert ended.outcome is Outcome.SUCCEEDED
    assert [asked.method for asked in lab.target.asked].count("POST") == 1
    assert int(lab.target.asked[-1].headers["forewarn-epoch"]) == scheduler.epoch


def test_order_whose_acceptance_is_not_recorded_is_posted_again_with_the_same_ids(
    lab: Lab,
) -> None:
    one, two = lab.node("db-1", "webhook"), lab.node("db-2", "webhook")
    lab.target.on_post = lambda _: say(503)
    event = one.create()
    one.lead()
    lab.await_post(one)
    attend_until(one, key_of(event), TaskState.BEGUN)
    lab.target.on_post = lambda _: None

    scheduler = two.lead()
    one.silence(TOO_LONG)
    scheduler.settle()
    lab.target.end("web-0", "done")
    ended = settle_until_over(scheduler, event, two, node=two)

    posts = [asked.headers for asked in lab.target.asked if asked.method == "POST"]
    keys = {
        (headers["forewarn-event-id"], headers["forewarn-virtual-machine"]) for headers in posts
    }
    epochs = [int(headers["forewarn-epoch"]) for headers in posts]
    assert ended.outcome is Outcome.SUCCEEDED
    assert epochs[-1] == scheduler.epoch > epochs[0]
    assert keys == {(event.event_id, "web-0")} == set(lab.target.deeds)


def test_work_that_a_webhook_does_is_adopted_too(lab: Lab) -> None:
    one, two = lab.node("db-1", "webhook"), lab.node("db-2", "webhook")
    key = reserve_work(one)
    lab.await_post(one)
    one.silence(TOO_LONG)
    lab.target.end("work", "done")

    two.lead()
    attend_until(two, key, TaskState.ENDED)

    assert lab.target.deeds == [(OPERATION.operation_id, "work")]


def test_simulated_impact_ends_under_the_next_leader(lab: Lab) -> None:
    one, two = lab.node("db-1", "simulated"), lab.node("db-2", "simulated")
    event = one.create()
    one.lead()
    begun = one.task(key_of(event))
    one.silence(TOO_LONG)

    ended = settle_until_over(two.lead(), event, node=two)

    assert begun.begun_at is not None
    assert ended.outcome is Outcome.SUCCEEDED


def test_impact_by_hand_stays_with_the_operator_under_the_next_leader(lab: Lab) -> None:
    one, two = lab.node("db-1", "manual"), lab.node("db-2", "manual")
    event = one.create()
    one.lead()
    before = one.explain(event)
    one.silence(TOO_LONG)

    scheduler = two.lead()
    after, away = two.explain(event), two.away(event)
    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.SUCCEEDED, "")
    )
    scheduler.settle()

    assert after == before
    assert away is None
    assert two.find(event).outcome is Outcome.SUCCEEDED
    assert two.store.read(lambda reading: reading.tasks()) == ()


# A server that is started again.


@pytest.mark.parametrize("is_late", [False, True])
def test_task_of_a_server_killed_between_commit_and_claim_is_given_back_and_begun_once(
    lab: Lab, *, is_late: bool
) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    one.stop_at_a_permit(after_commit=True)
    killed = one.task(key_of(event))
    scheduler = two.lead()
    if is_late:
        one.silence(TOO_LONG)
        scheduler.settle()
    waited_for = two.task(key_of(event))

    again = lab.node("db-1")
    again.attend()
    given_back = again.task(key_of(event))
    ended = settle_until_over(scheduler, event, again, two, node=two)

    assert killed.state is TaskState.BEGUN
    assert waited_for.state is (TaskState.UNKNOWN if is_late else TaskState.BEGUN)
    assert (given_back.state, given_back.begun_at) == (TaskState.RESERVED, None)
    assert ended.outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def test_task_of_a_server_killed_after_the_claim_is_found_by_the_next_start(lab: Lab) -> None:
    lab.hold()
    one = lab.node("db-1")
    event = one.create()
    one.lead()
    lab.await_deed(one)

    again = lab.node("db-1")
    scheduler = again.lead()
    again.attend()
    found = again.task(key_of(event))
    lab.let_go()
    settle_until_over(scheduler, event, again, node=again)

    assert found.state is TaskState.BEGUN
    assert lab.deeds() == ["web-0"]


@pytest.mark.parametrize("is_reserved", [False, True])
def test_open_tasks_of_a_server_that_lost_its_records_are_unknown(
    lab: Lab, *, is_reserved: bool
) -> None:
    lab.hold()
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead()
    if not is_reserved:
        lab.await_deed(one)
    deeds = lab.deeds()

    rmtree(lab.state_dir("db-1") / FOLDER)
    again = lab.node("db-1")
    scheduler = two.lead()
    for node in (again, two):
        node.attend()
        node.runners.close()
    scheduler.settle()

    lost = two.task(key_of(event))
    (explained, *_) = two.explain(event)
    assert (lost.node, lost.state) == (one.owner.node, TaskState.UNKNOWN)
    assert lost.said.reason in explained
    assert lab.deeds() == deeds
    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.SUCCEEDED, "")
    )
    scheduler.settle()
    assert two.store.read(lambda reading: reading.tasks()) == ()


def test_second_start_with_the_same_files_is_the_only_one_that_begins_and_reports(
    lab: Lab,
) -> None:
    lab.hold()
    one = lab.node("db-1")
    event = one.create()
    one.lead()
    again = lab.node("db-1")

    one.attend()
    one.runners.close()
    before = lab.deeds()
    lab.await_deed(again)
    lab.let_go()
    wait_until(lambda: again.log.ended(key_of(event)), "the script to end")
    one.attend()
    reported = one.task(key_of(event))
    again.attend()

    assert again.owner.generation == one.owner.generation + 1
    assert before == []
    assert one.watcher.is_replaced
    assert reported.state is TaskState.BEGUN
    assert again.task(key_of(event)).state is TaskState.ENDED
    assert lab.deeds() == ["web-0"]


# A database that was restored.


def restore(node: Node) -> ScheduledEvent:
    """Have an impact that is reserved in a database that was restored afterwards."""
    event = node.create()
    node.lead()
    reserved_at = node.task(key_of(event)).reserved_at
    node.store.write(lambda tx: tx.put_setting(RESTORED_AT, reserved_at.isoformat()))
    return event


def restore_before_the_reservation(node: Node) -> ScheduledEvent:
    """Have an event in a database that was restored before anything of it was reserved."""
    event = node.create()
    node.store.write(lambda tx: tx.put_setting(RESTORED_AT, event.created_at.isoformat()))
    return event


RESTORES = [restore, restore_before_the_reservation]


@pytest.mark.parametrize("restoring", RESTORES)
def test_server_that_was_always_alone_begins_what_is_in_a_restored_database(
    lab: Lab, restoring: Restore
) -> None:
    one = lab.node("db-1")
    event = restoring(one)

    again = lab.node("db-1")
    settle_until_over(again.lead(), event, again, node=again)

    assert lab.deeds() == ["web-0"]


def check_in_doubt(lab: Lab, node: Node, event: ScheduledEvent) -> None:
    scheduler = node.lead()
    for _ in range(2):
        node.attend()
    node.runners.close()
    scheduler.settle()

    assert node.task(key_of(event)).state is TaskState.UNKNOWN
    (explained, *_) = node.explain(event)
    assert "the database was restored, so it may have begun since the backup" in explained
    assert lab.deeds() == []


@pytest.mark.parametrize("restoring", RESTORES)
def test_restored_database_does_not_tell_what_other_servers_have_begun(
    lab: Lab, restoring: Restore
) -> None:
    one = lab.node("db-1")
    event = restoring(one)

    lab.node("db-2")

    check_in_doubt(lab, one, event)


@pytest.mark.parametrize("restoring", RESTORES)
def test_restored_database_does_not_tell_a_new_server_what_the_old_one_has_begun(
    lab: Lab, restoring: Restore
) -> None:
    event = restoring(lab.node("db-1"))

    check_in_doubt(lab, lab.node("db-2"), event)


def test_intent_of_one_server_is_no_proof_that_no_other_has_begun_it_since_the_backup(
    lab: Lab,
) -> None:
    one = lab.node("db-1")
    event = restore(one)
    reserved = one.task(key_of(event))
    one.stop_at_a_permit(after_commit=True)
    again = lab.node("db-1")
    lab.node("db-2")
    again.store.write(lambda tx: tx.put_task(reserved))
    assert again.log.is_intended(key_of(event))

    check_in_doubt(lab, again, event)


def test_restored_database_does_not_tell_a_server_without_its_records_what_it_has_begun(
    lab: Lab,
) -> None:
    event = restore_before_the_reservation(lab.node("db-1"))

    rmtree(lab.state_dir("db-1") / FOLDER)

    check_in_doubt(lab, lab.node("db-1"), event)


@pytest.mark.parametrize("restoring", RESTORES)
def test_target_that_recognizes_a_task_is_given_what_is_in_a_restored_database(
    lab: Lab, restoring: Restore
) -> None:
    one = lab.node("db-1", "webhook")
    event = restoring(one)
    lab.node("db-2", "webhook")
    lab.target.end("web-0", "done")

    settle_until_over(one.lead(), event, one, node=one)

    assert lab.target.deeds == [(event.event_id, "web-0")]


def test_what_is_reserved_after_the_restoration_is_begun(lab: Lab) -> None:
    one = lab.node("db-1")
    lab.node("db-2")
    restored_at = SystemClock().now().isoformat()
    one.store.write(lambda tx: tx.put_setting(RESTORED_AT, restored_at))
    event = one.create()

    settle_until_over(one.lead(), event, one, node=one)

    assert lab.deeds() == ["web-0"]
