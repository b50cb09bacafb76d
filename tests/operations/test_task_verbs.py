"""Who may begin a task: its owner only, once, and not during a pause or after its end."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.roll_out import DONE, RollOut

from forewarn.domain.task import Task, TaskState
from forewarn.operations.events import complete_event
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.tasks import OwnerReplacedError, begin_task
from forewarn.storage.sqlite import open_sqlite

FLEET = """
[[virtual_machine]]
name = "web-0"
host = "kvm-1"
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[RollOut]:
    with closing(open_sqlite(tmp_path / "forewarn.db", is_durable=False)) as store:
        found = RollOut(store, FLEET)
        found.start("kvm-1")
        found.advance(minutes=16)
        yield found


def reserved(made: RollOut) -> Task:
    (task,) = made.open()
    assert task.state is TaskState.RESERVED
    return task


def may_begin(made: RollOut, task: Task, node: str) -> bool:
    return made.write(lambda tx: begin_task(tx, made.owner(node), task, made.real))


def test_task_is_begun_once_by_its_owner_and_nobody_else(made: RollOut) -> None:
    task = reserved(made)

    assert not may_begin(made, task, "b")
    assert may_begin(made, task, "a")
    assert not may_begin(made, task, "a")


def test_reserved_task_is_the_next_leaders_who_can_begin_it_at_once(made: RollOut) -> None:
    before = reserved(made)

    made.lead("b")

    after = reserved(made)
    assert (after.node, after.assignment) == ("b", before.assignment + 1)
    assert not may_begin(made, before, "a")
    assert may_begin(made, after, "b")


def test_order_of_before_a_takeover_is_not_begun_when_the_task_is_its_owners_again(
    made: RollOut,
) -> None:
    """A server that was frozen while it read its tasks is given the same one twice."""
    before = reserved(made)

    made.lead("b")
    made.lead("a")

    assert reserved(made).node == "a"
    assert not may_begin(made, before, "a")
    assert may_begin(made, reserved(made), "a")


def test_nothing_is_begun_during_a_pause(made: RollOut) -> None:
    task = reserved(made)
    made.write(lambda tx: pause_server(tx, made.context()))
    assert not may_begin(made, task, "a")

    made.write(lambda tx: resume_server(tx, made.context()))

    assert may_begin(made, task, "a")


def test_nothing_is_begun_after_the_end_of_what_it_is_for(made: RollOut) -> None:
    task = reserved(made)
    event_id = made.event("web-0").event_id
    made.write(lambda tx: complete_event(tx, made.context(), event_id))
    made.store.write(lambda tx: tx.put_task(replace(task, closed_at=None)))

    assert not may_begin(made, task, "a")
    assert made.task(task.key).state is not TaskState.BEGUN


def test_node_that_a_later_start_has_replaced_begins_nothing(made: RollOut) -> None:
    task = reserved(made)
    newer = replace(made.owner("a"), generation=2)
    made.store.write(lambda tx: tx.put_owner(newer))

    with pytest.raises(OwnerReplacedError):
        may_begin(made, task, "a")

    assert made.task(task.key).state is TaskState.RESERVED


def test_word_of_somebody_else_is_ignored(made: RollOut) -> None:
    task = reserved(made)
    assert made.begin(task)

    made.say(replace(task, node="b"), DONE)
    made.say(replace(task, assignment=2), DONE)

    assert made.task(task.key).state is TaskState.BEGUN
