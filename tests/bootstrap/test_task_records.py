"""The records of a node: whether a start can trust them, and what of them is removed."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar, cast

import pytest

from forewarn.bootstrap.task_records import FOLDER, TaskRecords
from forewarn.domain.event import (
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    complete,
    start_unannounced,
)
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.domain.task import BY_HAND, FETCHED, MANUAL, SIMULATED, Task, TaskState
from forewarn.executors.task_log import LINEAGE, TaskLog
from forewarn.operations.lineage import is_continued, read_lineage
from forewarn.ports.store import Store, StoreUnavailableError, Transaction
from forewarn.protocol.vocabulary import EventId, EventSource, EventType
from forewarn.storage.postgres import open_postgres
from forewarn.storage.sqlite import open_sqlite

T = TypeVar("T")

STARTS = 20
NODE = f"db-1:{1:032x}"
NAME = "db-1-renamed"
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
BEFORE = NOW + timedelta(days=1)
EVENT = start_unannounced(
    Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        share=Share(
            scope_id=ScopeId("virtual-machine/web-0"),
            update_domain=0,
            resources=(VmName("web-0"),),
        ),
        description="",
        duration_in_seconds=600,
    ),
    event_id=EventId("E"),
    now=NOW,
)
ENDED = complete(EVENT, outcome=Outcome.SUCCEEDED, now=NOW)
OPERATION = HostOperation(
    operation_id=OperationId("a"),
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    created_at=NOW,
    phase=HostPhase.OVER,
    ended_at=NOW,
)
TASK = Task(
    subject=EVENT.event_id,
    name="web-0",
    vm=VmName("web-0"),
    runner="command",
    state=TaskState.BEGUN,
    node=NODE,
    epoch=1,
    said=Impact(status=ImpactStatus.RUNNING),
    reserved_at=NOW,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_sqlite(tmp_path / "forewarn.db")) as opened:
        yield opened


def records(folder: Path, store: Store) -> TaskRecords:
    return TaskRecords(folder, store, NODE, NAME)


def log_in(folder: Path) -> TaskLog:
    return TaskLog(folder / FOLDER)


def start(folder: Path, store: Store) -> int:
    """Start a server; return the generation of its records."""
    return records(folder, store).begin(NOW).generation


def put_all(store: Store, put: Callable[[Transaction], Callable[[T], object]], *those: T) -> None:
    def work(tx: Transaction) -> None:
        for each in those:
            put(tx)(each)

    store.write(work)


def keep(store: Store, *events: ScheduledEvent) -> None:
    put_all(store, lambda tx: tx.put_event, *events)


def keep_tasks(store: Store, *tasks: Task) -> None:
    put_all(store, lambda tx: tx.put_task, *tasks)


def states(store: Store) -> dict[str, TaskState]:
    return store.read(lambda reading: {task.subject: task.state for task in reading.tasks()})


# Whether a start trusts what it finds.


def test_each_start_is_the_next_generation_of_its_owner(tmp_path: Path, store: Store) -> None:
    keep_tasks(store, TASK)

    assert [start(tmp_path, store) for _ in range(3)] == [1, 2, 3]

    (owner,) = store.read(lambda reading: reading.owners())
    assert (owner.node, owner.name, owner.generation, owner.heard_at) == (
        NODE,
        NAME,
        3,
        NOW,
    )
    assert states(store) == {EVENT.event_id: TaskState.BEGUN}


def test_servers_that_start_at_once_with_the_same_records_find_them_complete(
    postgres_url: str, tmp_path: Path
) -> None:
    def start_often(store: Store) -> list[int]:
        return [start(tmp_path, store) for _ in range(STARTS)]

    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(open_postgres(postgres_url, node=NODE))) for _ in range(3)
        ]
        keep_tasks(stores[0], TASK)
        with ThreadPoolExecutor(len(stores)) as pool:
            numbers = [number for one in pool.map(start_often, stores) for number in one]

        found = read_lineage(log_in(tmp_path).lineage())
        assert stores[0].read(lambda reading: is_continued(reading, f"{FOLDER} on {NODE}", found))
        assert states(stores[0]) == {EVENT.event_id: TaskState.BEGUN}
        (owner,) = stores[0].read(lambda reading: reading.owners())
        assert sorted(numbers) == [*range(1, STARTS * len(stores) + 1)]
        assert owner.generation == len(numbers)


def lose(folder: Path) -> None:
    shutil.rmtree(folder / FOLDER)


def put_back_a_copy(folder: Path) -> None:
    shutil.rmtree(folder / FOLDER)
    (folder / "copy").rename(folder / FOLDER)


@pytest.mark.parametrize("harm", [lose, put_back_a_copy])
def test_start_with_lost_or_older_records_loses_the_open_tasks_of_its_node(
    tmp_path: Path, store: Store, harm: Callable[[Path], None]
) -> None:
    start(tmp_path, store)
    shutil.copytree(tmp_path / FOLDER, tmp_path / "copy")
    start(tmp_path, store)
    reserved = replace(TASK, subject="reserved", state=TaskState.RESERVED)
    ended = replace(TASK, subject="ended", state=TaskState.ENDED)
    others = replace(TASK, subject="others", node="db-2:a")
    keep_tasks(store, TASK, reserved, ended, others)

    harm(tmp_path)
    start(tmp_path, store)

    assert states(store) == {
        EVENT.event_id: TaskState.UNKNOWN,
        "reserved": TaskState.UNKNOWN,
        "ended": TaskState.ENDED,
        "others": TaskState.BEGUN,
    }
    found = store.read(lambda reading: reading.task(TASK.key))
    assert found is not None
    assert found.said.reason == "the database was restored or the records of the server were lost"


def test_lost_records_say_nothing_about_what_is_not_in_them(tmp_path: Path, store: Store) -> None:
    start(tmp_path, store)
    by_hand = replace(TASK, subject="by hand", runner=MANUAL, said=BY_HAND)
    simulated = replace(TASK, subject="simulated", runner=SIMULATED)
    fetched = replace(TASK, subject="fetched", runner=FETCHED, node="kvm-0:host")
    keep_tasks(store, by_hand, simulated, fetched)

    lose(tmp_path)
    start(tmp_path, store)

    assert set(states(store).values()) == {TaskState.BEGUN}


def test_intent_in_older_records_does_not_prove_that_nothing_was_begun(
    tmp_path: Path, store: Store
) -> None:
    start(tmp_path, store)
    log_in(tmp_path).intend(TASK.key)
    shutil.copytree(tmp_path / FOLDER, tmp_path / "copy")
    start(tmp_path, store)

    assert log_in(tmp_path).is_intended(TASK.key), "the records of a start that is complete"
    put_back_a_copy(tmp_path)
    start(tmp_path, store)

    assert not log_in(tmp_path).is_intended(TASK.key)


class AwayStore:
    """A store that can be read, and fails once it is to be written to."""

    def __init__(self, store: Store) -> None:
        self.read = store.read

    def write(self, work: Callable[[Transaction], T]) -> T:
        del work
        raise StoreUnavailableError("it went away")


@pytest.mark.parametrize("are_lost", [True, False])
def test_start_that_breaks_off_makes_records_neither_better_nor_worse(
    tmp_path: Path, store: Store, *, are_lost: bool
) -> None:
    start(tmp_path, store)
    keep_tasks(store, TASK)
    if are_lost:
        lose(tmp_path)

    with pytest.raises(StoreUnavailableError):
        start(tmp_path, cast("Store", AwayStore(store)))
    start(tmp_path, store)

    expected = TaskState.UNKNOWN if are_lost else TaskState.BEGUN
    assert states(store) == {EVENT.event_id: expected}


# What is removed.


def never() -> bool:
    return False


def begin(folder: Path, event_id: str) -> int:
    """Leave the record of an impact that begins, and return its file."""
    file = log_in(folder).claim((event_id, "web-0"), {"executor": "command"})
    assert file is not None
    return file


def leave(folder: Path, event_id: str) -> None:
    """Leave the records of an impact that is over."""
    os.close(begin(folder, event_id))
    log_in(folder).end((event_id, "web-0"), ImpactStatus.DONE)


def removed(folder: Path, store: Store, *, pause: Callable[[], bool] = never) -> int:
    return records(folder, store).remove_ended(BEFORE, pause=pause)


def test_only_records_of_events_that_ended_long_ago_are_removed(
    tmp_path: Path, store: Store
) -> None:
    late = complete(replace(EVENT, event_id=EventId("LATE")), outcome=Outcome.FAILED, now=BEFORE)
    in_flight = replace(EVENT, event_id=EventId("FLYING"))
    keep(store, ENDED, late, in_flight)
    for event_id in (ENDED.event_id, "LATE", "FLYING", "UNKNOWN"):
        leave(tmp_path, event_id)
    start(tmp_path, store)

    assert removed(tmp_path, store) == 1

    assert set(log_in(tmp_path).subjects()) == {"LATE", "FLYING", "UNKNOWN"}
    assert removed(tmp_path, store) == 0


def test_records_stay_while_their_tasks_are_not_over(tmp_path: Path, store: Store) -> None:
    keep(store, ENDED)
    keep_tasks(store, TASK)
    leave(tmp_path, ENDED.event_id)
    start(tmp_path, store)

    before = removed(tmp_path, store)
    keep_tasks(store, replace(TASK, state=TaskState.ENDED))

    assert (before, removed(tmp_path, store)) == (0, 1)


def test_records_stay_while_a_script_still_runs(tmp_path: Path, store: Store) -> None:
    keep(store, ENDED)
    attended = begin(tmp_path, ENDED.event_id)
    start(tmp_path, store)

    while_it_runs = removed(tmp_path, store)
    os.close(attended)

    assert (while_it_runs, removed(tmp_path, store)) == (0, 1)


def test_records_of_work_on_hosts_go_with_their_operation(tmp_path: Path, store: Store) -> None:
    maintenance = Maintenance(
        maintenance_id=OPERATION.maintenance_id, event_type=EventType.REBOOT, started_at=NOW
    )
    running = replace(OPERATION, operation_id=OperationId("b"), phase=HostPhase.WORK, ended_at=None)
    store.write(lambda tx: tx.put_maintenance(maintenance))
    put_all(store, lambda tx: tx.put_operation, OPERATION, running)
    for operation_id in ("a", "b", "unknown"):
        log_in(tmp_path).end((operation_id, "work"), ImpactStatus.DONE)
    start(tmp_path, store)

    assert removed(tmp_path, store) == 1
    assert set(log_in(tmp_path).subjects()) == {"b", "unknown"}


def test_round_is_over_when_it_is_told_to_pause(tmp_path: Path, store: Store) -> None:
    events = [replace(ENDED, event_id=EventId(f"E{number}")) for number in range(250)]
    keep(store, *events)
    for event in events:
        (tmp_path / FOLDER / event.event_id).mkdir(parents=True)
    start(tmp_path, store)

    assert removed(tmp_path, store, pause=lambda: True) == 200
    assert removed(tmp_path, store) == 50


def test_nothing_is_removed_when_the_records_are_not_those_of_the_server(
    tmp_path: Path, store: Store
) -> None:
    keep(store, ENDED)
    leave(tmp_path, ENDED.event_id)
    start(tmp_path, store)
    (tmp_path / FOLDER / LINEAGE).unlink()

    assert removed(tmp_path, store) == 0

    assert list(log_in(tmp_path).subjects()) == [ENDED.event_id]


def test_records_are_complete_after_a_removal(tmp_path: Path, store: Store) -> None:
    keep(store, ENDED)
    leave(tmp_path, ENDED.event_id)
    start(tmp_path, store)
    assert removed(tmp_path, store) == 1
    keep_tasks(store, replace(TASK, subject="later"))

    start(tmp_path, store)

    assert states(store) == {"later": TaskState.BEGUN}


@pytest.mark.parametrize("starts", [1, 2])
def test_task_is_unknown_in_a_database_from_before_the_removal_of_its_records(
    tmp_path: Path, starts: int
) -> None:
    file, copy = tmp_path / "forewarn.db", tmp_path / "copy.db"
    with closing(open_sqlite(file)) as store:
        keep(store, EVENT)
        keep_tasks(store, replace(TASK, state=TaskState.RESERVED))
        start(tmp_path, store)
    shutil.copy(file, copy)
    with closing(open_sqlite(file)) as store:
        for _ in range(1, starts):
            start(tmp_path, store)
        leave(tmp_path, EVENT.event_id)
        keep(store, ENDED)
        keep_tasks(store, replace(TASK, state=TaskState.ENDED, closed_at=NOW))
        assert removed(tmp_path, store) == 1

    with closing(open_sqlite(copy)) as store:
        start(tmp_path, store)

        assert states(store) == {EVENT.event_id: TaskState.UNKNOWN}
