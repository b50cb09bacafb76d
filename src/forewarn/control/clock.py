"""/clock: maintenance time."""

from fastapi import APIRouter

from forewarn.control.caller import Calling
from forewarn.control.moments import check_reachable, parse_span
from forewarn.control.schemas import AdvanceRequest, ClockView

router = APIRouter(prefix="/clock", tags=["clock"])


@router.get("")
def show_clock(caller: Calling) -> ClockView:
    """Return the time and whether it is virtual."""
    clock = caller.services.clock
    return ClockView(kind=clock.kind, now=clock.now())


@router.post("/advance")
def advance(caller: Calling, request: AdvanceRequest) -> ClockView:
    """Let virtual time pass; the answer comes when everything that fell due is done."""
    clock = caller.services.clock
    span = parse_span(request.duration)
    check_reachable(clock.now(), span)
    return ClockView(kind=clock.kind, now=clock.advance(span))
