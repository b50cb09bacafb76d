"""/maintenances: beginning one, and where each of them is."""

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.caller import Operating, Viewing
from forewarn.control.maintenance_views import (
    MaintenanceOrderRequest,
    MaintenancesView,
    MaintenanceView,
    maintenance_order,
    maintenance_summary,
    maintenance_view,
)
from forewarn.operations.context import Context
from forewarn.operations.maintenances import (
    MaintenanceReport,
    report_maintenance,
    report_maintenances,
    start_maintenance,
)
from forewarn.ports.store import Transaction

router = APIRouter(prefix="/maintenances", tags=["maintenances"])


@router.get("")
def list_maintenances(caller: Viewing) -> MaintenancesView:
    """Return every Maintenance, oldest first."""
    reports = caller.read(report_maintenances)
    return MaintenancesView(maintenances=tuple(map(maintenance_summary, reports)))


@router.post("", status_code=201, name="maintenance start")
def begin(caller: Operating, request: MaintenanceOrderRequest) -> MaintenanceView:
    """Begin a Maintenance, or refuse with the reason it cannot be walked."""
    order = maintenance_order(request)

    def operation(tx: Transaction, context: Context) -> MaintenanceReport:
        return report_maintenance(tx, start_maintenance(tx, context, order).maintenance_id)

    return maintenance_view(caller.write(operation))


@router.get("/{maintenance_id}", response_model=MaintenanceView)
def show_maintenance(caller: Viewing, maintenance_id: str) -> Response:
    """Return one Maintenance: what it has done, what remains and what holds it."""
    wanted = maintenance_id.lower()
    return caller.show(
        lambda reading: (
            maintenance_view(report_maintenance(reading, wanted)).model_dump_json().encode()
        )
    )
