"""/clock: maintenance time."""

from datetime import datetime

from fastapi import APIRouter

from forewarn.control.caller import Administering, Viewing
from forewarn.desk.schemas import AdvanceRequest, ClockJumpView, ClockView
from forewarn.desk.services import ClockError, Services
from forewarn.operations.recording import record_audit
from forewarn.wording.moments import check_reachable, parse_span

router = APIRouter(prefix="/clock", tags=["clock"])


@router.get("")
def show_clock(caller: Viewing) -> ClockView:
    """Return the time and whether it is virtual."""
    return _view(caller.services, caller.services.clock.now())


@router.post("/advance", name="clock advance")
def advance(caller: Administering, request: AdvanceRequest) -> ClockView:
    """Let virtual time pass; the answer comes when everything that fell due is done."""
    clock = caller.services.clock
    if clock.kind != "virtual":
        raise ClockError
    span = parse_span(request.duration)
    check_reachable(clock.now(), span)
    caller.write(lambda tx, context: record_audit(tx, context, "clock advance", request.duration))
    return _view(caller.services, clock.advance(span))


def _view(services: Services, now: datetime) -> ClockView:
    jumps = tuple(ClockJumpView.model_validate(jump) for jump in services.jumps())
    return ClockView(kind=services.clock.kind, now=now, jumps=jumps)
