"""The fleet as it is, in the words of the fleet file: what is shown can be applied again."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from pydantic import JsonValue

from forewarn.domain.names import ScopeId
from forewarn.domain.policy import Policy
from forewarn.domain.topology import DeliveryScope, ScopeKind, Topology, VirtualMachine
from forewarn.wording.durations import format_duration

Entry = dict[str, JsonValue]

SET_TABLES: Final[Mapping[ScopeKind, str]] = {
    ScopeKind.AVAILABILITY_SET: "availability_set",
    ScopeKind.CLOUD_SERVICE: "cloud_service",
    ScopeKind.SCALE_SET: "scale_set",
}
"""The table of a fleet file that declares scopes of each kind, except standalone machines."""
VM_TEXTS: Final = tuple(each.name for each in fields(VirtualMachine) if each.type is str)
"""What a machine has that is a text, and empty where nobody has said it."""


def declare_fleet(topology: Topology) -> dict[str, list[Entry]]:
    """Return all of *topology* as a fleet file would declare it."""
    fleet: dict[str, list[Entry]] = {table: [] for table in SET_TABLES.values()}
    for scope in sets_of(topology, topology.scopes):
        fleet[SET_TABLES[scope.kind]].append(declare_set(scope))
    vms = topology.virtual_machines.values()
    fleet["virtual_machine"] = [declare_vm(vm, topology.scopes[vm.scope_id]) for vm in vms]
    fleet["host"] = list(_declare_hosts(topology))
    return {table: entries for table, entries in fleet.items() if entries}


def sets_of(topology: Topology, scope_ids: Iterable[ScopeId]) -> Iterator[DeliveryScope]:
    """Yield which of these a fleet file declares; a placement group follows from its machines."""
    for scope in filter(None, map(topology.scopes.get, scope_ids)):
        if scope.kind in SET_TABLES and scope.placement_group is None:
            yield scope


def declare_set(scope: DeliveryScope) -> Entry:
    """Return the entry of a set, a service or a scale set."""
    return {
        "name": scope.name,
        "update_domains": scope.update_domains,
        "fault_domains": scope.fault_domains,
        **_declare_policy(scope.policy),
    }


def declare_vm(vm: VirtualMachine, scope: DeliveryScope) -> Entry:
    """Return the entry of *vm* in *scope*."""
    table = SET_TABLES.get(scope.kind)
    if table is None:
        place: Entry = _declare_policy(scope.policy)
    else:
        place = {
            table: scope.name,
            "placement_group": scope.placement_group,
            "update_domain": vm.update_domain,
            "fault_domain": vm.fault_domain,
        }
    entry: Entry = {
        "name": vm.name,
        **place,
        "host": vm.host,
        "addresses": list(vm.addresses),
        **{key: getattr(vm, key) for key in VM_TEXTS},
        "tags": dict(vm.tags),
        "labels": dict(vm.labels),
        "profile": dict(vm.profile.known),
    }
    return {key: value for key, value in entry.items() if value not in (None, "", [], {})}


def describe_policy(policy: Policy) -> Entry:
    """Return every setting of *policy*, also those that a fleet file may leave out."""
    terminate_notice, notice = policy.terminate_notice, policy.notice
    return {
        "approval": policy.approval.value,
        "postpone_until": format_duration(policy.postpone_until),
        "auto_approve_user": policy.auto_approve_user,
        "terminate_notice": None if terminate_notice is None else format_duration(terminate_notice),
        "notice": None if notice is None else format_duration(notice),
    }


def _declare_policy(policy: Policy) -> Entry:
    if policy == USUAL_POLICY:
        return {}
    return {key: value for key, value in describe_policy(policy).items() if value != DEFAULTS[key]}


def _declare_hosts(topology: Topology) -> Iterator[Entry]:
    implied = {vm.host for vm in topology.virtual_machines.values()}
    for host in topology.hosts.values():
        if host.labels:
            yield {"name": host.name, "labels": dict(host.labels)}
        elif host.name not in implied:
            yield {"name": host.name}


USUAL_POLICY: Final = Policy()
DEFAULTS: Final[Mapping[str, JsonValue]] = describe_policy(USUAL_POLICY)
"""The settings of a scope whose entry leaves them out."""
