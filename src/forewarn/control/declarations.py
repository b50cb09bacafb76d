"""One virtual machine as the API shows it."""

from datetime import datetime

from forewarn.control.schemas import VirtualMachineView
from forewarn.domain.topology import ScopeKind, Topology, VirtualMachine


def virtual_machine_view(
    vm: VirtualMachine, topology: Topology, last_polled_at: datetime | None = None
) -> VirtualMachineView:
    """Return *vm* as the API shows it."""
    scope = topology.scopes[vm.scope_id]
    return VirtualMachineView(
        name=vm.name,
        scope_id=vm.scope_id,
        scope_kind=scope.kind,
        scope_name=scope.name,
        placement_group=scope.placement_group,
        update_domain=vm.update_domain,
        fault_domain=vm.fault_domain,
        host=vm.host,
        addresses=vm.addresses,
        vm_id=vm.vm_id,
        role=vm.role if scope.kind is ScopeKind.CLOUD_SERVICE else None,
        zone=vm.zone,
        location=vm.location,
        resource_group=vm.resource_group,
        subscription_id=vm.subscription_id,
        tags=vm.tags,
        labels=vm.labels,
        profile=vm.profile.known,
        last_polled_at=last_polled_at,
    )
