"""/maintenances: beginning them, steering them, and where each of them is."""

from collections.abc import Callable
from typing import TypeAlias

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.caller import Caller, Operating, Viewing
from forewarn.control.maintenance_views import (
    MaintenanceOrderRequest,
    MaintenancesView,
    MaintenanceView,
    maintenance_order,
    maintenance_summary,
    maintenance_view,
)
from forewarn.control.rehearsal import CAN_BE_DRY, would_answer
from forewarn.operations.context import Context
from forewarn.operations.maintenances import (
    MaintenanceReport,
    abort_maintenance,
    pause_maintenance,
    report_maintenance,
    report_maintenances,
    resume_maintenance,
    start_maintenance,
)
from forewarn.ports.store import Reading, Transaction

router = APIRouter(prefix="/maintenances", tags=["maintenances"])

Steering: TypeAlias = Callable[[Transaction, Context, str], None]


@router.get("")
def list_maintenances(caller: Viewing) -> MaintenancesView:
    """Return every Maintenance, oldest first."""
    services = caller.services
    context, answers = services.context(caller.principal.name), services.answers()
    reports = caller.read(lambda reading: report_maintenances(reading, context, answers))
    return MaintenancesView(maintenances=tuple(map(maintenance_summary, reports)))


@router.post(
    "",
    status_code=201,
    name="maintenance start",
    dependencies=CAN_BE_DRY,
    responses=would_answer(MaintenanceView),
)
def begin(caller: Operating, request: MaintenanceOrderRequest) -> MaintenanceView:
    """Begin a Maintenance, or refuse with the reason it cannot be walked."""
    services = caller.services
    order = maintenance_order(request, services.clock.now().date())

    def operation(tx: Transaction, context: Context) -> MaintenanceReport:
        begun = start_maintenance(tx, context, order, gates=services.gates.kinds())
        return report_maintenance(tx, context, begun.maintenance_id, services.answers())

    return maintenance_view(caller.write(operation))


@router.get("/{maintenance_id}", response_model=MaintenanceView)
def show_maintenance(caller: Viewing, maintenance_id: str) -> Response:
    """Return one Maintenance: what it has done, what remains and what holds it."""
    return caller.show(lambda reading: _show(caller, reading, maintenance_id))


@router.post("/{maintenance_id}/pause", name="maintenance pause")
def pause(caller: Operating, maintenance_id: str) -> MaintenanceView:
    """Begin no further step until it is resumed; what is announced takes its course."""
    return _steer(caller, pause_maintenance, maintenance_id)


@router.post("/{maintenance_id}/resume", name="maintenance resume")
def resume(caller: Operating, maintenance_id: str) -> MaintenanceView:
    """Go on, also in scopes held by a failure or a gate: somebody has looked after them."""
    return _steer(caller, resume_maintenance, maintenance_id)


@router.post("/{maintenance_id}/abort", name="maintenance abort")
def abort(caller: Operating, maintenance_id: str) -> MaintenanceView:
    """Begin no further step, ever; what has not started is withdrawn, what has runs out."""
    return _steer(caller, abort_maintenance, maintenance_id)


def _steer(caller: Caller, steer: Steering, maintenance_id: str) -> MaintenanceView:
    wanted, answers = maintenance_id.lower(), caller.services.answers()

    def operation(tx: Transaction, context: Context) -> MaintenanceReport:
        steer(tx, context, wanted)
        return report_maintenance(tx, context, wanted, answers)

    current = caller.write(operation, current=lambda reading: _show(caller, reading, wanted))
    return maintenance_view(current)


def _show(caller: Caller, reading: Reading, maintenance_id: str) -> bytes:
    services = caller.services
    context = services.context(caller.principal.name)
    report = report_maintenance(reading, context, maintenance_id.lower(), services.answers())
    return maintenance_view(report).model_dump_json().encode()
