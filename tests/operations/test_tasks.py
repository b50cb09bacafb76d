"""What owners may do to tasks, whoever leads: every verb is a compare-and-set."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.tasks import DONE, RUNNING, Assigner, word

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import STATUS_URL, Owner, Task, TaskState, assign, begin, lose
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, complete_event, create_events
from forewarn.operations.incidents import read_incidents
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.restoring import RESTORED_AT
from forewarn.operations.tasks import (
    OwnerPresentError,
    OwnerReplacedError,
    TaskSelection,
    begin_task,
    find_impacts,
    find_ownership,
    find_tasks,
    forget_owner,
    give_back_task,
    is_still_begun,
    lose_own_tasks,
    report_tasks,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType
from forewarn.scheduler.tick import decide_and_record


class Node:
    """One server, and the impact that is reserved for it."""

    def __init__(self, store: Store, operator: Context) -> None:
        self.store = store
        self.now = operator.at
        self.context = replace(operator, rules=Rules(node="n1"))
        self.owner = Owner(node="n1", name="n1", generation=1, heard_at=self.now)
        store.write(lambda tx: tx.put_owner(self.owner))
        order = EventOrder(event_type=EventType.REBOOT, resources=("solo",), started=True)
        self.event: ScheduledEvent = store.write(lambda tx: create_events(tx, operator, order))[0]
        self.look()
        self.first = self.task

    def look(self) -> None:
        self.store.write(
            lambda tx: decide_and_record(tx, self.context, {}, Assigner(), epoch=tx.next_epoch())
        )

    @property
    def task(self) -> Task:
        (task,) = self.store.read(lambda reading: reading.tasks_of(self.event.event_id))
        return task

    def put(self, task: Task) -> None:
        self.store.write(lambda tx: tx.put_task(task))

    def begin(self) -> bool:
        return self.store.write(lambda tx: begin_task(tx, self.owner, self.first, self.now))

    def report(self, said: Impact) -> None:
        words = [(self.first, said)]
        self.store.write(lambda tx: report_tasks(tx, self.owner, words, self.now))

    def give_back(self) -> None:
        self.store.write(lambda tx: give_back_task(tx, self.owner, self.first, self.now))

    def is_still_begun(self) -> bool:
        return self.store.read(lambda reading: is_still_begun(reading, self.owner, self.first))


@pytest.fixture
def node(fleet: Store, operator: Context) -> Node:
    return Node(fleet, operator)


def test_task_is_begun_once(node: Node) -> None:
    assert [node.begin(), node.begin()] == [True, False]
    assert node.task == begin(node.first, node.now)
    assert node.is_still_begun()


def test_task_is_not_begun_while_the_server_is_paused(node: Node) -> None:
    node.store.write(lambda tx: pause_server(tx, node.context))
    assert not node.begin()

    node.store.write(lambda tx: resume_server(tx, node.context))
    assert node.begin()


def test_task_is_not_begun_when_its_event_is_over(node: Node) -> None:
    node.store.write(lambda tx: complete_event(tx, node.context, node.event.event_id))

    assert not node.begin()


@pytest.mark.parametrize(("has_others", "begins"), [(True, False), (False, True)])
def test_task_is_not_begun_if_another_node_may_have_before_the_database_was_restored(
    node: Node, *, has_others: bool, begins: bool
) -> None:
    if has_others:
        other = replace(node.owner, node="n2")
        node.store.write(lambda tx: tx.put_owner(other))
    node.store.write(lambda tx: tx.put_setting(RESTORED_AT, node.now.isoformat()))

    assert node.begin() is begins


VERBS: dict[str, Callable[[Node], object]] = {
    "begin": Node.begin,
    "report": lambda node: node.report(DONE),
    "give back": Node.give_back,
}


@pytest.mark.parametrize("verb", VERBS)
def test_old_owner_changes_nothing_any_more(node: Node, verb: str) -> None:
    theirs = assign(node.first, "n2", epoch=7)
    node.put(theirs)

    VERBS[verb](node)

    assert node.task == theirs
    assert not node.is_still_begun()


@pytest.mark.parametrize("verb", VERBS)
def test_server_that_was_replaced_is_refused(node: Node, verb: str) -> None:
    node.store.write(lambda tx: tx.put_owner(replace(node.owner, generation=2)))

    with pytest.raises(OwnerReplacedError, match="copy of the state directory n1"):
        VERBS[verb](node)

    assert node.task == node.first


def test_first_end_is_the_last_word(node: Node) -> None:
    node.begin()
    node.report(word(ImpactStatus.RUNNING, "60 %"))
    running = node.task
    node.report(DONE)
    ended = node.task

    node.report(word(ImpactStatus.FAILED, "too late"))
    node.give_back()
    node.report(RUNNING)

    assert (running.state, running.said.reason) == (TaskState.BEGUN, "60 %")
    assert (ended.state, ended.said, ended.ended_at) == (TaskState.ENDED, DONE, node.now)
    assert node.task == ended


def test_reason_for_which_a_task_waits_is_written_down(node: Node) -> None:
    waiting = word(ImpactStatus.NOT_BEGUN, "at most 64 run at once")

    node.report(waiting)

    assert node.task == replace(node.first, said=waiting)
    assert node.store.read(find_impacts) == {(node.event.event_id, "solo"): waiting}


def test_end_that_only_the_records_know_of_is_believed(node: Node) -> None:
    node.report(DONE)

    assert (node.task.state, node.task.begun_at) == (TaskState.ENDED, node.now)


def test_task_of_which_nobody_knew_ends_when_its_owner_is_back(node: Node) -> None:
    node.begin()
    node.put(lose(node.task, "n1 has been away"))
    node.report(RUNNING)
    still = node.task.state

    node.report(DONE)

    assert (still, node.task.state) == (TaskState.UNKNOWN, TaskState.ENDED)


def test_unknown_task_of_an_owner_that_is_back_is_not_listed_as_one_of_an_owner_that_is_away(
    node: Node,
) -> None:
    node.store.write(lambda tx: tx.put_owner(replace(node.owner, name="db-1")))
    node.begin()
    node.put(lose(node.task, "replica db-1 began it, and has been away", is_final=False))

    (found,) = node.store.read(lambda r: find_tasks(r, node.context, TaskSelection()))

    assert (found.away_since, found.can_settle) == (None, False)
    assert found.reason == "db-1 is back, and has not reported its end yet"


@pytest.mark.parametrize("is_lost", [True, False])
def test_task_that_was_not_begun_after_all_is_begun_again(node: Node, *, is_lost: bool) -> None:
    node.begin()
    if is_lost:
        node.put(lose(node.task, "n1 has been away"))

    node.give_back()

    assert node.task.state is TaskState.RESERVED
    assert node.begin()


def test_node_without_its_records_knows_nothing_of_its_tasks(node: Node) -> None:
    for _ in range(2):
        node.store.write(lambda tx: lose_own_tasks(tx, "n2", "not theirs", node.now))
        node.store.write(lambda tx: lose_own_tasks(tx, "n1", "the records were lost", node.now))

    assert node.task == lose(node.first, "the records were lost")


def test_owner_is_waited_for_and_then_nobody_knows(node: Node) -> None:
    node.begin()
    node.store.write(lambda tx: tx.put_owner(replace(node.owner, node="n2")))
    grace = node.context.rules.owner_grace
    seen: list[tuple[TaskState, bool]] = []

    for silence in (timedelta(seconds=9), timedelta(seconds=10), grace):
        moment = node.now + silence
        node.context = replace(node.context, at=moment, now=moment, rules=Rules(node="n2"))
        known = node.store.read(lambda reading: find_ownership(reading, node.context))
        is_away = known.away_since(node.task) is not None
        node.look()
        seen.append((node.task.state, is_away))

    begun, unknown = TaskState.BEGUN, TaskState.UNKNOWN
    assert seen == [(begun, False), (begun, True), (unknown, True)]
    assert node.task.said.reason.startswith("replica n1 began it, and has been away since")


def test_task_is_settled_when_an_operator_completes_its_event(node: Node) -> None:
    node.begin()
    node.put(lose(node.task, "nobody knows"))
    node.store.write(lambda tx: complete_event(tx, node.context, node.event.event_id))

    node.look()
    node.look()
    node.report(word(ImpactStatus.FAILED, "too late"))

    task = node.task
    assert (task.state, task.said.status, task.closed_at) == (
        TaskState.SETTLED,
        ImpactStatus.DONE,
        node.now,
    )
    assert node.store.read(lambda reading: reading.tasks()) == ()
    (incident,) = node.store.read(read_incidents)
    assert "as failed, but it was settled as done" in incident.sentence
    assert incident.hint == "check what it has done"


def test_address_that_tells_how_far_a_task_is_is_kept_in_its_row(node: Node) -> None:
    node.begin()

    node.report(Impact(status=ImpactStatus.RUNNING, status_url="https://target/7"))
    node.report(word(ImpactStatus.RUNNING, "60 %"))

    assert node.task.details[STATUS_URL] == "https://target/7"
    assert (node.task.said.status_url, node.task.said.reason) == (None, "60 %")


def test_late_report_that_agrees_with_the_operator_needs_no_action(node: Node) -> None:
    node.begin()
    node.put(lose(node.task, "nobody knows"))
    node.store.write(lambda tx: complete_event(tx, node.context, node.event.event_id))

    node.look()
    node.report(word(ImpactStatus.DONE))

    (incident,) = node.store.read(read_incidents)
    assert "as done, as it was settled" in incident.sentence
    assert incident.hint == ""


def test_reason_to_wait_that_comes_late_is_no_word_on_what_has_begun(node: Node) -> None:
    assert node.begin()

    node.report(Impact(status=ImpactStatus.NOT_BEGUN, reason="at most 32 run at once"))

    assert node.task.said == Impact(status=ImpactStatus.RUNNING)


@pytest.mark.parametrize("name", ["DB-1", "n1"])
def test_replica_is_forgotten_by_others_only_and_its_unknown_tasks_can_be_settled(
    node: Node, name: str
) -> None:
    heard_at = node.now + timedelta(minutes=5)
    assert node.begin()
    node.store.write(lambda tx: tx.put_owner(replace(node.owner, name="db-1", heard_at=heard_at)))
    node.put(lose(node.task, "it is away", is_final=False))
    later = node.now + timedelta(hours=1)
    other = replace(node.context, at=later, rules=Rules(node="n2"))

    with pytest.raises(OwnerPresentError, match="it answers this request"):
        node.store.write(lambda tx: forget_owner(tx, node.context, "n1"))
    node.store.write(lambda tx: forget_owner(tx, other, name))

    assert node.task.details == {"is_final": True}
    assert node.store.read(lambda reading: reading.owners()) == ()
    (report,) = node.store.read(lambda reading: find_tasks(reading, other, TaskSelection()))
    assert (report.away_since, report.can_settle) == (heard_at, True)


def test_replica_that_lost_its_disk_is_forgotten_beside_the_new_one_of_its_name(
    node: Node,
) -> None:
    assert node.begin()
    later = node.now + timedelta(hours=1)
    new = replace(node.owner, node="n2", heard_at=later)
    node.store.write(lambda tx: tx.put_owner(new))
    asked = replace(node.context, at=later, rules=Rules(node="n2"))

    lost = node.store.write(lambda tx: forget_owner(tx, asked, "n1"))

    assert [task.task_id for task in lost] == [node.task.task_id]
    assert node.store.read(lambda reading: reading.owners()) == (new,)
    with pytest.raises(OwnerPresentError, match="it answers this request"):
        node.store.write(lambda tx: forget_owner(tx, asked, "n1"))
