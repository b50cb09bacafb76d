"""A replica that loses the lease, and gains it again, in the middle of its work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.web_site import OUTBOUND

from forewarn.bootstrap import leader
from forewarn.bootstrap.leader import Candidate
from forewarn.bootstrap.replica import Outside, Replica, assemble
from forewarn.bootstrap.runners import ReloadableRunners
from forewarn.bootstrap.start import begin
from forewarn.bootstrap.supervision import Supervisor
from forewarn.bootstrap.task_records import TaskRecords
from forewarn.clocks import SystemClock
from forewarn.domain.access import ADMIN
from forewarn.domain.course import Course
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import MaintenanceId
from forewarn.domain.task import TaskState
from forewarn.executors.watcher import TaskWatcher
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.maintenances import start_maintenance
from forewarn.ports.leadership import NotLeadingError
from forewarn.ports.store import LeaseLostError, Store, StoreUnavailableError
from forewarn.protocol.vocabulary import EventType
from forewarn.settings import Settings, make_settings
from forewarn.storage.lock import FileLeadership
from forewarn.storage.sqlite import open_sqlite

pytestmark = pytest.mark.timeout(300)

TIMES = 10
NAMES = [f"vm-{number}" for number in range(TIMES)]
FLEET = "".join(f'[[virtual_machine]]\nname = "{name}"\n' for name in NAMES)
# It says that it runs, and goes on running until it is let go.
SCRIPT = """#!/bin/sh
echo "$EVENT_VM" >> begun
while [ ! -e "go-$EVENT_VM" ]; do sleep 0.02; done
"""
LONG = 60


class ContestedLeadership(FileLeadership):
    """A lease that another replica may have."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._is_taken = threading.Event()
        self.raises = False
        self.store = store
        self.offset = timedelta(0)
        self.readings = 0
        self.is_away = False
        self.is_taken_back = threading.Event()

    def clock_offset(self) -> timedelta:
        self.readings += 1
        if self.is_away:
            raise StoreUnavailableError("The database is away.")
        return self.offset

    def resign(self, epoch: int) -> None:
        super().resign(epoch)
        self.is_taken_back.set()

    def campaign(self) -> int | None:
        return None if self._is_taken.is_set() else super().campaign()

    def renew(self, epoch: int) -> bool:
        is_held = super().renew(epoch)
        if self.raises and not is_held:
            raise LeaseLostError(epoch, epoch + 1)
        return is_held

    def take_away(self) -> None:
        self._is_taken.set()
        self.store.write(lambda tx: tx.next_epoch())

    def give_back(self) -> None:
        self._is_taken.clear()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    script = tmp_path / "impact"
    script.write_text(
        SCRIPT.replace("begun", f"{tmp_path}/begun").replace("go-", f"{tmp_path}/go-")
    )
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text(f'[[command]]\nrun = ["{script}"]\n')
    return make_settings(
        {
            "database": f"sqlite:///{tmp_path / 'forewarn.db'}",
            "executor_file": executors,
            "speed": 100_000,
        }
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(open_sqlite(settings.database_path)) as opened:
        yield opened


@pytest.fixture
def leadership(store: Store) -> ContestedLeadership:
    return ContestedLeadership(store)


@pytest.fixture
def candidate(settings: Settings, store: Store, leadership: ContestedLeadership) -> Candidate:
    """A candidate that looks only when it is told to."""
    beginning = begin(store, settings, None, SystemClock().now())
    outside = Outside(outbound=OUTBOUND)
    return assemble(settings, store, beginning, outside, leadership=leadership).candidate


@pytest.fixture
def replica(
    settings: Settings,
    store: Store,
    leadership: ContestedLeadership,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Replica]:
    monkeypatch.setattr(leader, "_RENEW_SECONDS", 0.02)
    beginning = begin(store, settings, read_fleet_file(FLEET), SystemClock().now())
    wall = SystemClock()
    records = TaskRecords(settings.state_directory, store, "db-1:a", "db-1")
    made_runners = ReloadableRunners(settings, store, beginning.clock, records.log, OUTBOUND)
    with closing(made_runners) as runners:
        watcher = TaskWatcher(
            store,
            runners=runners,
            register=lambda: records.begin(wall.now()),
            records=records.log,
            wall=wall,
        )
        outside = Outside(outbound=OUTBOUND, runners=runners, watcher=watcher)
        supervisor = Supervisor(first_pause=0.1)
        made = assemble(settings, store, beginning, outside, supervisor, leadership)
        threads = [
            supervisor.start("leadership", made.candidate),
            supervisor.start("tasks", watcher.rounds),
        ]
        yield made
        for thread in threads:
            thread.stop()
            thread.join()
        assert supervisor.failures == {"leadership": 0, "scheduler": 0, "upkeep": 0, "tasks": 0}


def test_lease_is_lost_and_gained_ten_times_in_the_middle_of_an_impact(
    tmp_path: Path, replica: Replica, leadership: ContestedLeadership
) -> None:
    begun = tmp_path / "begun"
    maintenance_id = start(replica)
    epochs = []

    for name in NAMES:
        until(partial(has_begun, begun, name))
        leadership.take_away()
        until(lambda: replica.candidate.epoch == 0)
        (tmp_path / f"go-{name}").touch()
        leadership.give_back()
        until(lambda: replica.candidate.epoch > 0)
        epochs.append(replica.candidate.epoch)

    until(lambda: outcome(replica, maintenance_id) is not None)
    assert outcome(replica, maintenance_id) is MaintenanceOutcome.SUCCEEDED
    assert begun.read_text().split() == NAMES, "each has begun once, and none was left out"
    assert epochs == sorted(set(epochs)), "no epoch comes twice"


def test_replica_begins_no_tasks_after_it_has_handed_over(replica: Replica) -> None:
    until(lambda: replica.candidate.epoch > 0)
    assert replica.watcher is not None
    assert not replica.watcher.rests()

    replica.candidate.hand_over()

    assert replica.watcher.rests()


def test_end_is_written_down_while_nobody_leads(
    tmp_path: Path, replica: Replica, leadership: ContestedLeadership
) -> None:
    name = NAMES[0]
    start(replica)
    until(partial(has_begun, tmp_path / "begun", name))
    leadership.take_away()
    until(lambda: replica.candidate.epoch == 0)

    (tmp_path / f"go-{name}").touch()

    def states() -> list[TaskState]:
        return replica.store.read(lambda reading: [task.state for task in reading.tasks()])

    until(lambda: states() == [TaskState.ENDED])
    assert replica.candidate.epoch == 0


def test_lease_that_is_refused_when_it_is_renewed_is_lost_and_gained_again(
    replica: Replica, leadership: ContestedLeadership
) -> None:
    until(lambda: replica.candidate.epoch > 0)
    leadership.raises = True

    leadership.take_away()
    until(lambda: replica.candidate.epoch == 0)
    leadership.give_back()

    until(lambda: replica.candidate.epoch > 0)


def test_replica_that_does_not_lead_does_nothing_that_a_leader_does(
    replica: Replica, leadership: ContestedLeadership
) -> None:
    until(lambda: replica.candidate.epoch > 0)
    leadership.take_away()
    until(lambda: replica.candidate.epoch == 0)

    replica.candidate.wake()
    replica.candidate.finish_turn()

    assert replica.candidate.shut_gates == 0
    assert not replica.candidate.count_maintenances()
    with pytest.raises(NotLeadingError, match="is not the leader"):
        _ = replica.candidate.scheduler


def test_leader_whose_clock_is_off_resigns_and_leads_again_when_it_is_right(
    replica: Replica, leadership: ContestedLeadership
) -> None:
    until(lambda: replica.candidate.epoch > 0)
    with capture_logs() as lines:
        leadership.offset = timedelta(minutes=-20)
        until(lambda: replica.candidate.epoch == 0)
        resigned, since = leadership.is_taken_back.is_set(), leadership.readings
        until(lambda: leadership.readings > since + 3)
        still = replica.candidate.epoch
        leadership.offset = timedelta(seconds=2)
        until(lambda: replica.candidate.epoch > 0)

    assert (resigned, still) == (True, 0)
    said = [line["event"] for line in lines if "clock" in line["event"]]
    assert said == ["clock_differs", "clock_agrees"]


def test_leader_resigns_after_the_second_reading_that_is_off(
    candidate: Candidate, leadership: ContestedLeadership
) -> None:
    candidate.campaign()
    for ahead in (3, 0, 3):
        leadership.offset = timedelta(seconds=ahead)
        candidate.look()
    before = candidate.epoch
    candidate.look()

    assert (before, candidate.epoch) == (1, 0)


def test_replica_whose_clock_is_off_does_not_take_the_lease(
    candidate: Candidate, leadership: ContestedLeadership
) -> None:
    leadership.offset = timedelta(seconds=3)
    candidate.campaign()
    first = candidate.epoch, leadership.store.read(lambda reading: reading.lease_epoch())
    leadership.offset = timedelta(0)
    candidate.look()

    assert first == (0, 0)
    assert candidate.epoch == 1


def test_leader_that_hands_over_stops_although_no_clock_answers(
    candidate: Candidate, leadership: ContestedLeadership
) -> None:
    candidate.campaign()
    leadership.is_away = True
    candidate.hand_over()

    candidate.look()

    assert candidate.epoch == 0


def test_replica_that_cannot_write_its_task_log_neither_leads_nor_begins_tasks(
    tmp_path: Path, replica: Replica
) -> None:
    until(lambda: replica.candidate.epoch > 0)
    assert replica.watcher is not None
    with capture_logs() as lines:
        (tmp_path / "tasks").rename(tmp_path / "elsewhere")
        (tmp_path / "tasks").touch()
        until(lambda: replica.candidate.epoch == 0)
        rests, problem = replica.watcher.rests(), replica.candidate.records_problem
        (tmp_path / "tasks").unlink()
        (tmp_path / "elsewhere").rename(tmp_path / "tasks")
        until(lambda: replica.candidate.epoch > 0)

    assert rests
    assert problem == f"{tmp_path}/tasks cannot be written: Not a directory."
    assert (replica.watcher.rests(), replica.candidate.records_problem) == (False, "")
    said = [line["event"] for line in lines if "state_directory" in line["event"]]
    assert said == ["state_directory_not_writable", "state_directory_writable"]


def has_begun(begun: Path, name: str) -> bool:
    return begun.exists() and begun.read_text().split()[-1:] == [name]


def start(replica: Replica) -> MaintenanceId:
    order = MaintenanceOrder(
        event_type=EventType.REBOOT, scopes=tuple(NAMES), course=Course(at_once=1, in_order=True)
    )
    context = replica.context(ADMIN)
    begun = replica.store.write(lambda tx: start_maintenance(tx, context, order))
    return begun.maintenance_id


def outcome(replica: Replica, maintenance_id: MaintenanceId) -> MaintenanceOutcome | None:
    found = replica.store.read(lambda reading: reading.maintenance(maintenance_id))
    assert found
    return found.outcome


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what happens on other threads."""
    for _ in range(LONG * 50):
        if is_so():
            return
        threading.Event().wait(0.02)
    raise AssertionError
