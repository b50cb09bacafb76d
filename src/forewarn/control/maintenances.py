"""/maintenances: beginning one, and where each of them is."""

from dataclasses import replace
from operator import attrgetter

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.caller import Operating, Viewing
from forewarn.control.conditional import TAGGED, TAKES_IF_NONE_MATCH
from forewarn.control.idempotency import Key
from forewarn.control.paging import LINKED, Paged
from forewarn.control.rehearsal import CAN_BE_DRY, would_answer
from forewarn.control.schemas import (
    MaintenanceOrderRequest,
    MaintenancesView,
    MaintenanceView,
    maintenance_summary,
    maintenance_view,
)
from forewarn.operations.context import Context
from forewarn.operations.maintenances import (
    MaintenanceOrder,
    report_maintenance,
    report_maintenances,
    start_maintenance,
)
from forewarn.ports.store import Transaction

router = APIRouter(prefix="/maintenances", tags=["maintenances"])


@router.get("", response_model=MaintenancesView, responses=LINKED)
def list_maintenances(caller: Viewing, paging: Paged) -> Response:
    """Return the newest Maintenances, oldest first; the next page has older ones."""
    seen = None if paging.after is None else paging.after.lower()
    reports = caller.read(
        lambda reading: report_maintenances(reading, older_than=seen, limit=paging.limit + 1)
    )
    cursor = attrgetter("maintenance.maintenance_id")
    return paging.newest("maintenances", reports, maintenance_summary, cursor)


@router.post(
    "",
    status_code=201,
    name="maintenance start",
    dependencies=CAN_BE_DRY,
    responses=would_answer(MaintenanceView),
)
def begin(caller: Operating, key: Key, request: MaintenanceOrderRequest) -> MaintenanceView:
    """Begin a Maintenance, or refuse with the reason it cannot be walked."""
    order = MaintenanceOrder(
        event_type=request.event_type,
        scopes=tuple(request.scopes),
        virtual_machines=tuple(request.virtual_machines),
        hosts=tuple(request.hosts),
        duration_in_seconds=request.duration_in_seconds,
        hold_all=request.hold_all,
    )
    if request.description is not None:
        order = replace(order, description=request.description)

    def operation(tx: Transaction, context: Context) -> MaintenanceView:
        begun = start_maintenance(tx, context, order)
        return maintenance_view(report_maintenance(tx, begun.maintenance_id))

    return caller.write_once(key, MaintenanceView, operation)


@router.get(
    "/{maintenance_id}",
    response_model=MaintenanceView,
    dependencies=[TAKES_IF_NONE_MATCH],
    responses=TAGGED,
)
def show_maintenance(caller: Viewing, maintenance_id: str) -> Response:
    """Return one Maintenance: what it has done, what remains and what holds it."""
    wanted = maintenance_id.lower()
    return caller.show(
        lambda reading: (
            maintenance_view(report_maintenance(reading, wanted)).model_dump_json().encode()
        )
    )
