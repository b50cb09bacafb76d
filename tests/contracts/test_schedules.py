"""Schedules in every store, on a real database."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from tests.contracts.conftest import OpenStore

from forewarn.domain.course import Course
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.names import MaintenanceId, ScheduleName
from forewarn.domain.recurrence import read_recurrence
from forewarn.domain.schedule import Occurrence, OccurrenceOutcome, Schedule
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

NOW = datetime(2026, 1, 5, 8, 0, 0, 123456, tzinfo=UTC)
PLAIN = Schedule(
    name=ScheduleName("plain"),
    order=MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web",)),
    every=read_recurrence("day"),
    from_date=date(2026, 1, 5),
    until_date=None,
    created_at=NOW,
    met_until=NOW,
)
FULL = Schedule(
    name=ScheduleName("Full"),
    order=MaintenanceOrder(
        event_type=EventType.REBOOT,
        virtual_machines=("solo",),
        labels={"tier": "front"},
        hosts=("kvm-0",),
        host_labels={"rack": "1"},
        description="Patches",
        duration_in_seconds=9,
        course=Course(
            canary=("kvm-0",),
            at_once=2,
            soak=timedelta(minutes=3),
            min_available=50,
            gates=("smoke",),
            calendar=Calendar(
                windows=(read_window("Tue 22:00-04:00 Europe/Berlin"),),
                blackouts=(read_blackout("2026-12-24..2027-01-02 UTC Holidays"),),
            ),
            hold_all=True,
        ),
    ),
    every=read_recurrence("first Tue"),
    from_date=date(2026, 1, 5),
    until_date=date(2027, 1, 5),
    created_at=NOW,
    met_until=NOW + timedelta(days=9),
    is_paused=True,
    maintenance_id=MaintenanceId("m1"),
    occurrences=(
        Occurrence(
            opens_at=NOW,
            met_at=NOW,
            outcome=OccurrenceOutcome.STARTED,
            maintenance_id=MaintenanceId("m1"),
        ),
        Occurrence(
            opens_at=NOW, met_at=NOW, outcome=OccurrenceOutcome.MISSED, reason="It was late."
        ),
    ),
)


def put(store: Store, schedule: Schedule) -> None:
    store.write(lambda tx: tx.put_schedule(schedule))


def test_schedules_come_back_as_they_were_put(open_store: OpenStore) -> None:
    store = open_store()
    for schedule in (PLAIN, FULL):
        put(store, schedule)
    store.close()

    store = open_store()
    kept = store.read(lambda reading: reading.schedules())
    store.close()

    assert kept == (PLAIN, FULL)


def test_schedule_is_changed_in_its_place_and_removed(store: Store) -> None:
    for schedule in (PLAIN, FULL, replace(PLAIN, is_paused=True)):
        put(store, schedule)

    assert [
        (each.name, each.is_paused) for each in store.read(lambda reading: reading.schedules())
    ] == [("plain", True), ("Full", True)]

    store.write(lambda tx: tx.remove_schedule(PLAIN.name))

    assert store.read(lambda reading: reading.schedules()) == (FULL,)


def test_maintenance_keeps_the_name_of_its_schedule(store: Store) -> None:
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("m1"),
        event_type=EventType.FREEZE,
        started_at=NOW,
        schedule="plain",
    )
    store.write(lambda tx: tx.put_maintenance(maintenance))

    assert store.read(lambda reading: reading.maintenances()) == (maintenance,)
