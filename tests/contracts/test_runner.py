"""What every runner promises: an order is carried out at most once, and its end is told as it was.

Manual and simulated tasks have no runner: they are rows, which are begun when they are reserved.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
from tests.executors.conftest import (
    EVENT,
    NOW,
    ORDER,
    OTHER,
    WEB_0,
    Grant,
    begin,
    is_over,
    log_in,
    make_command,
    make_webhook,
    order_for,
    run_and_be_killed,
    script,
    wait_for,
    wait_until,
)
from tests.executors.host_work import (
    TASKS,
    WORK,
    host_order,
    host_work,
    make_host_command,
    make_host_webhook,
)
from tests.executors.libvirtd import libvirtd, make_libvirt, wait_for_stewards
from tests.executors.target import OrderTarget

from forewarn.clocks import SystemClock, VirtualClock
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.task import Owner, Task, TaskKey, TaskState
from forewarn.executors.command import Command
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.libvirt.marks import MarkPhase
from forewarn.executors.simulated import Manual, Simulated
from forewarn.executors.task_input import Runner, TaskInput
from forewarn.executors.task_log import TaskLog
from forewarn.executors.watcher import TaskWatcher
from forewarn.executors.webhook import WebhookTarget
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, complete_event, create_events, find_event
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.runner import Assigner, Assignment
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventStatus, EventType
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite

NODE = "kvm-9:00000000000000000000000000000001"
FLEET = """
[[availability_set]]
name = "web"
update_domains = 1

[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-0"
"""
SCRIPT = """name=${{EVENT_VM:-$OPERATION_TASK}}
[ $name = verify ] && name=$name-$OPERATION_ATTEMPT
echo "${{EVENT_ID:-$OPERATION_ID}} $name" >> {folder}/deeds
while [ ! -e {folder}/$name.end ]; do sleep 0.02; done
. {folder}/$name.end"""

IMPACTS = (ORDER, OTHER)
HOST_TASKS = tuple(map(host_order, TASKS[:2]))
ORDERS: Mapping[str, tuple[TaskInput, TaskInput]] = {
    "command": IMPACTS,
    "webhook": IMPACTS,
    "libvirt": IMPACTS,
    "command for hosts": (HOST_TASKS[0], HOST_TASKS[1]),
    "webhook for hosts": (HOST_TASKS[0], HOST_TASKS[1]),
}
"""Two orders for each runner, which it can carry out at the same time."""
RUNNING = 1


class Outside(Protocol):
    """What a runner acts on, at an *address*."""

    address: str

    def end(self, order: TaskInput, fate: str = "", *, place: str = "") -> None:
        """Let *order* be over; with a *fate*, it has failed. The machine is at a *place* then."""

    def deeds(self) -> Counter[TaskKey]:
        """Return what was really done, and how often."""


class Scripts:
    """A program for all orders that notes that it runs, and runs until the test says otherwise."""

    def __init__(self, folder: Path, _: ExitStack) -> None:
        self._folder = folder
        self.address = str(script(folder, SCRIPT.format(folder=folder)))

    def end(self, order: TaskInput, fate: str = "", *, place: str = "") -> None:
        said = (f"echo {fate}" if fate else ":", f"echo host={place}" if place else ":")
        ending = "; ".join((*said, f"exit {3 if fate else 0}"))
        (self._folder / "draft").write_text(ending, encoding="utf-8")
        (self._folder / "draft").rename(self._folder / f"{order.key[1]}.end")

    def deeds(self) -> Counter[TaskKey]:
        try:
            lines = (self._folder / "deeds").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return Counter()
        return Counter((subject, name) for subject, name in map(str.split, lines))


class Targets:
    """A target of webhooks, which recognizes an order that comes again."""

    def __init__(self, _: Path, closing: ExitStack) -> None:
        self.target = OrderTarget()
        closing.enter_context(self.target.listening())
        self.address = self.target.url

    def end(self, order: TaskInput, fate: str = "", *, place: str = "") -> None:
        name = order.key[1]
        self.target.end(name, "failed" if fate else "done", fate)
        if place:
            self.target.statuses[name]["host"] = place

    def deeds(self) -> Counter[TaskKey]:
        return Counter(self.target.deeds)


class Guests:
    """Guests of libvirt's test driver, which restart when the test has them do so."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._daemon = closing.enter_context(libvirtd())
        self.address = self._daemon.uri
        for vm in EVENT.resources:
            self._daemon.define(vm)
        closing.callback(wait_for_stewards, folder)

    def end(self, order: TaskInput, fate: str = "", *, place: str = "") -> None:
        assert not place
        vm = order.key[1]
        if fate:
            self._daemon.mark(vm, MarkPhase.FAILED, reason=fate)
        elif self._daemon.state(vm) == RUNNING:
            self._daemon.domain(vm).destroy()

    def deeds(self) -> Counter[TaskKey]:
        calls = self._daemon.deeds()
        deeds = Counter[TaskKey]()
        for vm in EVENT.resources:
            deeds[EVENT.event_id, vm] = calls["reboot", vm]
        return +deeds


OUTSIDES: Mapping[str, Callable[[Path, ExitStack], Outside]] = {
    "command": Scripts,
    "webhook": Targets,
    "libvirt": Guests,
    "command for hosts": Scripts,
    "webhook for hosts": Targets,
}


def make_runner(kind: str, folder: Path, address: str) -> Runner:
    """Return a runner that remembers in *folder*, and acts on what is at *address*."""
    makers: Mapping[str, Callable[[], Runner]] = {
        "command": lambda: make_command(folder, Command(run=(address,))),
        "webhook": lambda: make_webhook(folder, WebhookTarget(url=address)),
        "libvirt": lambda: make_libvirt(folder, Hypervisor(uri=address)),
        "command for hosts": lambda: make_host_command(folder, host_work(Command(run=(address,)))),
        "webhook for hosts": lambda: make_host_webhook(
            folder, host_work(WebhookTarget(url=address))
        ),
    }
    return makers[kind]()


@dataclass(slots=True)
class Rig:
    """A runner of some *kind* with what it acts on."""

    kind: str
    folder: Path
    outside: Outside
    made: list[Runner] = field(default_factory=list)

    @property
    def first(self) -> TaskInput:
        return ORDERS[self.kind][0]

    @property
    def second(self) -> TaskInput:
        return ORDERS[self.kind][1]

    @property
    def log(self) -> TaskLog:
        return log_in(self.folder)

    def make(self) -> Runner:
        """Return another runner that finds what the last has left, as after a crash."""
        made = make_runner(self.kind, self.folder, self.outside.address)
        self.made.append(made)
        return made

    def close(self) -> None:
        """Leave no process behind."""
        for each in self.made:
            each.close()
        for order in ORDERS[self.kind]:
            self.outside.end(order)

    def wait_until_done(self, *orders: TaskInput) -> None:
        """Return when these have happened outside."""
        wait_until(lambda: {each.key for each in orders} <= {*self.outside.deeds()}, "not done")

    def carry_out(self, runner: Runner, order: TaskInput) -> Impact:
        """Have *order* carried out from begin to end."""
        begin(runner, order)
        self.wait_until_done(order)
        self.outside.end(order)
        return wait_for(runner, is_over, order)


@pytest.fixture(params=ORDERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Return each in turn, or those that a test names."""
    with ExitStack() as closing:
        made = Rig(request.param, tmp_path, OUTSIDES[request.param](tmp_path, closing))
        closing.callback(made.close)
        yield made


def each(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", kinds, indirect=True)


def held_grant(*, is_given: bool = True) -> tuple[Grant, threading.Event]:
    """Return a permit that whoever asks for it waits for, and what makes the answer come."""
    answered = threading.Event()
    return Grant(is_given=is_given, meanwhile=lambda: answered.wait(60)), answered


PROCESSES = ("command", "libvirt", "command for hosts")
MOVING = ("command", "webhook", "command for hosts", "webhook for hosts")


def test_nothing_is_begun_before_it_is(rig: Rig) -> None:
    assert rig.make().inquire(rig.first).status is ImpactStatus.NOT_BEGUN
    assert rig.outside.deeds() == {}


def test_begun_order_runs_and_says_when_to_ask_again(rig: Rig) -> None:
    runner = rig.make()

    begin(runner, rig.first)

    rig.wait_until_done(rig.first)
    said = runner.inquire(rig.first)
    assert said.status is ImpactStatus.RUNNING
    assert said.ask_again_at is not None


def test_nothing_is_touched_before_the_permit_is_there(rig: Rig) -> None:
    permit, given = held_grant()
    runner = rig.make()

    said = runner.begin(rig.first, permit)
    wait_until(lambda: permit.asked > 0, "nobody asks for the permit")
    rig.carry_out(runner, rig.second)  # so there was time enough for the first

    assert said is None
    assert rig.outside.deeds() == {rig.second.key: 1}
    assert not rig.log.has(rig.first.key)
    given.set()
    rig.wait_until_done(rig.first)
    assert permit.asked == 1


def test_refused_permit_begins_nothing_and_a_later_one_does(rig: Rig) -> None:
    runner, refused = rig.make(), Grant(is_given=False)

    runner.begin(rig.first, refused)
    rig.carry_out(runner, rig.second)

    wait_for(runner, lambda said: said.status is ImpactStatus.NOT_BEGUN, rig.first)
    assert refused.asked == 1
    assert rig.outside.deeds() == {rig.second.key: 1}
    assert not rig.log.has(rig.first.key)
    assert rig.carry_out(runner, rig.first).status is ImpactStatus.DONE


def test_permit_that_cannot_be_asked_for_begins_nothing(rig: Rig) -> None:
    def fail() -> None:
        raise OSError("the database is away")

    runner, permit = rig.make(), Grant(meanwhile=fail)
    runner.begin(rig.first, permit)
    wait_until(lambda: permit.asked > 0, "nobody asks for the permit")
    rig.carry_out(runner, rig.second)

    assert rig.outside.deeds() == {rig.second.key: 1}
    assert not rig.log.has(rig.first.key)


def test_order_that_is_begun_again_is_carried_out_once(rig: Rig) -> None:
    runner, again = rig.make(), Grant()
    for _ in range(3):
        begin(runner, rig.first)
    rig.wait_until_done(rig.first)
    wait_until(lambda: rig.log.has(rig.first.key), "there is no record")

    said = runner.begin(rig.first, again), rig.make().begin(rig.first, again)

    assert {each.status for each in said if each} == {ImpactStatus.RUNNING}
    rig.outside.end(rig.first)
    assert wait_for(runner, is_over, rig.first).status is ImpactStatus.DONE
    over = runner.begin(rig.first, again)
    assert over is not None
    assert over.status is ImpactStatus.DONE
    assert again.asked == 0
    assert rig.outside.deeds() == {rig.first.key: 1}


def test_runners_on_one_log_carry_an_order_out_once(rig: Rig) -> None:
    runners, ready = [rig.make() for _ in range(4)], threading.Barrier(4)

    def begin_together(runner: Runner) -> None:
        ready.wait(60)
        begin(runner, rig.first)

    threads = [threading.Thread(target=begin_together, args=(each,)) for each in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rig.wait_until_done(rig.first)
    rig.outside.end(rig.first)

    for runner in runners:
        assert wait_for(runner, is_over, rig.first).status is ImpactStatus.DONE
        runner.close()
    assert rig.outside.deeds() == {rig.first.key: 1}


KILLED_WITH_PERMIT = """
import os, signal, sys
from pathlib import Path
from tests.contracts.test_runner import ORDERS, make_runner
from tests.executors.conftest import Grant, wait_until
kind, folder, address = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
make_runner(kind, folder, address).begin(ORDERS[kind][0], Grant(meanwhile=die))
wait_until(lambda: False, "nobody asks for the permit")
"""


def test_server_that_is_killed_between_permit_and_record_has_begun_nothing(rig: Rig) -> None:
    run_and_be_killed(KILLED_WITH_PERMIT, rig.kind, rig.folder, rig.outside.address)

    runner = rig.make()

    assert runner.inquire(rig.first).status is ImpactStatus.NOT_BEGUN
    assert runner.repeats or rig.log.is_intended(rig.first.key), "so that it can be given back"
    assert rig.outside.deeds() == {}
    assert rig.carry_out(runner, rig.first).status is ImpactStatus.DONE
    assert rig.outside.deeds() == {rig.first.key: 1}


@each(*PROCESSES)
def test_intent_is_there_before_the_permit_is(rig: Rig) -> None:
    seen = list[bool]()
    permit = Grant(meanwhile=lambda: seen.append(rig.log.is_intended(rig.first.key)))

    rig.make().begin(rig.first, permit)
    rig.wait_until_done(rig.first)

    assert seen == [True]
    assert not rig.log.is_intended(rig.second.key)


def test_end_is_found_after_a_crash(rig: Rig) -> None:
    begin(rig.make(), rig.first)
    rig.wait_until_done(rig.first)
    # The target of a webhook may not have been heard yet.
    wait_until(lambda: rig.log.has(rig.first.key), "there is no record")

    second = rig.make()
    assert second.inquire(rig.first).status is ImpactStatus.RUNNING
    rig.outside.end(rig.first)

    assert wait_for(second, is_over, rig.first).status is ImpactStatus.DONE
    assert rig.make().inquire(rig.first).status is ImpactStatus.DONE
    assert rig.outside.deeds() == {rig.first.key: 1}


def test_orders_have_ends_of_their_own(rig: Rig) -> None:
    runner = rig.make()
    for order in ORDERS[rig.kind]:
        begin(runner, order)
    rig.wait_until_done(*ORDERS[rig.kind])

    rig.outside.end(rig.first)
    rig.outside.end(rig.second, "disk-on-fire")

    assert wait_for(runner, is_over, rig.first).status is ImpactStatus.DONE
    failed = wait_for(runner, is_over, rig.second)
    assert failed.status is ImpactStatus.FAILED
    assert "disk-on-fire" in failed.reason
    assert rig.make().inquire(rig.second) == failed, "as after a crash"


@each(*MOVING)
@pytest.mark.parametrize("fate", ["", "disk-on-fire"])
def test_machine_is_where_the_end_says_also_after_a_crash(rig: Rig, fate: str) -> None:
    runner = rig.make()
    for order in ORDERS[rig.kind]:
        begin(runner, order)
    rig.wait_until_done(*ORDERS[rig.kind])

    rig.outside.end(rig.first, fate, place="kvm-2")
    rig.outside.end(rig.second)

    said = wait_for(runner, is_over, rig.first)
    assert said.status is (ImpactStatus.FAILED if fate else ImpactStatus.DONE)
    assert said.moved_to == "kvm-2"
    assert fate in said.reason
    assert rig.make().inquire(rig.first) == said, "as after a crash"
    assert wait_for(runner, is_over, rig.second).moved_to is None


def test_closed_runner_leaves_what_it_has_begun_alone(rig: Rig) -> None:
    first = rig.make()
    begin(first, rig.first)
    rig.wait_until_done(rig.first)

    first.close()

    assert rig.make().inquire(rig.first).status is ImpactStatus.RUNNING
    rig.outside.end(rig.first)
    assert wait_for(rig.make(), is_over, rig.first).status is ImpactStatus.DONE


def numbered(rig: Rig, number: int, host: str) -> TaskInput:
    """Return one of many orders for *host*."""
    if rig.kind == "command for hosts":
        return host_order(replace(WORK, attempt=number, host=HostName(host)))
    return replace(order_for(VmName(f"vm-{number}")), host=HostName(host))


@each("command", "libvirt")
@pytest.mark.parametrize(
    ("number", "hosts", "reason"),
    [
        (32, 1, "it is waiting: at most 32 run at once for host kvm-0"),
        (64, 4, "it is waiting: at most 64 run at once"),
    ],
)
def test_order_without_a_place_is_not_begun_and_says_so(
    rig: Rig, number: int, hosts: int, reason: str
) -> None:
    holding, released = held_grant(is_given=False)
    last = Grant(is_given=False)
    runner = rig.make()
    orders = [numbered(rig, each, f"kvm-{each % hosts}") for each in range(number + 1)]

    taken = [runner.begin(order, holding) for order in orders[:number]]
    refused = runner.begin(orders[number], last)

    assert taken == [None] * number
    assert refused == Impact(status=ImpactStatus.NOT_BEGUN, reason=reason)
    assert last.asked == 0
    released.set()
    wait_until(lambda: runner.begin(orders[number], last) is None, "no place is given back")


def test_runner_that_is_made_anew_knows_what_is_just_being_begun(tmp_path: Path) -> None:
    permit, given = held_grant()
    former = make_command(tmp_path, Command(run=("/bin/true",)))
    former.begin(ORDER, permit)
    wait_until(lambda: permit.asked > 0, "nobody asks for the permit")

    with closing(replace(former, find=lambda _: Command(run=("/bin/false",)))) as runner:
        assert runner.inquire(ORDER).status is ImpactStatus.RUNNING
        assert begin(runner) is None
        given.set()

    assert wait_for(former, is_over).status is ImpactStatus.DONE


# With the scheduler.


class Assigned:
    """Has all impacts carried out by one runner."""

    rules: tuple[HostWorkRule, ...] = ()

    def __init__(self, runner: str) -> None:
        self._runner = runner

    def assign_impact(self, *_: object) -> Assignment:
        return Assignment(runner=self._runner)

    def assign_host_task(self, *_: object) -> Assignment:
        return Assignment(runner=self._runner)


@dataclass(slots=True)
class Server:
    """A server that leads, in maintenance time that is moved by hand."""

    store: Store
    assigner: Assigner
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOW))
    scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        fleet = read_fleet_file(FLEET)
        self.store.write(lambda tx: apply_fleet(tx, self.context(), fleet))
        order = EventOrder(event_type=EventType.REBOOT, resources=("web-0",), started=True)
        self.store.write(lambda tx: create_events(tx, self.context(), order))
        self.scheduler = Scheduler(
            store=self.store,
            assigner=self.assigner,
            context=self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
        )

    def context(self) -> Context:
        now = self.clock.now()
        rules = Rules(node=NODE)
        return Context(who="test", now=now, at=now, new_id=lambda: EVENT.event_id, rules=rules)

    @property
    def task(self) -> Task:
        task = self.store.read(lambda reading: reading.task((EVENT.event_id, WEB_0)))
        assert task is not None
        return task

    @property
    def event(self) -> ScheduledEvent:
        return self.store.read(lambda reading: find_event(reading, EVENT.event_id))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Store]:
    with closing(open_sqlite(tmp_path / "forewarn.db")) as opened:
        yield opened


def test_impact_by_hand_has_begun_at_once_and_waits_for_the_operator(database: Store) -> None:
    server = Server(database, Manual())

    server.scheduler.settle()
    server.clock.move_to(NOW + timedelta(days=30))
    server.scheduler.settle()

    assert server.task.state is TaskState.BEGUN
    assert server.task.said == Impact(status=ImpactStatus.RUNNING, is_by_hand=True)
    database.write(
        lambda tx: complete_event(tx, server.context(), EVENT.event_id, Outcome.SUCCEEDED, "")
    )
    assert server.event.event_status is EventStatus.COMPLETED


@pytest.mark.parametrize("failure", ["", "disk-on-fire"])
def test_simulated_impact_has_begun_at_once_and_ends_in_time(database: Store, failure: str) -> None:
    server = Server(database, Simulated(failure_of_impact=lambda *_: failure))

    server.scheduler.settle()
    begun = server.task
    assert begun.state is TaskState.BEGUN
    ends_at = begun.said.ask_again_at
    assert ends_at is not None
    server.clock.move_to(ends_at - timedelta(seconds=1))
    server.scheduler.settle()
    assert server.task == begun
    server.clock.move_to(ends_at)
    server.scheduler.settle()

    status = ImpactStatus.FAILED if failure else ImpactStatus.DONE
    assert server.task.state is TaskState.ENDED
    assert server.task.said == Impact(status=status, reason=failure)
    assert server.event.event_status is EventStatus.COMPLETED
    assert server.event.outcome is (Outcome.FAILED if failure else Outcome.SUCCEEDED)


@each("command", "webhook", "libvirt")
def test_report_after_the_operator_completed_it_changes_nothing(rig: Rig, database: Store) -> None:
    server, runner = Server(database, Assigned(rig.kind)), rig.make()
    owner = Owner(node=NODE, name="kvm-9", generation=1, heard_at=NOW)
    database.write(lambda tx: tx.put_owner(owner))

    class Only:
        problem = ""

        def runner(self, name: str) -> Runner | None:
            return runner if name == rig.kind else None

    watcher = TaskWatcher(
        database, runners=Only(), register=lambda: owner, records=rig.log, wall=SystemClock()
    )
    server.scheduler.settle()
    assert server.task.state is TaskState.RESERVED

    watcher.attend()
    rig.wait_until_done(rig.first)
    database.write(
        lambda tx: complete_event(tx, server.context(), EVENT.event_id, Outcome.FAILED, "by hand")
    )
    rig.outside.end(rig.first)
    wait_for(runner, is_over, rig.first)
    for _ in range(3):
        watcher.attend()
        server.scheduler.settle()

    assert server.event.event_status is EventStatus.COMPLETED
    assert (server.event.outcome, server.event.reason) == (Outcome.FAILED, "by hand")
