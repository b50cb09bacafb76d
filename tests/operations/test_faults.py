"""What is written about faults."""

from dataclasses import replace

import pytest

from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.domain.fault import Fault, FaultKind
from forewarn.operations.context import Context, SharedDatabaseError
from forewarn.operations.faults import record_fault_clear, record_fault_set
from forewarn.ports.store import Store

REFUSED = Fault(kind=FaultKind.STATUS, status=429, retry_after=5, times=3)


def written(store: Store) -> list[tuple[str, str, str, str]]:
    entries = store.read(lambda reading: reading.audit())
    return [(entry.who, entry.action, entry.subject, entry.detail) for entry in entries][1:]


def test_who_set_and_ended_a_fault_is_written(fleet: Store, operator: Context) -> None:
    set_on = fleet.write(lambda tx: record_fault_set(tx, operator, "WEB-0", REFUSED))
    fleet.write(lambda tx: record_fault_clear(tx, operator, "web-0", FaultKind.STATUS))
    fleet.write(lambda tx: record_fault_clear(tx, operator, "web-0", None))

    assert set_on == "web-0"
    assert written(fleet) == [
        ("alice", "fault set", "web-0", "status, times 3, status 429, retry_after 5"),
        ("alice", "fault clear", "web-0", "status"),
        ("alice", "fault clear", "web-0", "all"),
    ]


def test_replicas_have_no_faults(fleet: Store, operator: Context) -> None:
    shared = replace(operator, rules=replace(operator.rules, is_shared=True))

    with pytest.raises(SharedDatabaseError, match="Faults"):
        fleet.write(lambda tx: record_fault_set(tx, shared, "web-0", REFUSED))


def test_virtual_machine_that_is_none_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownVirtualMachineError):
        fleet.write(lambda tx: record_fault_set(tx, operator, "nobody", REFUSED))
    with pytest.raises(UnknownVirtualMachineError):
        fleet.write(lambda tx: record_fault_clear(tx, operator, "nobody", None))

    assert written(fleet) == []
