"""/clock: maintenance time."""

from datetime import datetime

from fastapi import APIRouter

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.desk.clock import advance_clock
from forewarn.desk.schemas import AdvanceRequest, ClockJumpView, ClockView
from forewarn.desk.services import Services

router = APIRouter(prefix="/clock", tags=["clock"], route_class=BodyRoute)


@router.get("")
def show_clock(caller: Viewing) -> ClockView:
    """Return maintenance time, and whether it is virtual."""
    return _view(caller.services, caller.services.clock.now())


@router.post("/advance", name="clock advance")
def advance(caller: Administering, request: AdvanceRequest) -> ClockView:
    """Advance virtual time; respond when everything that fell due is done."""
    return _view(caller.services, advance_clock(caller, request.duration))


def _view(services: Services, now: datetime) -> ClockView:
    jumps = tuple(ClockJumpView.model_validate(jump) for jump in services.jumps())
    return ClockView(kind=services.clock.kind, now=now, jumps=jumps)
