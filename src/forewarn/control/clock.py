"""/clock: maintenance time."""

from fastapi import APIRouter

from forewarn.control.caller import Administering, Viewing
from forewarn.control.moments import check_reachable, parse_span
from forewarn.control.schemas import AdvanceRequest, ClockView
from forewarn.control.services import ClockError
from forewarn.operations.recording import record_audit

router = APIRouter(prefix="/clock", tags=["clock"])


@router.get("")
def show_clock(caller: Viewing) -> ClockView:
    """Return the time and whether it is virtual."""
    clock = caller.services.clock
    return ClockView(kind=clock.kind, now=clock.now())


@router.post("/advance", name="clock advance")
def advance(caller: Administering, request: AdvanceRequest) -> ClockView:
    """Let virtual time pass; the answer comes when everything that fell due is done."""
    clock = caller.services.clock
    if clock.kind != "virtual":
        raise ClockError
    span = parse_span(request.duration)
    check_reachable(clock.now(), span)
    caller.write(lambda tx, context: record_audit(tx, context, "clock advance", request.duration))
    return ClockView(kind=clock.kind, now=clock.advance(span))
