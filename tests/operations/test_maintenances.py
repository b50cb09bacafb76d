import pytest

from forewarn.domain.errors import PlanError, UnknownHostError
from forewarn.domain.maintenance import MaintenanceStatus
from forewarn.operations.context import Context
from forewarn.operations.maintenances import (
    MaintenanceOrder,
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

    report = fleet.read(lambda reading: report_maintenance(reading, started.maintenance_id))

    assert report.status is MaintenanceStatus.RUNNING
    assert len(report.remaining) == steps
    assert fleet.read(report_maintenances) == (report,)


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

    assert fleet.read(report_maintenances) == ()


def test_maintenances_are_reported_page_by_page(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",))
    ids = [
        fleet.write(lambda tx: start_maintenance(tx, operator, order)).maintenance_id
        for _ in range(3)
    ]

    def page(older_than: str | None) -> list[str]:
        found = fleet.read(lambda at: report_maintenances(at, older_than=older_than, limit=2))
        return [report.maintenance.maintenance_id for report in found]

    assert [page(None), page(ids[1]), page(ids[0])] == [ids[1:], ids[:1], []]
    with pytest.raises(UnknownMaintenanceError, match="'none'"):
        page("none")


def test_unknown_maintenance_is_refused(fleet: Store) -> None:
    with pytest.raises(UnknownMaintenanceError, match="'none'"):
        fleet.read(lambda reading: report_maintenance(reading, "none"))
