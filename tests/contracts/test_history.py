"""What every store lets go when it is old, and what it keeps, on a real database."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError
from tests.contracts.conftest import OpenStore
from tests.contracts.test_store import ENDED, NOW, TASK

from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.host_operation import HostOperation, OperationOutcome
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import (
    HostName,
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScheduleName,
    VmName,
)
from forewarn.domain.news import Told
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.ports.entries import AuditEntry, History, LedgerEntry
from forewarn.ports.store import HISTORY_RETENTION, Reading, Store, Transaction
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

LATER = NOW + timedelta(days=1)
"""All that ended at NOW or soon after is older than this."""
KERNEL = MaintenanceId("kernel")
KVM = OperationId("kernel-kvm-1")


def event(number: int, **changes: object) -> ScheduledEvent:
    known = replace(
        ENDED, event_id=EventId(f"602D9444-D2CD-49C7-8624-{number:012X}"), maintenance_id=None
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def line(number: int, at: datetime = NOW) -> LedgerEntry:
    return LedgerEntry(event_id=event(number).event_id, at=at, what=Happening.STARTED, who="ada")


def audit(at: datetime = NOW) -> AuditEntry:
    return AuditEntry(at=at, maintenance_time=at, who="ada", action="vm add", subject="x")


def maintenance(**changes: object) -> Maintenance:
    known = Maintenance(
        maintenance_id=KERNEL,
        event_type=EventType.REBOOT,
        started_at=NOW,
        description="",
        finished_at=NOW,
        outcome=MaintenanceOutcome.SUCCEEDED,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


OPERATION = HostOperation(
    operation_id=KVM,
    maintenance_id=KERNEL,
    event_type=EventType.REBOOT,
    host=HostName("kvm-1"),
    created_at=NOW,
    ended_at=NOW,
    outcome=OperationOutcome.SUCCEEDED,
)
RUN = ScenarioRun(
    run_id=ScenarioRunId("run"),
    name="one-reboot",
    resources=(VmName("web-1"),),
    began_at=NOW,
    speed=1,
    steps=(),
    finished_at=NOW,
)
SCHEDULE = Schedule(
    name=ScheduleName("monthly"),
    order=MaintenanceOrder(event_type=EventType.REBOOT),
    every=read_recurrence("day"),
    from_date=NOW.date(),
    until_date=None,
    created_at=NOW,
    met_until=NOW,
    maintenance_id=KERNEL,
)


def put(store: Store, *works: Callable[[Transaction], object]) -> None:
    """Write each of *works*, and the newest event, which has the last line of the ledger."""

    def work(tx: Transaction) -> None:
        tx.put_setting(HISTORY_RETENTION, "86400")
        for each in works:
            each(tx)
        tx.put_event(event(99, ended_at=LATER))
        tx.append_ledger(line(99, LATER))

    store.write(work)


def prune(store: Store, before: datetime = LATER) -> dict[str, list[datetime]]:
    """Return the times of the rows that went, by table."""
    gone: dict[str, list[datetime]] = {}
    for kind in History:
        rows = store.read(partial(find, kind=kind, before=before))
        for table, at in store.write(partial(remove, kind=kind, rows=rows, before=before)):
            gone.setdefault(table, []).append(at)
    return gone


def find(reading: Reading, *, kind: History, before: datetime) -> tuple[int, ...]:
    return reading.old_history(kind, before, limit=99)


def remove(
    tx: Transaction, *, kind: History, rows: tuple[int, ...], before: datetime
) -> tuple[tuple[str, datetime], ...]:
    return tx.prune_history(kind, rows, before=before)


def test_event_goes_with_its_ledger(store: Store) -> None:
    early = NOW - timedelta(days=1)
    put(
        store,
        lambda tx: tx.put_event(event(1)),
        lambda tx: tx.append_ledger(line(1, early)),
        lambda tx: tx.append_ledger(line(1)),
    )

    gone = prune(store)

    assert gone == {"ledger": [early, NOW], "events": [ENDED.ended_at]}
    assert store.read(lambda reading: reading.event(event(1).event_id)) is None
    assert store.read(lambda reading: reading.event(event(99).event_id)) is not None
    assert len(store.read(lambda reading: reading.ledger_after(0, limit=9))) == 1


@pytest.mark.parametrize(
    "keep",
    [
        lambda tx: tx.put_event(event(1, ended_at=LATER)),
        lambda tx: tx.put_event(event(1, event_status=EventStatus.STARTED, ended_at=None)),
        lambda tx: tx.append_ledger(line(1, LATER)),
        lambda tx: tx.put_task(replace(TASK, subject=event(1).event_id, closed_at=NOW)),
        lambda tx: tx.put_scenario_run(replace(RUN, finished_at=None)),
        lambda tx: tx.put_maintenance(maintenance(finished_at=None)),
        lambda tx: tx.put_maintenance(maintenance(finished_at=LATER)),
    ],
    ids=["recent", "in flight", "recent line", "task", "running scenario", "open", "just finished"],
)
def test_event_that_something_needs_stays(
    store: Store, keep: Callable[[Transaction], object]
) -> None:
    put(
        store,
        lambda tx: tx.put_event(event(1, maintenance_id=KERNEL)),
        lambda tx: tx.append_ledger(line(1)),
        keep,
    )

    assert prune(store) == {}


def test_last_line_of_the_ledger_stays_so_that_no_number_comes_again(store: Store) -> None:
    put(store, lambda tx: tx.put_event(event(1)), lambda tx: tx.append_ledger(line(1)))
    last = store.read(lambda reading: reading.last_sequence())

    assert prune(store, LATER + timedelta(days=1)).keys() == {"ledger", "events"}

    assert store.read(lambda reading: reading.last_sequence()) == last
    assert store.read(lambda reading: reading.event(event(99).event_id)) is not None


def test_maintenance_goes_with_all_its_parts(store: Store) -> None:
    put(
        store,
        lambda tx: tx.put_maintenance(maintenance()),
        lambda tx: tx.put_told(Told(maintenance_id=KERNEL)),
        lambda tx: tx.put_operation(OPERATION),
        lambda tx: tx.put_event(event(1, maintenance_id=KERNEL, operation_id=KVM)),
        lambda tx: tx.put_event(event(2, maintenance_id=KERNEL, operation_id=KVM)),
    )

    assert {table: len(times) for table, times in prune(store).items()} == {
        "maintenances": 1,
        "events": 2,
        "host_operations": 1,
    }
    store.write(lambda tx: tx.put_maintenance(maintenance(finished_at=None)))
    assert store.read(lambda reading: reading.told()) == ()


@pytest.mark.parametrize(
    "keep",
    [
        lambda tx: tx.put_maintenance(maintenance(finished_at=None)),
        lambda tx: tx.put_maintenance(maintenance(finished_at=LATER)),
        lambda tx: tx.put_schedule(SCHEDULE),
        lambda tx: tx.put_task(replace(TASK, subject=KVM, name="work-1")),
        lambda tx: tx.put_task(replace(TASK, subject=event(2).event_id)),
        lambda tx: tx.append_ledger(line(2, LATER)),
    ],
    ids=["open", "recent", "last of a schedule", "task on a host", "task", "recent line"],
)
def test_maintenance_that_something_needs_stays_whole(
    store: Store, keep: Callable[[Transaction], object]
) -> None:
    put(
        store,
        lambda tx: tx.put_maintenance(maintenance()),
        lambda tx: tx.put_told(Told(maintenance_id=KERNEL)),
        lambda tx: tx.put_operation(OPERATION),
        lambda tx: tx.put_event(event(1, maintenance_id=KERNEL)),
        lambda tx: tx.put_event(event(2, maintenance_id=KERNEL)),
        keep,
    )

    assert prune(store) == {}


def test_host_operation_stays_as_long_as_an_event_of_its_maintenance(store: Store) -> None:
    put(
        store,
        lambda tx: tx.put_operation(OPERATION),
        lambda tx: tx.put_event(event(1, maintenance_id=KERNEL, ended_at=LATER)),
    )

    assert prune(store) == {}


def test_audit_and_finished_scenarios_go_by_their_age_but_for_the_last_line(store: Store) -> None:
    put(
        store,
        lambda tx: tx.put_scenario_run(RUN),
        lambda tx: tx.put_scenario_run(
            replace(RUN, run_id=ScenarioRunId("new"), finished_at=LATER)
        ),
        lambda tx: tx.append_audit(audit()),
        lambda tx: tx.append_audit(audit(LATER)),
        lambda tx: tx.append_audit(audit()),
    )

    assert prune(store) == {"scenario_runs": [NOW], "audit": [NOW]}
    assert [each.at for each in store.read(lambda reading: reading.audit())] == [LATER, NOW]


def test_rows_that_are_needed_by_now_stay_although_they_were_found(store: Store) -> None:
    put(store, lambda tx: tx.put_event(event(1)))
    (row,) = store.read(lambda reading: reading.old_history(History.EVENTS, LATER, limit=9))
    store.write(lambda tx: tx.put_task(replace(TASK, subject=event(1).event_id)))

    assert store.write(lambda tx: tx.prune_history(History.EVENTS, [row], before=LATER)) == ()


def test_no_more_rows_are_found_than_are_asked_for_oldest_first(store: Store) -> None:
    for each in (event(1), event(2), event(3)):
        put(store, lambda tx, each=each: tx.put_event(each))  # type: ignore[misc]

    def look(reading: Reading) -> tuple[tuple[int, ...], ...]:
        return tuple(reading.old_history(History.EVENTS, LATER, limit=limit) for limit in (2, 9))

    some, all_of_them = store.read(look)
    assert some == all_of_them[:2] == tuple(sorted(some))
    assert len(all_of_them) == 3


# The database itself keeps records, whatever a server asks of it.


@pytest.mark.parametrize("stored", [None, "", "0", "86399", "-86400"])
@pytest.mark.parametrize("kind", [History.EVENTS, History.AUDIT])
def test_without_a_stored_retention_nothing_is_deleted(
    store: Store, kind: History, stored: str | None
) -> None:
    put(
        store,
        lambda tx: tx.put_event(event(1)),
        lambda tx: tx.append_ledger(line(1)),
        lambda tx: tx.append_audit(audit()),
        lambda tx: tx.append_audit(audit()),
    )
    store.write(lambda tx: tx.put_setting(HISTORY_RETENTION, stored or ""))
    rows = store.read(lambda reading: reading.old_history(kind, LATER, limit=9))

    with pytest.raises(IntegrityError, match="is append-only"):
        store.write(lambda tx: tx.prune_history(kind, rows, before=LATER))

    assert store.read(lambda reading: reading.old_history(kind, LATER, limit=9)) == rows


def test_records_younger_than_the_stored_retention_are_not_deleted(open_store: OpenStore) -> None:
    """By the clock of the database: what a server takes for the time does not matter."""
    store = open_store()
    now = datetime.now(NOW.tzinfo)  # noqa: TID251 - the database has no other clock
    young, old = now - timedelta(days=2) + timedelta(minutes=1), now - timedelta(days=2, minutes=1)
    for at in (old, young, now):
        store.write(lambda tx, at=at: tx.append_audit(audit(at)))  # type: ignore[misc]
    store.write(lambda tx: tx.put_setting(HISTORY_RETENTION, str(2 * 86400)))
    first, second = store.read(lambda reading: reading.old_history(History.AUDIT, now, limit=9))

    with pytest.raises(IntegrityError, match="audit is append-only"):
        store.write(lambda tx: tx.prune_history(History.AUDIT, [first, second], before=now))
    gone = store.write(lambda tx: tx.prune_history(History.AUDIT, [first], before=now))

    assert gone == (("audit", old),)
    store.close()
