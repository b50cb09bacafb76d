"""/maintenances: planning and beginning them, steering them, and where each is and why."""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Operating, Viewing
from forewarn.control.paging import Paged
from forewarn.control.problems import problem_of
from forewarn.control.routes import CHANGES, Key, answer_seen, creates, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.courses import CoursePatch, patch_course
from forewarn.desk.explanations import explain_maintenance_to
from forewarn.desk.maintenances import (
    BegunMaintenanceView,
    MaintenanceOrderRequest,
    MaintenanceSummaryView,
    MaintenanceView,
    PlacesRequest,
    PlanErrorView,
    PlanView,
    maintenance_order,
    maintenance_summary,
    maintenance_view,
    plan_view,
)
from forewarn.desk.schemas import RequestModel, View
from forewarn.desk.shapes import fill, mirrors, several
from forewarn.domain.blockers import Blocker, Verdict
from forewarn.domain.host_operation import OperationOutcome
from forewarn.domain.names import MaintenanceId
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.operations.context import Context
from forewarn.operations.courses import change_course
from forewarn.operations.maintenances import (
    abort_maintenance,
    end_host_turn,
    pause_maintenance,
    report_maintenance,
    report_maintenances,
    resume_maintenance,
    retry_failures,
    skip_failures,
    start_maintenance,
)
from forewarn.operations.planning import plan_maintenance, warn_of_overlaps
from forewarn.operations.repeats import RequestKey
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.command_lines import say_actions, say_blocker, say_verdict

router = APIRouter(prefix="/maintenances", tags=["maintenances"], route_class=BodyRoute)


@mirrors(Blocker, "kind release sentence scope_ids hosts vms event_ids since until about places")
class BlockerView(View):
    """One thing that holds a Maintenance, and how it ends."""

    kind: str


@mirrors(Verdict, "kind sentence until actions")
class VerdictView(View):
    """When a Maintenance continues automatically, or what an operator has to do first."""

    actions: tuple[str, ...]


class HostTurnRequest(RequestModel):
    """The host whose turn ends."""

    host: str


class StandstillView(View):
    """Everything that holds a Maintenance, how that ends, and what remains undone."""

    maintenance_id: str
    status: MaintenanceStatus
    status_text: str
    blockers: tuple[BlockerView, ...]
    verdict: VerdictView
    not_done: dict[str, Standing]


# Before a Maintenance that could be called so.
@router.post("/plan", name="maintenance plan")
def plan(caller: Viewing, request: MaintenanceOrderRequest) -> PlanView:
    """Return what a Maintenance would do, with every error; change nothing."""
    services = caller.services
    order = maintenance_order(request, services)
    context = caller.context()
    made = caller.read(
        lambda reading: plan_maintenance(reading, context, order, gates=services.gates.kinds())
    )
    return plan_view(made, _refusal)


@router.get("/{maintenance_id}/explain")
def explain_maintenance(caller: Viewing, maintenance_id: str) -> StandstillView:
    """Return everything that holds the Maintenance, and when it continues."""
    found = explain_maintenance_to(caller, maintenance_id.lower())
    key, verdict = found.maintenance.maintenance_id, found.standstill.verdict
    return fill(
        StandstillView,
        found,
        found.standstill,
        maintenance_id=key,
        status_text=found.state.text,
        blockers=[_blocker_view(each, key) for each in found.standstill.blockers],
        verdict=fill(
            VerdictView, verdict, sentence=say_verdict(verdict), actions=say_actions(verdict)
        ),
    )


@router.get(
    "", **lists(several("maintenances", MaintenanceSummaryView, "Every Maintenance, oldest first."))
)
def list_maintenances(caller: Viewing, paging: Paged) -> Response:
    """Return the newest Maintenances, oldest first; the next page has older ones."""
    context = caller.context()
    seen = None if paging.after is None else paging.after.lower()
    reports = caller.read(
        lambda reading: report_maintenances(
            reading, context, older_than=seen, limit=paging.limit + 1
        )
    )
    return paging.answer(
        "maintenances", reports, maintenance_summary, "maintenance.maintenance_id", goes_back=True
    )


@router.post("", name="maintenance start", **creates(BegunMaintenanceView))
def start(caller: Operating, key: Key, request: MaintenanceOrderRequest) -> BegunMaintenanceView:
    """Start a Maintenance, or refuse it with the reason."""
    services = caller.services
    order = maintenance_order(request, services)

    def operation(tx: Transaction, context: Context) -> BegunMaintenanceView:
        begun = start_maintenance(tx, context, order, gates=services.gates.kinds())
        view = _view(caller, tx, begun.maintenance_id)
        warnings = warn_of_overlaps(tx, context, begun)
        return BegunMaintenanceView(**view.model_dump(), warnings=warnings)

    return caller.write_once(key, BegunMaintenanceView, operation)


@router.get("/{maintenance_id}", **shows(MaintenanceView))
def show_maintenance(caller: Viewing, maintenance_id: str) -> Response:
    """Return one Maintenance: what it has done, what remains and what holds it."""
    return answer_seen(caller, lambda reading: _view(caller, reading, maintenance_id.lower()))


@router.patch("/{maintenance_id}", name="maintenance set", dependencies=CHANGES)
def change(
    caller: Operating, key: Key, maintenance_id: str, request: CoursePatch
) -> MaintenanceView:
    """Change options of the remaining steps; null sets a field to its default."""
    gates = caller.services.gates.kinds()
    steer = partial(change_course, change=patch_course(request), gates=gates)
    return _steer(caller, key, steer, maintenance_id)


@router.post("/{maintenance_id}/pause", name="maintenance pause", dependencies=CHANGES)
def pause(caller: Operating, key: Key, maintenance_id: str) -> MaintenanceView:
    """Start no further step until resumed; announced events continue."""
    return _steer(caller, key, pause_maintenance, maintenance_id)


@router.post("/{maintenance_id}/resume", name="maintenance resume", dependencies=CHANGES)
def resume(caller: Operating, key: Key, maintenance_id: str) -> MaintenanceView:
    """End a pause and ask shut gates again; failures need retry or skip."""
    return _steer(caller, key, resume_maintenance, maintenance_id)


@router.post("/{maintenance_id}/retry", name="maintenance retry", dependencies=CHANGES)
def retry(
    caller: Operating, key: Key, maintenance_id: str, request: PlacesRequest
) -> MaintenanceView:
    """Retry failed hosts or scopes, with new events and full notice."""
    return _steer(caller, key, partial(retry_failures, places=request.places), maintenance_id)


@router.post("/{maintenance_id}/skip", name="maintenance skip", dependencies=CHANGES)
def skip(
    caller: Operating, key: Key, maintenance_id: str, request: PlacesRequest
) -> MaintenanceView:
    """Skip failed hosts or scopes; a named host even during its work."""
    return _steer(caller, key, partial(skip_failures, places=request.places), maintenance_id)


@router.post("/{maintenance_id}/complete", name="maintenance complete", dependencies=CHANGES)
def complete(
    caller: Operating, key: Key, maintenance_id: str, request: HostTurnRequest
) -> MaintenanceView:
    """End the turn of a host as done by hand; running tasks keep it busy until they end."""
    steer = partial(end_host_turn, host=request.host, outcome=OperationOutcome.SUCCEEDED)
    return _steer(caller, key, steer, maintenance_id)


@router.post("/{maintenance_id}/fail", name="maintenance fail", dependencies=CHANGES)
def fail(
    caller: Operating, key: Key, maintenance_id: str, request: HostTurnRequest
) -> MaintenanceView:
    """End the turn of a host as failed; running tasks keep it busy until they end."""
    steer = partial(end_host_turn, host=request.host, outcome=OperationOutcome.FAILED)
    return _steer(caller, key, steer, maintenance_id)


@router.post("/{maintenance_id}/abort", name="maintenance abort", dependencies=CHANGES)
def abort(caller: Operating, key: Key, maintenance_id: str) -> MaintenanceView:
    """Start no further step, and withdraw events that have not started."""
    return _steer(caller, key, abort_maintenance, maintenance_id)


def _steer(
    caller: Caller,
    key: RequestKey | None,
    steer: Callable[[Transaction, Context, str], None],
    maintenance_id: str,
) -> MaintenanceView:
    wanted = maintenance_id.lower()
    return caller.change(
        key,
        MaintenanceView,
        lambda reading: _view(caller, reading, wanted),
        lambda tx, context: steer(tx, context, wanted),
    )


def _view(caller: Caller, reading: Reading, maintenance_id: str) -> MaintenanceView:
    return maintenance_view(report_maintenance(reading, caller.context(), maintenance_id))


def _blocker_view(blocker: Blocker, maintenance_id: MaintenanceId) -> BlockerView:
    sentence, about = say_blocker(blocker, maintenance_id)
    return fill(BlockerView, blocker, sentence=sentence, about=about)


def _refusal(error: ForewarnError) -> PlanErrorView:
    problem = problem_of(error)
    return PlanErrorView(type=f"urn:forewarn:problem:{problem.kind}", detail=problem.detail)
