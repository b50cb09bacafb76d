"""Records of what has ended are removed, and never missed: nothing is begun a second time."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.executors.conftest import EVENT, KEY, NOW

from forewarn.bootstrap.order_records import HOST_ORDERS, IMPACT_ORDERS, OrderRecords
from forewarn.domain.event import Outcome, ScheduledEvent, complete
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, OperationId
from forewarn.executors.records import LINEAGE, Records
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.storage.sqlite import open_sqlite

BEFORE = NOW + timedelta(days=1)
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_sqlite(tmp_path / "forewarn.db")) as opened:
        yield opened


def never() -> bool:
    return False


def keep(store: Store, *events: ScheduledEvent) -> None:
    """Have the store know these."""

    def write_all(put: Callable[[ScheduledEvent], None]) -> None:
        for event in events:
            put(event)

    store.write(lambda tx: write_all(tx.put_event))


def begin(folder: Path, event_id: str) -> int:
    """Leave the record of an impact that begins, and return its file."""
    file = Records(folder / "impacts").claim((event_id, "web-0"), {"executor": "command"})
    assert file is not None
    return file


def leave(folder: Path, event_id: str) -> None:
    """Leave the records of an impact that is over."""
    os.close(begin(folder, event_id))
    Records(folder / "impacts").end((event_id, "web-0"), ImpactStatus.DONE)


def removed(folder: Path, store: Store, *, pause: Callable[[], bool] = never) -> int:
    return OrderRecords(IMPACT_ORDERS, folder, store).remove_ended(BEFORE, pause=pause)


def test_only_records_of_events_that_ended_long_ago_are_removed(
    tmp_path: Path, store: Store
) -> None:
    late = complete(replace(EVENT, event_id=EventId("LATE")), outcome=Outcome.FAILED, now=BEFORE)
    in_flight = replace(EVENT, event_id=EventId("FLYING"))
    keep(store, ENDED, late, in_flight)
    for event_id in (ENDED.event_id, "LATE", "FLYING", "UNKNOWN"):
        leave(tmp_path, event_id)

    assert removed(tmp_path, store) == 1

    assert set(Records(tmp_path / "impacts").subjects()) == {"LATE", "FLYING", "UNKNOWN"}
    assert removed(tmp_path, store) == 0


def test_records_stay_while_a_script_still_runs(tmp_path: Path, store: Store) -> None:
    keep(store, ENDED)
    attended = begin(tmp_path, ENDED.event_id)

    while_it_runs = removed(tmp_path, store)
    os.close(attended)

    assert (while_it_runs, removed(tmp_path, store)) == (0, 1)


def test_records_of_work_on_hosts_go_with_their_operation(tmp_path: Path, store: Store) -> None:
    maintenance = Maintenance(
        maintenance_id=OPERATION.maintenance_id, event_type=EventType.REBOOT, started_at=NOW
    )
    running = replace(OPERATION, operation_id=OperationId("b"), phase=HostPhase.WORK, ended_at=None)
    store.write(lambda tx: tx.put_maintenance(maintenance))
    store.write(lambda tx: tx.put_operation(OPERATION))
    store.write(lambda tx: tx.put_operation(running))
    records = Records(tmp_path / "host-work")
    for operation_id in ("a", "b", "unknown"):
        records.end((operation_id, "work"), ImpactStatus.DONE)

    archive = OrderRecords(HOST_ORDERS, tmp_path, store)

    assert (archive.name, archive.remove_ended(BEFORE, pause=never)) == ("host-work", 1)
    assert set(records.subjects()) == {"b", "unknown"}


def test_round_is_over_when_it_is_told_to_pause(tmp_path: Path, store: Store) -> None:
    events = [replace(ENDED, event_id=EventId(f"E{number}")) for number in range(250)]
    keep(store, *events)
    for event in events:
        (tmp_path / "impacts" / event.event_id).mkdir(parents=True)

    assert removed(tmp_path, store, pause=lambda: True) == 200
    assert removed(tmp_path, store) == 50


def test_nothing_is_removed_when_the_records_are_not_those_of_the_server(
    tmp_path: Path, store: Store
) -> None:
    keep(store, ENDED)
    leave(tmp_path, ENDED.event_id)
    archive = OrderRecords(IMPACT_ORDERS, tmp_path, store)
    (tmp_path / "impacts" / LINEAGE).unlink()

    assert archive.remove_ended(BEFORE, pause=never) == 0

    assert list(Records(tmp_path / "impacts").subjects()) == [ENDED.event_id]


def test_impact_is_not_begun_again_on_a_database_from_before_the_removal(tmp_path: Path) -> None:
    file, copy = tmp_path / "forewarn.db", tmp_path / "copy.db"
    with closing(open_sqlite(file)) as store:
        keep(store, EVENT)
        archive = OrderRecords(IMPACT_ORDERS, tmp_path, store)
    shutil.copy(file, copy)
    with closing(open_sqlite(file)) as store:
        leave(tmp_path, EVENT.event_id)
        keep(store, ENDED)
        archive = OrderRecords(IMPACT_ORDERS, tmp_path, store)
        assert archive.remove_ended(BEFORE, pause=never) == 1
        assert archive.for_scripts().without(KEY, "").status is ImpactStatus.NOT_BEGUN

    with closing(open_sqlite(copy)) as store:
        archive = OrderRecords(IMPACT_ORDERS, tmp_path, store)
        lost = archive.for_scripts().without(KEY, "check it")

    assert lost.status is ImpactStatus.UNKNOWN
    assert "the impact may have begun; check it" in lost.reason


def test_copy_of_the_database_from_the_same_start_is_found_out(
    tmp_path: Path, store: Store
) -> None:
    keep(store, ENDED)
    archive = OrderRecords(IMPACT_ORDERS, tmp_path, store)
    before = store.read(lambda reading: reading.setting("lineage of impacts"))
    leave(tmp_path, ENDED.event_id)
    archive.remove_ended(BEFORE, pause=never)
    assert archive.for_scripts().without(KEY, "").status is ImpactStatus.NOT_BEGUN

    store.write(lambda tx: tx.put_setting("lineage of impacts", before or ""))

    assert archive.for_scripts().without(KEY, "").status is ImpactStatus.UNKNOWN
