"""Whether the records of tasks can be trusted to be complete."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, OperationId
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.lineage import (
    Lineage,
    continue_lineage,
    is_continued,
    read_lineage,
    record_lineage,
)
from forewarn.operations.restoring import RESTORED_AT
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

KNOWN = Lineage(database="d1", generation=3)
MAINTENANCE = Maintenance(
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    started_at=datetime(2026, 1, 5, 8, tzinfo=UTC),
)
OPERATION = HostOperation(
    operation_id=OperationId("a"),
    maintenance_id=MAINTENANCE.maintenance_id,
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    created_at=MAINTENANCE.started_at,
)


def follow(store: Store, found: Lineage | None) -> tuple[Lineage, bool]:
    return store.read(lambda reading: continue_lineage(reading, "tasks", found, new_id="new"))


def test_lineage_is_read_as_it_was_written() -> None:
    assert read_lineage(KNOWN.encode()) == KNOWN
    assert read_lineage('{"database": "d1", "generation": 3}') == KNOWN
    for text in (None, "", "{}", "[]", '{"database": "x", "generation": "y"}'):
        assert read_lineage(text) is None


def test_first_start_trusts_its_records(store: Store) -> None:
    assert follow(store, None) == (Lineage(database="new", generation=1), True)
    assert follow(store, KNOWN) == (replace(KNOWN, generation=4), True)


def test_first_start_does_not_trust_records_of_which_some_were_removed(store: Store) -> None:
    found = replace(KNOWN, removed_in=2)

    assert follow(store, found) == (replace(found, generation=4), False)


def test_first_start_on_a_backup_does_not_trust_missing_records(
    fleet: Store, operator: Context
) -> None:
    store, restored_at = fleet, operator.now + timedelta(hours=1)
    order = EventOrder(event_type=EventType.REBOOT, resources=("solo",))
    store.write(lambda tx: create_events(tx, operator, order))
    store.write(lambda tx: tx.put_setting(RESTORED_AT, restored_at.isoformat()))

    assert follow(store, None) == (Lineage(database="new", generation=1), False)
    assert follow(store, KNOWN) == (replace(KNOWN, generation=4), True)


def test_host_operation_of_a_backup_needs_its_records(store: Store) -> None:
    store.write(lambda tx: tx.put_maintenance(MAINTENANCE))
    store.write(lambda tx: tx.put_operation(OPERATION))
    store.write(lambda tx: tx.put_setting(RESTORED_AT, OPERATION.created_at.isoformat()))

    assert follow(store, None) == (Lineage(database="new", generation=1), False)


def test_first_start_trusts_its_records_if_all_is_younger_than_the_backup(
    fleet: Store, operator: Context
) -> None:
    store, restored_at = fleet, operator.now - timedelta(seconds=1)
    order = EventOrder(event_type=EventType.REBOOT, resources=("solo",))
    store.write(lambda tx: create_events(tx, operator, order))
    store.write(lambda tx: tx.put_setting(RESTORED_AT, restored_at.isoformat()))

    assert follow(store, None) == (Lineage(database="new", generation=1), True)


@pytest.mark.parametrize(
    ("found", "generation", "is_complete"),
    [
        (KNOWN, 4, True),
        (replace(KNOWN, generation=7), 8, True),  # the database is a backup, its records are not
        (replace(KNOWN, removed_in=3), 4, True),
        (replace(KNOWN, generation=7, removed_in=4), 8, False),  # a backup from before the removal
        (replace(KNOWN, generation=2), 4, False),
        (replace(KNOWN, database="d2"), 4, False),
        (None, 4, False),
    ],
)
def test_records_are_trusted_if_they_are_of_the_database_and_no_older(
    store: Store, found: Lineage | None, generation: int, *, is_complete: bool
) -> None:
    def is_current() -> bool:
        return store.read(lambda reading: is_continued(reading, "tasks", found))

    assert is_current(), "as far as it is known"
    store.write(lambda tx: record_lineage(tx, "tasks", KNOWN))

    removed_in = found.removed_in if found else 0
    following = replace(KNOWN, generation=generation, removed_in=removed_in)
    assert follow(store, found) == (following, is_complete)
    assert is_current() is is_complete
