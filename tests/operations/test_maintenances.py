from datetime import timedelta

import pytest

from forewarn.domain.course import Course
from forewarn.domain.errors import PlanError, UnknownHostError
from forewarn.domain.maintenance import MaintenanceStatus
from forewarn.operations.context import Context
from forewarn.operations.fleet import read_fleet_file
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    MaintenanceOrder,
    UnknownLabelsError,
    UnknownMaintenanceError,
    UnknownSelectionError,
    report_maintenance,
    report_maintenances,
    start_maintenance,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

FREEZE = EventType.FREEZE


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        (MaintenanceOrder(event_type=FREEZE, scopes=("WEB",)), 2),
        (MaintenanceOrder(event_type=FREEZE, scopes=("availability-set/web", "batch")), 3),
        (MaintenanceOrder(event_type=FREEZE, virtual_machines=("solo",)), 1),
        (MaintenanceOrder(event_type=FREEZE, hosts=("KVM-1", "kvm-0")), 2),
    ],
)
def test_maintenance_selects_by_scope_machine_or_host(
    fleet: Store, operator: Context, order: MaintenanceOrder, steps: int
) -> None:
    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))

    report = fleet.read(
        lambda reading: report_maintenance(reading, operator, started.maintenance_id, {})
    )

    assert report.status is MaintenanceStatus.RUNNING
    assert len(report.stages) == steps
    assert fleet.read(lambda reading: report_maintenances(reading, operator, {})) == (report,)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (MaintenanceOrder(event_type=FREEZE), PlanError),
        (MaintenanceOrder(event_type=FREEZE, scopes=("web",), hosts=("kvm-0",)), PlanError),
        (MaintenanceOrder(event_type=FREEZE, scopes=("nothing",)), UnknownSelectionError),
        (MaintenanceOrder(event_type=FREEZE, hosts=("kvm-9",)), UnknownHostError),
    ],
)
def test_maintenance_that_cannot_be_walked_is_refused(
    fleet: Store, operator: Context, order: MaintenanceOrder, error: type[Exception]
) -> None:
    with pytest.raises(error):
        fleet.write(lambda tx: start_maintenance(tx, operator, order))

    assert fleet.read(lambda reading: report_maintenances(reading, operator, {})) == ()


def test_unknown_maintenance_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownMaintenanceError, match="'none'"):
        fleet.read(lambda reading: report_maintenance(reading, operator, "none", {}))


def test_maintenance_selects_by_labels_what_carries_all_of_them(
    fleet: Store, operator: Context
) -> None:
    labels = """
[[host]]
name = "kvm-0"
labels = { row = "a", kernel = "6.1" }

[[virtual_machine]]
name = "solo"
labels = { tier = "front", owner = "ops" }
"""
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(labels)))
    by_label = MaintenanceOrder(event_type=FREEZE, labels={"tier": "front", "owner": "ops"})
    by_host = MaintenanceOrder(event_type=FREEZE, host_labels={"row": "a"})

    started = fleet.write(lambda tx: start_maintenance(tx, operator, by_label))
    on_hosts = fleet.write(lambda tx: start_maintenance(tx, operator, by_host))

    assert started.resources == ("solo",)
    assert on_hosts.hosts == ("kvm-0",)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (
            MaintenanceOrder(event_type=FREEZE, scopes=("web",), labels={"tier": "x", "a": "b"}),
            "No virtual machine is labelled tier=x, a=b.",
        ),
        (
            MaintenanceOrder(event_type=FREEZE, host_labels={"row": "z"}),
            "No host is labelled row=z.",
        ),
    ],
)
def test_labels_that_nothing_carries_are_refused_by_name(
    fleet: Store, operator: Context, order: MaintenanceOrder, sentence: str
) -> None:
    with pytest.raises(UnknownLabelsError, match=sentence):
        fleet.write(lambda tx: start_maintenance(tx, operator, order))


def test_maintenance_keeps_its_course_and_when_it_began(fleet: Store, operator: Context) -> None:
    course = Course(at_once=2, soak=timedelta(minutes=30), hold_all=True)
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",), course=course)

    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))

    kept = fleet.read(lambda reading: reading.maintenance(started.maintenance_id))
    assert kept == started
    assert kept is not None
    assert (kept.course, kept.started_at) == (course, operator.now)
