"""/faults: misbehaving towards one virtual machine, so that its clients can be tested."""

from typing import Final

from fastapi import APIRouter

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.desk import faults
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import FaultRequest, FaultsView, FaultView
from forewarn.domain.fault import Fault, FaultKind

router = APIRouter(tags=["faults"], route_class=BodyRoute)

_AS_USUAL: Final = FaultRequest()


@router.get("/faults")
def list_faults(caller: Viewing) -> FaultsView:
    """Return every fault, and how many more requests each affects."""
    return FaultsView(faults=faults.all_faults(caller))


@router.put("/virtual-machines/{name}/faults/{kind}", name="fault set")
def set_fault(
    caller: Administering, name: str, kind: FaultKind, request: FaultRequest = _AS_USUAL
) -> FaultView:
    """Set a fault, replacing one of the same kind."""
    fault = Fault(kind=kind, **request.model_dump())
    return faults.fault_view(faults.set_fault(caller, name, fault), fault)


@router.delete("/virtual-machines/{name}/faults/{kind}", name="fault clear")
def clear_fault(caller: Administering, name: str, kind: FaultKind) -> FaultsView:
    """Clear one fault, if it still exists, and return the remaining ones."""
    return _clear(caller, name, kind)


@router.delete("/virtual-machines/{name}/faults", name="fault clear")
def clear_faults(caller: Administering, name: str) -> FaultsView:
    """Clear every fault of one virtual machine."""
    return _clear(caller, name, None)


def _clear(caller: Caller, name: str, kind: FaultKind | None) -> FaultsView:
    vm = faults.clear_faults(caller, name, kind)
    left = caller.services.faults.all().get(vm, ())
    return FaultsView(faults=tuple(faults.fault_view(vm, fault) for fault in left))
