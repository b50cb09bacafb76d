"""One virtual machine as the API shows it."""

from datetime import datetime

from forewarn.control.schemas import VirtualMachineView
from forewarn.control.shapes import fields_of
from forewarn.domain.topology import ScopeKind, Topology, VirtualMachine


def virtual_machine_view(
    vm: VirtualMachine, topology: Topology, last_polled_at: datetime | None = None
) -> VirtualMachineView:
    """Return *vm* as the API shows it."""
    scope = topology.scopes[vm.scope_id]
    further = {
        "scope_kind": scope.kind,
        "scope_name": scope.name,
        "placement_group": scope.placement_group,
        "role": vm.role if scope.kind is ScopeKind.CLOUD_SERVICE else None,
        "profile": vm.profile.known,
        "last_polled_at": last_polled_at,
    }
    return VirtualMachineView.model_validate(fields_of(vm) | further)
