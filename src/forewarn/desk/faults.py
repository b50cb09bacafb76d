"""Misbehaving towards one virtual machine: which faults there are, setting and ending them."""

from forewarn.desk.caller import Caller
from forewarn.desk.schemas import FaultView
from forewarn.desk.shapes import fill
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.operations.faults import record_fault_clear, record_fault_set


def all_faults(caller: Caller) -> tuple[FaultView, ...]:
    """Return every fault of the virtual machines that *caller* sees, with the times it has left."""
    seen = caller.read(lambda reading: reading.topology().virtual_machines)
    return tuple(
        fault_view(vm, fault)
        for vm, faults in caller.services.faults.all().items()
        if vm in seen
        for fault in faults
    )


def set_fault(caller: Caller, name: str, fault: Fault) -> VmName:
    """Set *fault* for the virtual machine called *name*, and return which it is.

    It replaces one of the same kind.
    """
    vm = caller.write(lambda tx, context: record_fault_set(tx, context, name, fault))
    caller.services.faults.put(vm, fault)
    return vm


def clear_faults(caller: Caller, name: str, kind: FaultKind | None) -> VmName:
    """End the fault of *kind*, or all, of the virtual machine called *name*; return which it is."""
    vm = caller.write(lambda tx, context: record_fault_clear(tx, context, name, kind))
    caller.services.faults.remove(vm, kind)
    return vm


def fault_view(vm: VmName, fault: Fault) -> FaultView:
    """Return *fault* of *vm* as it is shown."""
    return fill(FaultView, fault, vm=vm)
