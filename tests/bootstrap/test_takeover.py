"""What one leader reserved and another finds: replicas on one database, with files of their own."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree, rmtree
from typing import TypeAlias

import pytest
from tests.executors.conftest import SECONDS, ask_until, is_over, wait_until
from tests.executors.target import OrderTarget
from tests.web_site import OUTBOUND

from forewarn.bootstrap.start import make_rules, new_id
from forewarn.bootstrap.workforce import Workforce, choose_workforce
from forewarn.clocks import SystemClock
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.knowledge import Knowledge
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, complete_event, create_events, find_event
from forewarn.operations.explain import explain_event
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.restoring import RESTORED_AT
from forewarn.ports.executor import Executor
from forewarn.ports.store import LeaseLostError
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType
from forewarn.scheduler.scheduler import Scheduler
from forewarn.settings import make_settings
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore
from forewarn.storage.postgres_session import PostgresAddress

FLEET = '[[virtual_machine]]\nname = "web-0"\nhost = "kvm-0"\n'
WEB_0 = VmName("web-0")
UNKNOWN = (
    "The state of the impact on web-0 is unknown: replica db-1 may have begun the impact; make "
    "db-1 the leader again, or check the virtual machine, then complete the event. An impact is "
    "never begun twice, so the server waits."
)
OPERATION = HostOperation(
    operation_id=OperationId("9F6D1B52-6E70-4E36-8C5A-6B4C8C4E7D10"),
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    created_at=SystemClock().now(),
)
WORK = HostTask(
    operation_id=OPERATION.operation_id,
    maintenance_id=OPERATION.maintenance_id,
    event_type=OPERATION.event_type,
    host=OPERATION.host,
    kind=HostTaskKind.WORK,
)
StopLeading: TypeAlias = "Callable[[Node], Callable[[], None]]"
NOT_BEGUN = Impact(status=ImpactStatus.NOT_BEGUN)
SOON = 0.05


@dataclass
class StoppedExecutor:
    """An executor of a leader that stops just before it begins something, until it is woken."""

    executor: Executor
    stopped: threading.Event = field(default_factory=threading.Event)
    woken: threading.Event = field(default_factory=threading.Event)

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        self.stopped.set()
        assert self.woken.wait(SECONDS), "nobody woke it"
        return self.executor.begin(event, vm, epoch=epoch)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        return self.executor.inquire(event_id, vm)


class Node:
    """A replica without its network, which leads when it is told to and is never heard of again."""

    def __init__(self, url: str, node: str, settings: dict[str, object], stack: ExitStack) -> None:
        made = make_settings(settings)
        self.store = stack.enter_context(closing(PostgresStore(PostgresAddress(url), node=node)))
        self.leadership = DatabaseLeadership(self.store.address, node, seconds=SOON)
        stack.callback(self.leadership.close)
        make = choose_workforce(made, OUTBOUND)
        self.workforce: Workforce = stack.enter_context(make(self.store, SystemClock()))
        self._rules = make_rules(made)

    def context(self) -> Context:
        now = SystemClock().now()
        return Context(who="test", now=now, at=now, new_id=new_id, rules=self._rules)

    def campaign(self) -> int:
        deadline = time.monotonic() + SECONDS
        while (epoch := self.leadership.campaign()) is None:
            assert time.monotonic() < deadline, "the lease of the other does not end"
        return epoch

    def lead(self, executor: Executor | None = None) -> Scheduler:
        return Scheduler(
            store=self.store,
            executor=executor or self.workforce.executor,
            context=self.context,
            epoch=self.campaign(),
        )

    def create(self) -> ScheduledEvent:
        order = EventOrder(event_type=EventType.REBOOT, resources=("web-0",), started=True)
        return self.store.write(lambda tx: create_events(tx, self.context(), order))[0]

    def find(self, event: ScheduledEvent) -> ScheduledEvent:
        return self.store.read(lambda reading: find_event(reading, event.event_id))

    def explain(self, event: ScheduledEvent) -> list[str]:
        found = self.store.read(
            lambda reading: explain_event(reading, self.context(), event.event_id)
        )
        return [reason.sentence for reason in found.reasons]


class Lab:
    """Nodes on one database, and what is really done for them."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.target = OrderTarget()
        stack.enter_context(self.target.listening())
        self._url = url
        self._stack = stack
        script = folder / "script"
        script.write_text(f'#!/bin/sh\necho "$EVENT_VM$OPERATION_TASK" >> {folder}/deeds\n')
        script.chmod(0o755)
        (folder / "command.toml").write_text(
            f'[[command]]\nrun = ["{script}"]\n[[host_work]]\nrun = ["{script}"]\n'
        )
        # One of either kind, so that both contractors are there for the work on hosts.
        (folder / "webhook.toml").write_text(
            f'[[webhook]]\nurl = "{self.target.url}"\n'
            f'[[host_work]]\nhosts = ["other"]\nrun = ["{script}"]\n'
            f'[[host_work]]\nurl = "{self.target.url}"\n'
        )

    def node(self, machine: str, kind: str = "command", *, number: int = 0) -> Node:
        """Return the node with that state directory of the machine; *number* says which."""
        state_dir = self.folder / f"{machine}-{number}"
        state_dir.mkdir(exist_ok=True)
        settings: dict[str, object] = {"state_dir": state_dir}
        if kind == "simulated":
            settings["executor"] = kind
        else:
            settings["executor_file"] = self.folder / f"{kind}.toml"
        return Node(self._url, f"{machine}:{number:032x}", settings, self._stack)

    def deeds(self) -> list[str]:
        try:
            return (self.folder / "deeds").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []


@pytest.fixture
def lab(postgres_url: str, tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        made = Lab(postgres_url, tmp_path, stack)
        first = made.node("first")
        fleet = read_fleet_file(FLEET)
        first.store.write(lambda tx: apply_fleet(tx, first.context(), fleet))
        yield made


@pytest.fixture
def stop_leading() -> Iterator[StopLeading]:
    """Have a node lead until it is about to begin something; return what lets it go on."""
    with ThreadPoolExecutor() as pool, ExitStack() as stack:

        def stop(node: Node) -> Callable[[], None]:
            executor = StoppedExecutor(node.workforce.executor)
            stack.callback(executor.woken.set)
            end = pool.submit(node.lead(executor).settle)
            assert executor.stopped.wait(SECONDS), "nothing was about to begin"

            def wake() -> None:
                executor.woken.set()
                end.result(SECONDS)

            return wake

        yield stop


def settle_until_over(scheduler: Scheduler, node: Node, event: ScheduledEvent) -> ScheduledEvent:
    def is_completed() -> bool:
        scheduler.settle()
        return node.find(event).event_status is EventStatus.COMPLETED

    wait_until(is_completed, "the event does not complete")
    return node.find(event)


def test_what_another_node_was_about_to_begin_is_unknown_and_explained_alike(
    lab: Lab, stop_leading: StopLeading
) -> None:
    one, two, three = lab.node("db-1"), lab.node("db-2"), lab.node("db-3")
    event = one.create()
    wake = stop_leading(one)

    scheduler = two.lead()
    scheduler.settle()

    said = two.workforce.executor.begin(event, WEB_0, epoch=scheduler.epoch)
    assert (said.status, said.ask_again_at) == (ImpactStatus.UNKNOWN, None)
    assert [node.explain(event) for node in (one, two, three)] == [[UNKNOWN]] * 3
    with pytest.raises(LeaseLostError):
        wake()
    third = three.lead()
    third.settle()
    assert three.explain(event) == [UNKNOWN], "whoever said so last does not know either"
    assert lab.deeds() == []


def test_node_that_leads_again_knows_and_begins_what_was_not_begun(
    lab: Lab, stop_leading: StopLeading
) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    wake = stop_leading(one)
    two.lead().settle()
    with pytest.raises(LeaseLostError):
        wake()

    ended = settle_until_over(one.lead(), one, event)

    assert ended.outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def test_script_of_another_node_runs_once_and_its_end_is_known_there(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    one.lead().settle()  # it is gone before it has heard anything
    wait_until(lambda: bool(lab.deeds()), "the script does not run")

    two.lead().settle()
    explained = two.explain(event)
    two.lead().settle()
    assert two.find(event).event_status is EventStatus.STARTED
    ended = settle_until_over(one.lead(), one, event)

    assert explained == [UNKNOWN]
    assert ended.outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def test_operator_completes_what_nobody_can_tell(lab: Lab, stop_leading: StopLeading) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    wake = stop_leading(one)
    scheduler = two.lead()
    scheduler.settle()

    two.store.write(
        lambda tx: complete_event(tx, two.context(), event.event_id, Outcome.SUCCEEDED, "")
    )
    scheduler.settle()
    with pytest.raises(LeaseLostError):
        wake()

    about = (event.event_id, WEB_0)
    assert two.store.read(lambda reading: reading.reserved_on(about)) is None
    assert lab.deeds() == [], "what was completed is not begun afterwards"


def test_processes_with_one_state_directory_are_one_node(
    lab: Lab, stop_leading: StopLeading
) -> None:
    one, two = lab.node("db-1"), lab.node("db-1")
    event = one.create()
    wake = stop_leading(one)

    ended = settle_until_over(two.lead(), two, event)
    with pytest.raises(LeaseLostError):
        wake()

    assert ended.outcome is Outcome.SUCCEEDED
    assert lab.deeds() == ["web-0"]


def test_webhook_is_told_again_by_another_node_and_does_it_once(lab: Lab) -> None:
    one, two = lab.node("db-1", "webhook"), lab.node("db-2", "webhook")
    event = one.create()
    one.lead().settle()
    wait_until(lambda: bool(lab.target.deeds), "nothing was posted")
    lab.target.end("web-0", "done")

    ended = settle_until_over(two.lead(), two, event)

    posts = [asked.headers for asked in lab.target.asked if asked.method == "POST"]
    keys = {
        (headers["forewarn-event-id"], headers["forewarn-virtual-machine"]) for headers in posts
    }
    assert ended.outcome is Outcome.SUCCEEDED
    assert len(posts) == 2
    assert keys == {(event.event_id, "web-0")} == set(lab.target.deeds)


def test_simulated_impact_is_begun_by_whoever_leads(lab: Lab, stop_leading: StopLeading) -> None:
    one, two = lab.node("db-1", "simulated"), lab.node("db-2", "simulated")
    event = one.create()
    wake = stop_leading(one)

    two.lead().settle()

    with pytest.raises(LeaseLostError):
        wake()
    about = (event.event_id, WEB_0)
    impact = two.store.read(lambda reading: reading.simulated_impact(*about))
    assert impact is not None
    assert two.workforce.executor.inquire(*about).status is ImpactStatus.RUNNING


def reserve_work(node: Node) -> None:
    """Have *node* record that it is about to work on the host, and end there."""
    kernel = Maintenance(
        maintenance_id=OPERATION.maintenance_id,
        event_type=OPERATION.event_type,
        started_at=OPERATION.created_at,
    )
    epoch = node.campaign()
    node.store.write(lambda tx: tx.put_maintenance(kernel))
    node.store.write(lambda tx: tx.put_operation(OPERATION))
    node.store.write(lambda tx: tx.reserve(Knowledge(tasks={WORK: NOT_BEGUN}), epoch=epoch))


def test_work_on_a_host_that_another_node_reserved_is_unknown(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    reserve_work(one)
    worker = two.workforce.host_worker
    assert worker is not None

    said = worker.inquire(WORK)

    assert said.status is ImpactStatus.UNKNOWN
    assert said.reason == (
        "replica db-1 may have begun the impact; make db-1 the leader again, or check the host, "
        "then skip it"
    )
    assert worker.begin(WORK, epoch=two.campaign()) == said
    own = one.workforce.host_worker
    assert own is not None
    assert own.inquire(WORK) == NOT_BEGUN
    assert lab.deeds() == []


def test_work_that_a_webhook_does_is_told_again_by_another_node(lab: Lab) -> None:
    one, two = lab.node("db-1", "webhook"), lab.node("db-2", "webhook")
    reserve_work(one)
    worker = two.workforce.host_worker
    assert worker is not None
    lab.target.end("work", "done")

    before = worker.inquire(WORK)
    worker.begin(WORK, epoch=two.campaign())

    assert before == NOT_BEGUN
    assert ask_until(lambda: worker.inquire(WORK), is_over).status is ImpactStatus.DONE


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            f"db-1:{1:032x}",
            "another replica on db-1 may have begun the impact; make it the leader again, or ",
        ),
        ("", "a server with another state directory may have begun the impact; "),
    ],
)
def test_other_state_directories_are_told_apart(lab: Lab, node: str, sentence: str) -> None:
    one = lab.node("db-1")
    event = one.create()
    reserved = Knowledge(impacts={(event.event_id, WEB_0): NOT_BEGUN})
    with closing(PostgresStore(one.store.address, node=node)) as store:
        store.write(lambda tx: tx.reserve(reserved, epoch=tx.next_epoch()))

    said = one.workforce.executor.inquire(event.event_id, WEB_0)

    assert said.reason == f"{sentence}check the virtual machine, then complete the event"


def test_lost_records_of_one_node_are_no_doubt_on_another(lab: Lab) -> None:
    one, two = lab.node("db-1"), lab.node("db-2")
    event = one.create()
    rmtree(lab.folder / "db-1-0" / "impacts")

    said = [
        node.workforce.executor.inquire(event.event_id, WEB_0) for node in (lab.node("db-1"), two)
    ]

    assert "the executor's records were lost" in said[0].reason
    assert said[1] == NOT_BEGUN


@pytest.mark.parametrize("harm", ["lost", "copied"])
def test_records_that_others_go_on_with_are_in_doubt_from_then_on(lab: Lab, harm: str) -> None:
    one = lab.node("db-1")
    state = lab.folder / "db-1-0"
    if harm == "lost":
        rmtree(state / "impacts")
    else:
        original = copytree(state, lab.folder / "original")
        lab.node("db-1")  # a clone of the machine, with the same files
        rmtree(state)
        original.rename(state)
    event = one.create()

    one.lead().settle()

    (said,) = one.explain(event)
    assert "the executor's records were lost, or another server uses a copy of them" in said
    assert lab.deeds() == []


@pytest.mark.parametrize("kind", ["command", "webhook"])
def test_restored_database_does_not_tell_what_other_nodes_have_begun(lab: Lab, kind: str) -> None:
    one = lab.node("db-1", kind)
    event = one.create()
    restored_at = one.find(event).created_at
    one.store.write(lambda tx: tx.put_setting(RESTORED_AT, restored_at.isoformat()))

    said = one.workforce.executor.inquire(event.event_id, WEB_0)
    one.store.write(
        lambda tx: complete_event(tx, one.context(), event.event_id, Outcome.SUCCEEDED, "")
    )
    later = one.workforce.executor.inquire(one.create().event_id, WEB_0)

    assert ("the database was restored" in said.reason) is (kind == "command")
    assert later == NOT_BEGUN
