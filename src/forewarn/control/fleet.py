"""/fleet: all of it, in the structure of the fleet file."""

from fastapi import APIRouter
from pydantic import JsonValue

from forewarn.control.caller import Administering, Viewing
from forewarn.control.declarations import declare_fleet
from forewarn.control.schemas import FleetChangeView, FleetRequest
from forewarn.operations.fleet import read_fleet
from forewarn.operations.inventory import apply_fleet

router = APIRouter(prefix="/fleet", tags=["fleet"])


@router.get("")
def show_fleet(caller: Viewing) -> dict[str, JsonValue]:
    """Return the whole fleet; applied again, it changes nothing."""
    return declare_fleet(caller.read(lambda reading: reading.topology()))


@router.post("", name="fleet apply")
def apply(caller: Administering, request: FleetRequest) -> FleetChangeView:
    """Make the fleet as declared, all of it or nothing."""
    fleet = read_fleet(request.fleet)
    change = caller.write(lambda tx, context: apply_fleet(tx, context, fleet, prune=request.prune))
    return FleetChangeView.model_validate(change)
