"""Tasks that a host does not fetch in time, or during a pause."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.executors.conftest import EVENT
from tests.executors.host_work import WORK
from tests.host_worker.own_host import HOST, known, reserve, store_with

from forewarn.clocks import SystemClock
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.phrases import say_moment
from forewarn.domain.task import TaskState
from forewarn.executors.configuration import FetchedByHost
from forewarn.executors.simulated import Manual
from forewarn.executors.task_input import host_task_input
from forewarn.operations.context import Context, Rules
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.tasks import TakingRefusedError, fetching_node, take_task
from forewarn.ports.store import Store
from forewarn.scheduler.scheduler import Scheduler

KEY = (WORK.operation_id, WORK.name)
LIMIT = timedelta(minutes=10)
SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Leader:
    """A leader at a moment of real time that the test sets."""

    store: Store
    at: datetime = field(default_factory=SystemClock().now)

    def context(self) -> Context:
        rules = Rules(node="kvm-9:node")
        return Context(
            who="ops", now=self.at, at=self.at, new_id=lambda: EVENT.event_id, rules=rules
        )

    def settle(self) -> None:
        epoch = self.store.read(lambda reading: reading.lease_epoch())
        Scheduler(store=self.store, assigner=Manual(), context=self.context, epoch=epoch).settle()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with store_with(WORK, tmp_path) as opened:
        made = Leader(opened)
        kernel = Maintenance(
            maintenance_id=WORK.maintenance_id, event_type=WORK.event_type, started_at=made.at
        )
        opened.write(lambda tx: tx.put_maintenance(kernel))
        made.at = reserve(opened).reserved_at
        yield made


def test_task_is_assigned_to_the_host_with_the_order_and_the_time_it_has() -> None:
    order = host_task_input(WORK, epoch=0).content

    assigned = FetchedByHost(within=timedelta(minutes=5)).assign(WORK)

    assert (assigned.runner, assigned.node) == ("host", fetching_node(HOST))
    assert assigned.said.status is ImpactStatus.NOT_BEGUN
    assert assigned.said.reason.startswith("the host has not fetched it yet; check that forewarn")
    assert assigned.details["order"] == order
    assert assigned.details["within_seconds"] == 300
    assert assigned.details["not_fetched"].startswith("the host did not fetch it within 5m; check")


def test_host_that_does_not_fetch_in_time_has_failed_and_comes_too_late(leader: Leader) -> None:
    leader.at += LIMIT - SECOND
    leader.settle()
    assert known(leader.store).state is TaskState.RESERVED
    leader.at += SECOND
    leader.settle()

    task = known(leader.store)
    assert task.state is TaskState.WITHDRAWN
    assert task.said.status is ImpactStatus.FAILED
    assert task.said.reason.startswith("the host did not fetch it within 10m; check that forewarn")
    with pytest.raises(TakingRefusedError, match="it is withdrawn"):
        leader.store.write(
            lambda tx: take_task(tx, leader.context(), HOST, KEY, {"ticket": "late"})
        )


def test_host_that_took_it_has_all_the_time_while_it_reports(leader: Leader) -> None:
    leader.store.write(lambda tx: take_task(tx, leader.context(), HOST, KEY, {"ticket": "ours"}))

    leader.at += LIMIT / 4
    leader.settle()

    assert known(leader.store).state is TaskState.BEGUN


def test_host_that_took_it_and_is_silent_is_given_up_after_the_grace(leader: Leader) -> None:
    leader.store.write(lambda tx: take_task(tx, leader.context(), HOST, KEY, {"ticket": "ours"}))
    since = leader.at

    leader.at += timedelta(minutes=30)
    leader.settle()

    task = known(leader.store)
    assert task.state is TaskState.UNKNOWN
    assert task.said.reason == f"the host began it, and has been away since {say_moment(since)}"


def test_time_to_fetch_begins_anew_after_a_pause(leader: Leader) -> None:
    leader.store.write(lambda tx: pause_server(tx, leader.context()))
    leader.at += LIMIT
    leader.settle()
    assert known(leader.store).state is TaskState.RESERVED

    leader.store.write(lambda tx: resume_server(tx, leader.context()))
    leader.at += LIMIT - SECOND
    leader.settle()
    assert known(leader.store).state is TaskState.RESERVED

    leader.at += SECOND
    leader.settle()
    assert known(leader.store).state is TaskState.WITHDRAWN


def test_what_a_host_is_to_fetch_is_not_given_to_the_leader(leader: Leader) -> None:
    leader.settle()

    assert known(leader.store).node == fetching_node(HOST)
