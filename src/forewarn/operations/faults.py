"""Setting and ending faults. They are kept in memory only; what is written is who did it.

The caller puts or removes the fault once this is committed, so that none goes unrecorded.
"""

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.operations.context import Context, SharedDatabaseError
from forewarn.operations.inventory import find_vm
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Transaction


def record_fault_set(tx: Transaction, context: Context, name: str, fault: Fault) -> VmName:
    """Write down that a virtual machine gets *fault*, and return which it is."""
    if context.rules.is_shared:
        raise SharedDatabaseError("Faults")
    vm = find_vm(tx.topology(), name).name
    said = [fault.kind, *(f"{key} {value}" for key, value in fault.parameters().items())]
    record_audit(tx, context, "fault set", vm, detail=", ".join(said))
    return vm


def record_fault_clear(
    tx: Transaction, context: Context, name: str, kind: FaultKind | None
) -> VmName:
    """Write down that a virtual machine is rid of one fault or of all, and return which it is."""
    vm = find_vm(tx.topology(), name).name
    record_audit(tx, context, "fault clear", vm, detail=kind or "all")
    return vm
