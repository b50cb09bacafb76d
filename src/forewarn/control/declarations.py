"""The fleet as it is, in the words of the fleet file: what is shown can be applied again."""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from forewarn.control.schemas import VirtualMachineView
from forewarn.domain.policy import Policy
from forewarn.domain.topology import DeliveryScope, ScopeKind, Topology, VirtualMachine
from forewarn.operations.durations import format_duration

_TABLES: Final[Mapping[ScopeKind, str]] = {
    ScopeKind.AVAILABILITY_SET: "availability_set",
    ScopeKind.CLOUD_SERVICE: "cloud_service",
    ScopeKind.SCALE_SET: "scale_set",
}


def declare_fleet(topology: Topology) -> dict[str, list[dict[str, JsonValue]]]:
    """Return all of *topology* as a fleet file would declare it."""
    fleet: dict[str, list[dict[str, JsonValue]]] = {}
    for kind, table in _TABLES.items():
        entries = [
            _declare_scope(scope) for scope in topology.scopes.values() if scope.kind is kind
        ]
        # A placement group follows from the virtual machines in it.
        fleet[table] = [entry for entry in entries if entry is not None]
    vms = topology.virtual_machines.values()
    fleet["virtual_machine"] = [_declare_vm(vm, topology.scopes[vm.scope_id]) for vm in vms]
    fleet["host"] = list(_declare_hosts(topology))
    return {table: entries for table, entries in fleet.items() if entries}


def virtual_machine_view(vm: VirtualMachine, topology: Topology) -> VirtualMachineView:
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
    )


def _declare_scope(scope: DeliveryScope) -> dict[str, JsonValue] | None:
    if scope.placement_group is not None:
        return None
    return {
        "name": scope.name,
        "update_domains": scope.update_domains,
        "fault_domains": scope.fault_domains,
        **_declare_policy(scope.policy),
    }


def _declare_vm(vm: VirtualMachine, scope: DeliveryScope) -> dict[str, JsonValue]:
    table = _TABLES.get(scope.kind)
    if table is None:
        place: dict[str, JsonValue] = _declare_policy(scope.policy)
    else:
        place = {
            table: scope.name,
            "placement_group": scope.placement_group,
            "update_domain": vm.update_domain,
            "fault_domain": vm.fault_domain,
        }
    entry: dict[str, JsonValue] = {
        "name": vm.name,
        **place,
        "host": vm.host,
        "addresses": list(vm.addresses),
        "vm_id": vm.vm_id,
        "zone": vm.zone,
        "location": vm.location,
        "resource_group": vm.resource_group,
        "subscription_id": vm.subscription_id,
        "tags": dict(vm.tags),
        "labels": dict(vm.labels),
    }
    return {key: value for key, value in entry.items() if value not in (None, "", [], {})}


def _declare_policy(policy: Policy) -> dict[str, JsonValue]:
    usual = Policy()
    entry: dict[str, JsonValue] = {}
    if policy.approval != usual.approval:
        entry["approval"] = policy.approval.value
    if policy.postpone_until != usual.postpone_until:
        entry["postpone_until"] = format_duration(policy.postpone_until)
    if policy.auto_approve_user != usual.auto_approve_user:
        entry["auto_approve_user"] = policy.auto_approve_user
    if policy.terminate_notice is not None:
        entry["terminate_notice"] = format_duration(policy.terminate_notice)
    if policy.notice is not None:
        entry["notice"] = format_duration(policy.notice)
    return entry


def _declare_hosts(topology: Topology) -> Iterator[dict[str, JsonValue]]:
    implied = {vm.host for vm in topology.virtual_machines.values()}
    for host in topology.hosts.values():
        if host.labels:
            yield {"name": host.name, "labels": dict(host.labels)}
        elif host.name not in implied:
            yield {"name": host.name}
