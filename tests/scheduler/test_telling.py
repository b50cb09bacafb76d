"""What people are told about Maintenances, by the loop on a real store."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scheduler.test_answers import MINUTE, STEP, Rollout

from forewarn.domain.course import Course
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.notification import Notification, Target
from forewarn.executors.simulated import Simulated
from forewarn.operations.context import Context, Rules
from forewarn.operations.maintenances import (
    abort_maintenance,
    pause_maintenance,
    resume_maintenance,
    retry_failures,
    skip_failures,
    start_maintenance,
)
from forewarn.ports.store import LeaseLostError, Store
from forewarn.protocol.vocabulary import EventType
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite

OPS = (Target(name="ops"),)
NO_GATES = Course(hold_all=True)


class ToldRollout(Rollout):
    """A Maintenance whose messages are kept, and in which virtual machines can fail."""

    def __init__(
        self,
        store: Store,
        *,
        course: Course = NO_GATES,
        targets: tuple[Target, ...] = OPS,
        failures: tuple[str, ...] = (),
    ) -> None:
        self.targets = targets
        self.failures = dict.fromkeys(failures, "no power")
        super().__init__(store, course=course)

    def context(self) -> Context:
        now = self.clock.now()
        rules = Rules(targets=self.targets)
        return Context(who="test", now=now, at=now, new_id=self._ids.__next__, rules=rules)

    def operator(self) -> Context:
        now = self.clock.now()
        return Context(who="alice", now=now, at=now, new_id=self._ids.__next__)

    def lead(self) -> Scheduler:
        failure_of = lambda _, vm: self.failures.get(vm, "")  # noqa: E731
        return Scheduler(
            store=self.store,
            assigner=Simulated(failure_of_impact=failure_of),
            context=self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
            gates=self.gates,
        )

    def pause(self) -> None:
        self.store.write(lambda tx: pause_maintenance(tx, self.operator(), self.maintenance_id))

    def resume(self) -> None:
        self.store.write(lambda tx: resume_maintenance(tx, self.operator(), self.maintenance_id))

    def abort(self) -> None:
        self.store.write(lambda tx: abort_maintenance(tx, self.operator(), self.maintenance_id))

    def messages(self) -> list[Notification]:
        """Return the messages about the Maintenance."""
        found = self.store.read(lambda reading: reading.notifications())
        return [message for message in found if message.maintenance_id is not None]

    def phases(self) -> list[str]:
        return [message.phase.value for message in self.messages()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


def test_end_is_told_with_outcome_and_counts(store: Store) -> None:
    rollout = ToldRollout(store)

    rollout.advance(2 * STEP)

    (message,) = rollout.messages()
    assert (message.subject, message.phase) == (rollout.maintenance_id, "completed")
    assert message.data["outcome"] == "succeeded"
    assert message.data["places"] == {
        "nothing_to_do": 0,
        "gone": 0,
        "succeeded": 1,
        "skipped": 0,
        "waiting": 0,
        "failed": 0,
        "under_way": 0,
    }


def test_gate_is_told_to_be_shut_once_and_held_when_patience_ends(store: Store) -> None:
    rollout = ToldRollout(store, course=Course(gates=("smoke",)))
    rollout.gates.shut = {"smoke"}

    rollout.advance(STEP + 10 * MINUTE)
    waiting = rollout.phases()
    rollout.advance(timedelta(hours=2))
    held = rollout.phases()
    rollout.gates.shut = set()
    rollout.resume()
    rollout.advance(2 * STEP)

    assert waiting == ["gate_shut"]
    assert held == ["gate_shut", "held"]
    assert rollout.phases() == ["gate_shut", "held", "resumed", "completed"]
    shut = rollout.messages()[0]
    assert (shut.data["gate"], shut.data["detail"]) == ("smoke", "no")


def test_pause_and_resume_are_told_with_who_did_it(store: Store) -> None:
    rollout = ToldRollout(store)
    rollout.advance(MINUTE)

    rollout.pause()
    rollout.advance(2 * STEP)
    rollout.resume()
    rollout.advance(2 * STEP)

    told = [(message.phase, message.data["who"]) for message in rollout.messages()]
    assert told == [("paused", "alice"), ("resumed", "alice"), ("completed", "test")]


def test_failed_step_is_told_with_its_place_and_then_that_it_holds(store: Store) -> None:
    rollout = ToldRollout(store, failures=("web-0",))

    rollout.advance(2 * STEP)

    failed, held = rollout.messages()
    assert (failed.phase, held.phase) == ("step_failed", "held")
    assert failed.data["place"] == "availability-set/web"
    assert failed.data["detail"] == "web-0: no power"
    assert failed.data["outcome"] is None


def test_end_after_a_failure_was_skipped_is_incomplete(store: Store) -> None:
    rollout = ToldRollout(store, failures=("web-1",))
    rollout.advance(2 * STEP)

    store.write(lambda tx: skip_failures(tx, rollout.operator(), rollout.maintenance_id))
    rollout.advance(MINUTE)

    assert rollout.phases() == ["step_failed", "held", "completed"]
    assert rollout.messages()[-1].data["outcome"] == "incomplete"


def test_step_that_fails_again_is_told_again(store: Store) -> None:
    rollout = ToldRollout(store, failures=("web-0",))
    rollout.advance(2 * STEP)

    store.write(lambda tx: retry_failures(tx, rollout.operator(), rollout.maintenance_id))
    rollout.advance(2 * STEP)

    told = [(message.phase, message.data["who"]) for message in rollout.messages()]
    assert told == [
        ("step_failed", "test"),
        ("held", "test"),
        ("resumed", "alice"),
        ("step_failed", "test"),
        ("held", "test"),
    ]


def test_aborted_maintenance_is_not_told_to_continue(store: Store) -> None:
    rollout = ToldRollout(store, failures=("web-0",))
    rollout.advance(2 * STEP)

    rollout.abort()
    rollout.advance(STEP)

    assert rollout.phases() == ["step_failed", "held", "aborted"]
    assert rollout.messages()[-1].data["who"] == "alice"


def test_maintenance_that_is_being_aborted_has_no_other_news(store: Store) -> None:
    rollout = ToldRollout(store)
    rollout.advance(16 * MINUTE)

    rollout.abort()
    rollout.advance(MINUTE)
    aborting = rollout.phases()
    rollout.advance(STEP)

    assert aborting == []
    assert rollout.phases() == ["aborted"]


def test_what_is_withdrawn_by_aborting_has_not_failed(store: Store) -> None:
    rollout = ToldRollout(store)
    rollout.advance(MINUTE)

    rollout.abort()
    rollout.advance(MINUTE)

    assert rollout.phases() == ["aborted"]


def test_new_leader_tells_nothing_twice(store: Store) -> None:
    rollout = ToldRollout(store, course=Course(gates=("smoke",)))
    rollout.gates.shut = {"smoke"}
    rollout.advance(STEP)

    rollout.scheduler = rollout.lead()
    rollout.advance(5 * MINUTE)

    assert rollout.phases() == ["gate_shut"]


def test_leader_that_was_replaced_tells_nothing(store: Store) -> None:
    rollout = ToldRollout(store)
    rollout.advance(MINUTE)
    rollout.lead()
    rollout.pause()

    with pytest.raises(LeaseLostError):
        rollout.scheduler.settle()

    assert rollout.phases() == []


def test_gate_that_shuts_again_is_told_again(store: Store) -> None:
    rollout = ToldRollout(store, course=Course(gates=("smoke", "load")))
    rollout.gates.shut = {"smoke"}
    rollout.advance(STEP)
    rollout.gates.shut = {"load"}
    rollout.advance(MINUTE)
    rollout.gates.shut = {"smoke"}
    rollout.advance(2 * MINUTE)

    gates = [message.data["gate"] for message in rollout.messages()]
    assert gates == ["smoke", "load", "smoke"]


@pytest.mark.parametrize(
    ("target", "is_told"),
    [
        (Target(name="ops", scopes=("web",)), True),
        (Target(name="ops", scopes=("solo-0",)), False),
        (Target(name="ops", event_types=(EventType.FREEZE,)), True),
        (Target(name="ops", event_types=(EventType.REBOOT,)), False),
    ],
)
def test_target_is_told_what_it_wants(store: Store, target: Target, *, is_told: bool) -> None:
    rollout = ToldRollout(store, targets=(target,))

    rollout.advance(2 * STEP)

    assert bool(rollout.messages()) is is_told


def test_without_targets_nothing_is_written(store: Store) -> None:
    rollout = ToldRollout(store, targets=(), failures=("web-0",))

    rollout.advance(2 * STEP)

    assert rollout.messages() == []


def test_maintenance_without_news_is_not_told_of(store: Store) -> None:
    rollout = ToldRollout(store)
    order = MaintenanceOrder(event_type=EventType.REBOOT, virtual_machines=("solo-0",))
    store.write(lambda tx: start_maintenance(tx, rollout.operator(), order))
    rollout.advance(MINUTE)

    rollout.pause()
    rollout.advance(MINUTE)

    assert [message.subject for message in rollout.messages()] == [rollout.maintenance_id]
