"""What the owner of tasks does in one round: begin, ask, write down; each task by itself."""

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.executors.conftest import EVENT, HOSTS, NOW, WEB_0, WEB_1, log_in, wait_until
from tests.executors.host_work import WORK
from tests.findings import find_problems
from tests.host_worker.own_host import put_operation

from forewarn.bootstrap.task_records import TaskRecords
from forewarn.clocks import VirtualClock
from forewarn.domain.finding import Finding, FindingVerdict
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.task import Owner, Task, TaskKey, TaskState, assign
from forewarn.executors.task_input import PAUSED, Permit, Runner, TaskInput, host_task_input
from forewarn.executors.watcher import TaskWatcher
from forewarn.operations.context import Context
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.tasks import report_tasks
from forewarn.ports.entries import AuditEntry
from forewarn.ports.store import Store, StoreUnavailableError
from forewarn.storage.sqlite import open_sqlite

NODE = "kvm-9:00000000000000000000000000000001-7"
ANOTHER = "kvm-8:00000000000000000000000000000002-7"
OWNER = Owner(node=NODE, name="kvm-9", generation=3, heard_at=NOW)
OPERATOR = Context(who="ops", now=NOW, at=NOW, new_id=lambda: EVENT.event_id)
FIRST, SECOND = (EVENT.event_id, WEB_0), (EVENT.event_id, WEB_1)

RUNNING = Impact(status=ImpactStatus.RUNNING, ask_again_at=NOW)
NOT_BEGUN = Impact(status=ImpactStatus.NOT_BEGUN)
DONE = Impact(status=ImpactStatus.DONE)
LOST = Impact(status=ImpactStatus.UNKNOWN, reason="the process stopped")


@dataclass(slots=True)
class Remembering:
    """A runner that does what the test says, and remembers what it was told."""

    repeats: bool = False
    knows: dict[TaskKey, Impact] = field(default_factory=dict)
    troubles: dict[TaskKey, Exception] = field(default_factory=dict)
    is_full: bool = False
    before_permit: Callable[[], object] = int
    keep_permit: Callable[[Permit], object] | None = None
    began: list[TaskInput] = field(default_factory=list)
    inquired: list[TaskInput] = field(default_factory=list)

    def begin(self, order: TaskInput, permit: Permit) -> Impact | None:
        self._fail(order)
        if order.key in self.knows:
            return self.knows[order.key]
        if self.is_full:
            return Impact(status=ImpactStatus.NOT_BEGUN, reason="there is no place")
        if self.keep_permit is not None:
            self.keep_permit(permit)
            return None
        self.before_permit()
        if permit.obtain():
            self.began.append(order)
            self.knows[order.key] = RUNNING
        return None

    def inquire(self, order: TaskInput) -> Impact:
        self._fail(order)
        self.inquired.append(order)
        return self.knows.get(order.key, NOT_BEGUN)

    def close(self) -> None:
        """There is nothing to wait for."""

    def _fail(self, order: TaskInput) -> None:
        if order.key in self.troubles:
            raise self.troubles[order.key]

    @property
    def begun(self) -> list[TaskKey]:
        return [order.key for order in self.began]

    @property
    def asked(self) -> list[TaskKey]:
        return [order.key for order in self.inquired]


@dataclass(slots=True)
class Node:
    """A server whose watcher the test has look."""

    store: Store
    watcher: TaskWatcher
    runner: Remembering
    clock: VirtualClock

    def reserve(self, vm: VmName = WEB_0, **more: object) -> Task:
        """Put the impact on *vm*: reserved for this node, unless the test says more."""
        row = Task(
            subject=EVENT.event_id,
            name=vm,
            vm=vm,
            host=HOSTS[vm],
            runner="command",
            node=NODE,
            epoch=1,
            said=NOT_BEGUN,
            reserved_at=NOW,
        )
        return self.put(replace(row, **more))  # type: ignore[arg-type]

    def put(self, task: Task) -> Task:
        self.store.write(lambda tx: tx.put_task(task))
        return task

    def begun(self, vm: VmName = WEB_0, **more: object) -> Task:
        """Put the impact on *vm* as begun by this node."""
        said = Impact(status=ImpactStatus.RUNNING)
        return self.reserve(vm, **{"state": TaskState.BEGUN, "begun_at": NOW, "said": said, **more})

    def task(self, key: TaskKey = FIRST) -> Task:
        task = self.store.read(lambda reading: reading.task(key))
        assert task is not None
        return task

    @property
    def commits(self) -> int:
        return sum(self.store.commits.counts)

    def audit(self, action: str) -> tuple[AuditEntry, ...]:
        return self.store.read(lambda reading: reading.audit(action=action, limit=10))

    def findings(self) -> list[Finding]:
        return find_problems(self.store, OPERATOR)

    def register_anew(self) -> Owner:
        newer = replace(OWNER, generation=self.watcher.owner.generation + 1)
        self.store.write(lambda tx: tx.put_owner(newer))
        return newer

    def replace_owner(self) -> None:
        """Have another server begin with a copy of the state directory."""
        self.register_anew()


@dataclass(slots=True)
class OnlyRunner:
    """The runner that the executor file names."""

    named: Runner
    problem: str = ""

    def runner(self, name: str) -> Runner | None:
        return self.named if name == "command" else None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    runner, clock = Remembering(), VirtualClock(NOW)
    with closing(open_sqlite(tmp_path / "forewarn.db")) as store:
        store.write(lambda tx: tx.put_event(EVENT))
        store.write(lambda tx: tx.put_owner(OWNER))
        watcher = TaskWatcher(
            store,
            runners=OnlyRunner(runner),
            register=lambda: OWNER,
            records=log_in(tmp_path),
            wall=clock,
        )
        yield Node(store, watcher, runner, clock)


def test_reserved_task_is_begun_with_a_permit_of_the_store(node: Node) -> None:
    node.reserve(epoch=7)
    node.clock.move_to(NOW + timedelta(seconds=5))

    again = node.watcher.attend()

    assert node.runner.begun == [FIRST]
    (order,) = node.runner.began
    assert (order.epoch, order.host) == (7, "kvm-0")
    assert node.task().state is TaskState.BEGUN
    assert node.task().begun_at == NOW + timedelta(seconds=5)
    assert again == 1.0


def test_replica_that_has_handed_over_begins_nothing_for_a_while(node: Node) -> None:
    row = node.reserve()
    node.begun(WEB_1)
    node.runner.knows[SECOND] = DONE
    node.watcher.rests = lambda: True

    node.watcher.attend()
    assert (node.task(), node.runner.begun) == (row, [])
    assert node.task(SECOND).state is TaskState.ENDED, "it still reports"

    node.watcher.rests = lambda: False
    node.watcher.attend()
    assert node.runner.begun == [FIRST]


def test_task_on_a_host_is_begun(node: Node) -> None:
    put_operation(node.store, WORK)
    row = replace(
        node.reserve(), subject=WORK.operation_id, name=WORK.name, vm=None, host=WORK.host, epoch=7
    )
    node.put(row)

    node.watcher.attend()

    assert host_task_input(WORK, epoch=7) in node.runner.began
    assert node.task(row.key).state is TaskState.BEGUN


def test_begun_task_is_not_begun_again(node: Node) -> None:
    node.reserve()
    for _ in range(3):
        node.watcher.attend()

    assert node.runner.begun == [FIRST]


def test_tasks_of_other_nodes_are_left_alone(node: Node) -> None:
    node.reserve(WEB_0, node=ANOTHER)
    node.begun(WEB_1, node=ANOTHER)
    node.runner.knows[SECOND] = DONE
    before = node.commits

    assert node.watcher.attend() is None

    assert (node.runner.begun, node.runner.asked) == ([], [])
    assert node.commits == before


def test_task_that_is_assigned_to_a_node_without_tasks_is_asked_within_ten_seconds(
    node: Node,
) -> None:
    row = node.begun(node=ANOTHER)

    assert node.watcher.rounds.turn() <= 10
    node.put(assign(row, NODE, epoch=2))
    node.watcher.rounds.turn()

    assert node.runner.asked == [FIRST]


@pytest.mark.parametrize("runner", ["webhook", "manual", "simulated", "host", ""])
def test_task_of_a_runner_that_is_not_there_is_left_alone(node: Node, runner: str) -> None:
    row = node.reserve(runner=runner)

    node.watcher.attend()

    assert node.task() == row
    assert node.runner.begun == []


def test_task_of_an_event_that_is_not_there_is_left_alone(node: Node) -> None:
    row = node.put(replace(node.reserve(WEB_1, node=ANOTHER), subject="none", node=NODE))

    node.watcher.attend()

    assert node.task(row.key) == row
    assert node.runner.begun == []


@pytest.mark.parametrize("owner", [ANOTHER, NODE])
def test_task_that_was_assigned_anew_meanwhile_is_not_begun(node: Node, owner: str) -> None:
    after = replace(node.reserve(), node=owner, assignment=2)
    node.runner.before_permit = lambda: node.put(after)

    node.watcher.attend()

    assert node.runner.begun == []
    assert node.task() == after


@pytest.mark.parametrize("owner", [ANOTHER, NODE])
def test_end_of_an_earlier_assignment_is_not_written_down(node: Node, owner: str) -> None:
    row = node.begun()
    after = node.put(replace(row, node=owner, assignment=2))

    node.store.write(lambda tx: report_tasks(tx, OWNER, [(row, DONE)], NOW))

    assert node.task() == after


def test_paused_server_begins_nothing_and_says_so(node: Node) -> None:
    node.reserve()
    node.store.write(lambda tx: pause_server(tx, OPERATOR))

    node.watcher.attend()

    assert node.runner.begun == []
    assert node.task().state is TaskState.RESERVED
    assert node.task().said == Impact(status=ImpactStatus.NOT_BEGUN, reason=PAUSED)
    node.store.write(lambda tx: resume_server(tx, OPERATOR))
    node.watcher.attend()
    assert node.runner.begun == [FIRST]
    assert node.task().said == Impact(status=ImpactStatus.RUNNING)


def test_pause_that_comes_before_the_permit_wins(node: Node) -> None:
    node.reserve()
    node.runner.before_permit = lambda: node.store.write(lambda tx: pause_server(tx, OPERATOR))

    node.watcher.attend()

    assert node.runner.begun == []
    assert node.task().state is TaskState.RESERVED


def test_what_has_begun_ends_during_a_pause(node: Node) -> None:
    node.begun()
    node.runner.knows[FIRST] = DONE
    node.store.write(lambda tx: pause_server(tx, OPERATOR))

    node.watcher.attend()

    assert node.task().state is TaskState.ENDED


def test_end_is_written_down_whoever_leads(node: Node) -> None:
    node.begun(epoch=1)
    for _ in range(3):
        node.store.write(lambda tx: tx.next_epoch())
    node.runner.knows[FIRST] = Impact(status=ImpactStatus.FAILED, reason="no power")
    node.clock.move_to(NOW + timedelta(seconds=5))

    node.watcher.attend()

    assert node.task().state is TaskState.ENDED
    assert node.task().said == node.runner.knows[FIRST]
    assert node.task().ended_at == NOW + timedelta(seconds=5)


def test_end_that_an_operator_has_settled_meanwhile_stays(node: Node) -> None:
    row = node.begun()
    settled = replace(row, state=TaskState.SETTLED, said=DONE, ended_at=NOW)
    failed = Impact(status=ImpactStatus.FAILED, reason="late")
    node.put(settled)

    node.store.write(lambda tx: report_tasks(tx, OWNER, [(row, failed)], NOW))

    assert (node.task().state, node.task().said) == (TaskState.SETTLED, DONE)


def test_progress_is_shown_and_equal_words_are_not_written_again(node: Node) -> None:
    node.begun()
    node.runner.knows[FIRST] = replace(RUNNING, reason="40 %")
    node.watcher.attend()
    before = node.commits

    for number in range(3):
        later = NOW + timedelta(seconds=number)
        node.runner.knows[FIRST] = replace(RUNNING, reason="40 %", ask_again_at=later)
        node.watcher.attend()

    assert node.task().said.reason == "40 %"
    assert node.commits == before
    node.runner.knows[FIRST] = replace(RUNNING, reason="60 %")
    node.watcher.attend()
    assert node.task().said.reason == "60 %"
    assert node.commits == before + 1


def test_words_of_a_round_are_written_at_once(node: Node) -> None:
    for vm, key in ((WEB_0, FIRST), (WEB_1, SECOND)):
        node.begun(vm)
        node.runner.knows[key] = DONE
    before = node.commits

    node.watcher.attend()

    assert node.task(FIRST).is_over
    assert node.task(SECOND).is_over
    assert node.commits == before + 1


def test_task_without_a_place_stays_reserved_with_the_reason(node: Node) -> None:
    node.reserve()
    node.runner.is_full = True
    node.watcher.attend()
    before = node.commits

    node.watcher.attend()

    assert node.task().state is TaskState.RESERVED
    assert node.task().said.reason == "there is no place"
    assert node.commits == before


def test_reason_to_wait_is_not_said_of_what_has_begun_meanwhile(node: Node) -> None:
    row = node.reserve()
    begun = node.begun()
    waits = Impact(status=ImpactStatus.NOT_BEGUN, reason=PAUSED)

    node.store.write(lambda tx: report_tasks(tx, OWNER, [(row, waits)], NOW))

    assert node.task() == begun


def test_begun_task_without_a_record_and_with_an_intent_is_begun_again(node: Node) -> None:
    node.begun()
    node.watcher.records.intend(FIRST)

    node.watcher.attend()

    assert node.task().state is TaskState.RESERVED
    assert node.task().said == NOT_BEGUN
    assert node.runner.begun == []
    node.watcher.attend()
    assert node.runner.begun == [FIRST]
    assert node.task().state is TaskState.BEGUN


def test_begun_task_without_a_record_and_without_an_intent_is_reported_as_unknown(
    node: Node,
) -> None:
    node.begun()
    node.watcher.records.intend(SECOND)

    for _ in range(2):
        node.watcher.attend()

    assert node.runner.begun == []
    assert node.task().state is TaskState.BEGUN
    assert node.task().said.is_stuck
    assert node.task().said.reason == ("the records of the server do not say whether it was begun")


def test_unknown_task_stays_unknown_until_it_has_ended(node: Node) -> None:
    row = node.begun(state=TaskState.UNKNOWN, said=LOST)
    for said, is_final in ((NOT_BEGUN, True), (RUNNING, False), (LOST, True)):
        node.runner.knows[FIRST] = said
        node.watcher.attend()
        commits = node.commits
        node.watcher.attend()
        # While it runs after all, no operator can settle it.
        assert node.task() == replace(row, details={"is_final": is_final})
        assert node.commits == commits

    node.runner.knows[FIRST] = DONE
    node.watcher.attend()

    assert (node.task().state, node.task().said) == (TaskState.ENDED, DONE)


def test_unknown_task_that_was_just_about_to_begin_is_given_back(node: Node) -> None:
    node.begun(state=TaskState.UNKNOWN, said=LOST)
    node.watcher.records.intend(FIRST)

    node.watcher.attend()

    assert node.task().state is TaskState.RESERVED


def test_intent_of_lost_records_is_not_trusted(node: Node, tmp_path: Path) -> None:
    """The permit was refused, so there is an intent; then it was begun, and the records lost."""
    directory, backup = tmp_path / "state", tmp_path / "backup"
    directory.mkdir()
    records = TaskRecords(directory, node.store, NODE, "db-1")
    records.begin(NOW)
    records.log.intend(FIRST)
    shutil.copytree(directory, backup)
    records.begin(NOW)
    node.begun()
    shutil.rmtree(directory)
    backup.rename(directory)

    restored = TaskRecords(directory, node.store, NODE, "db-1")
    node.watcher.owner = restored.begin(NOW)
    node.watcher.records = restored.log
    for _ in range(2):
        node.watcher.attend()

    assert node.task().state is TaskState.UNKNOWN
    assert node.runner.begun == []


def test_task_that_only_the_records_know_is_taken_for_begun(node: Node) -> None:
    """The database was restored from a backup in which it was still reserved."""
    node.reserve()
    node.runner.knows[FIRST] = replace(RUNNING, reason="40 %")

    node.watcher.attend()

    assert node.runner.begun == []
    assert node.task().state is TaskState.BEGUN
    assert node.task().said.reason == "40 %"


def test_repeating_runner_begins_again_what_it_has_no_record_of(node: Node) -> None:
    node.runner.repeats = True
    row = node.begun()
    before = node.commits

    node.watcher.attend()

    assert node.runner.begun == [FIRST]
    assert node.task() == row
    assert node.commits == before, "the permit was given before"


@pytest.mark.parametrize("state", [TaskState.BEGUN, TaskState.UNKNOWN])
def test_repeating_runner_does_not_repeat_during_a_pause_or_what_is_unknown(
    node: Node, state: TaskState
) -> None:
    node.runner.repeats = True
    row = node.begun(state=state, said=LOST, details={"is_final": True})
    if state is TaskState.BEGUN:
        node.store.write(lambda tx: pause_server(tx, OPERATOR))

    node.watcher.attend()

    assert node.runner.begun == []
    assert node.task() == row


def test_runner_that_raises_stops_no_other_task(node: Node) -> None:
    node.begun(WEB_0)
    node.begun(WEB_1)
    node.runner.troubles[FIRST] = OSError("no space left")
    node.runner.knows[SECOND] = DONE

    with capture_logs() as logs:
        for _ in range(3):
            node.watcher.attend()

    assert node.task(SECOND).state is TaskState.ENDED
    assert node.task(FIRST).state is TaskState.BEGUN
    assert node.task(FIRST).said.is_lost
    assert node.task(FIRST).said.reason == "no space left"
    assert not node.task(FIRST).said.is_stuck, "it is asked again"
    assert [line["event"] for line in logs] == ["executor_failed"]
    node.runner.troubles.clear()
    node.runner.knows[FIRST] = DONE
    node.watcher.attend()
    assert node.task(FIRST).said == DONE


def test_runner_that_raises_has_begun_nothing(node: Node) -> None:
    node.reserve(WEB_0)
    node.reserve(WEB_1)
    node.runner.troubles[FIRST] = OSError("no space left")

    node.watcher.attend()

    assert node.runner.begun == [SECOND]
    assert node.task(FIRST).state is TaskState.RESERVED
    assert node.task(FIRST).said == Impact(status=ImpactStatus.NOT_BEGUN, reason="no space left")


def test_store_that_is_away_is_no_trouble_of_the_task(node: Node) -> None:
    node.begun()
    node.runner.troubles[FIRST] = StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        node.watcher.attend()


def test_replaced_owner_begins_nothing_and_is_told_once(node: Node) -> None:
    rows = node.reserve(WEB_0), node.reserve(WEB_1)
    node.replace_owner()

    with capture_logs() as logs:
        for _ in range(3):
            node.watcher.attend()

    assert node.watcher.is_replaced
    assert node.runner.begun == []
    assert (node.task(FIRST), node.task(SECOND)) == rows
    assert [line["event"] for line in logs] == ["state_directory_replaced"]


def test_replaced_owner_says_so_as_a_finding_once(node: Node) -> None:
    node.reserve(WEB_0)
    node.begun(WEB_1)
    node.runner.knows[SECOND] = DONE
    node.replace_owner()

    for _ in range(3):
        node.watcher.attend()

    (finding,) = node.findings()
    assert finding.verdict is FindingVerdict.FAIL
    assert "Two servers on kvm-9 use copies of one state directory" in finding.sentence


def test_forgotten_owner_registers_again_and_goes_on(node: Node) -> None:
    node.reserve()
    node.watcher.register = node.register_anew
    node.store.write(lambda tx: tx.remove_owner(NODE))

    with capture_logs() as logs:
        node.watcher.attend()
        node.watcher.attend()

    assert not node.watcher.is_replaced
    assert node.watcher.owner.generation == OWNER.generation + 1
    assert node.runner.begun == [FIRST]
    assert [line["event"] for line in logs] == ["owner_forgotten"]


def test_forgotten_owner_registers_once_whatever_is_being_begun(node: Node) -> None:
    """Several threads find out, and one of them when the others have registered again."""
    node.reserve(WEB_0)
    node.reserve(WEB_1)
    node.watcher.register = node.register_anew
    permits = list[Permit]()
    node.runner.keep_permit = permits.append
    node.watcher.attend()
    node.store.write(lambda tx: tx.remove_owner(NODE))

    at_once = threading.Barrier(len(permits))

    def obtain(permit: Permit) -> bool:
        at_once.wait(30)
        return permit.obtain()

    with ThreadPoolExecutor(len(permits)) as threads:
        list(threads.map(obtain, permits))

    assert len(permits) == 2
    assert not node.watcher.is_replaced
    assert node.watcher.owner.generation == OWNER.generation + 1
    assert node.findings() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([RUNNING, RUNNING, DONE, DONE], ["running", "done"]),
        ([DONE, DONE], ["done"]),
        ([Impact(status=ImpactStatus.FAILED)] * 2, ["failed"]),
        ([NOT_BEGUN, NOT_BEGUN], []),
        ([LOST, LOST], []),
    ],
)
def test_owner_of_a_settled_task_reports_what_it_still_knows_once(
    node: Node, words: list[Impact], told: list[str]
) -> None:
    row = node.begun(state=TaskState.SETTLED, said=Impact(status=ImpactStatus.FAILED))

    for said in words:
        node.runner.knows[FIRST] = said
        node.watcher.attend()

    assert [entry.detail for entry in node.audit("task late")] == told
    assert len(node.findings()) == min(len(told), 1)
    assert (node.task().state, node.task().said) == (row.state, row.said)


@pytest.mark.parametrize("state", [TaskState.BEGUN, TaskState.UNKNOWN, TaskState.SETTLED])
def test_runner_is_told_what_an_operator_has_settled(node: Node, state: TaskState) -> None:
    node.begun(state=state)

    node.watcher.attend()

    assert [order.is_settled for order in node.runner.inquired] == [state is TaskState.SETTLED]


def test_replaced_owner_reports_nothing(node: Node) -> None:
    row = node.begun()
    node.runner.knows[FIRST] = DONE
    node.replace_owner()

    with capture_logs() as logs:
        for _ in range(3):
            node.watcher.attend()

    assert node.watcher.is_replaced
    assert node.task() == row
    assert node.runner.asked == [FIRST], "it has stopped to look"
    assert [line["event"] for line in logs] == ["state_directory_replaced"]


def test_replaced_owner_gives_nothing_back(node: Node) -> None:
    row = node.begun()
    node.watcher.records.intend(FIRST)
    node.replace_owner()

    with capture_logs() as logs:
        for _ in range(3):
            node.watcher.attend()

    assert node.watcher.is_replaced
    assert node.task() == row
    assert [line["event"] for line in logs] == ["state_directory_replaced"]


def test_replaced_owner_repeats_nothing(node: Node) -> None:
    node.runner.repeats = True
    node.begun()
    node.replace_owner()

    node.watcher.attend()

    assert node.watcher.is_replaced
    assert node.runner.begun == []


def test_owner_that_was_not_replaced_says_so(node: Node) -> None:
    node.reserve()

    node.watcher.attend()

    assert not node.watcher.is_replaced


looked = threading.Event()


class Looking(TaskWatcher):
    """A watcher that tells that it has looked."""

    def attend(self) -> float | None:
        after = super().attend()
        looked.set()
        return after


def test_task_is_begun_as_soon_as_it_is_reserved(node: Node) -> None:
    """Otherwise it would be begun with the next round, ten seconds later."""
    watcher = Looking(
        node.store,
        runners=node.watcher.runners,
        register=lambda: OWNER,
        records=node.watcher.records,
        wall=node.clock,
    )
    looked.clear()
    node.store.listen(watcher.note)
    thread = threading.Thread(target=watcher.rounds.run)
    thread.start()
    try:
        assert looked.wait(60), "it does not look"
        node.reserve()
        wait_until(lambda: node.runner.begun == [FIRST], "it is not begun", seconds=30)
    finally:
        watcher.rounds.stop()
        thread.join(60)
