"""/faults: misbehaving towards one virtual machine, so that its clients can be tested."""

from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter

from forewarn.control.caller import Administering, Viewing
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import FaultRequest, FaultsView, FaultView
from forewarn.desk.shapes import fill
from forewarn.domain.names import VmName
from forewarn.operations.faults import record_fault_clear, record_fault_set
from forewarn.ports.faults import Fault, FaultKind

router = APIRouter(tags=["faults"])

_AS_USUAL: Final = FaultRequest()


@router.get("/faults")
def list_faults(caller: Viewing) -> FaultsView:
    """Return every fault, with the times it has left."""
    seen = caller.read(lambda reading: reading.topology().virtual_machines)
    return FaultsView(
        faults=tuple(
            view
            for vm, faults in caller.services.faults.all().items()
            if vm in seen
            for view in _views(vm, faults)
        )
    )


@router.put("/virtual-machines/{name}/faults/{kind}", name="fault set")
def set_fault(
    caller: Administering, name: str, kind: FaultKind, request: FaultRequest = _AS_USUAL
) -> FaultView:
    """Set a fault; it replaces one of the same kind."""
    fault = Fault(kind=kind, **request.model_dump())
    vm = caller.write(lambda tx, context: record_fault_set(tx, context, name, fault))
    caller.services.faults.put(vm, fault)
    return _view(vm, fault)


@router.delete("/virtual-machines/{name}/faults/{kind}", name="fault clear")
def clear_fault(caller: Administering, name: str, kind: FaultKind) -> FaultsView:
    """End one fault, if it is still there, and return those that are left."""
    return _clear(caller, name, kind)


@router.delete("/virtual-machines/{name}/faults", name="fault clear")
def clear_faults(caller: Administering, name: str) -> FaultsView:
    """End every fault of one virtual machine."""
    return _clear(caller, name, None)


def _clear(caller: Caller, name: str, kind: FaultKind | None) -> FaultsView:
    faults = caller.services.faults
    vm = caller.write(lambda tx, context: record_fault_clear(tx, context, name, kind))
    faults.remove(vm, kind)
    return FaultsView(faults=_views(vm, faults.all().get(vm, ())))


def _views(vm: VmName, faults: Iterable[Fault]) -> tuple[FaultView, ...]:
    return tuple(_view(vm, fault) for fault in faults)


def _view(vm: VmName, fault: Fault) -> FaultView:
    return fill(FaultView, fault, vm=vm)
