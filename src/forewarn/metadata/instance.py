"""`/metadata/instance`: what a virtual machine may ask about itself.

Every scalar is a string, as with Azure. What we do not know of `compute` is the empty string.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Final, TypeAlias

from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine
from forewarn.metadata.asgi import (
    Header,
    MetadataAnswer,
    MetadataRefusedError,
    answer_bytes,
    answer_error,
)
from forewarn.metadata.asgi import answer_json as _answer_json
from forewarn.protocol.errors import Refusal

Node: TypeAlias = str | Mapping[str, "Node"] | Sequence["Node"]

_SEPARATORS: Final = re.compile("[:-]")
_CONTENT_TYPE_TEXT: Final[Header] = (b"Content-Type", b"text/plain; charset=utf-8")
_COMPUTE: Final = {
    "azEnvironment": "az_environment",
    "offer": "offer",
    "osType": "os_type",
    "publisher": "publisher",
    "sku": "sku",
    "userData": "user_data",
    "version": "version",
    "vmSize": "vm_size",
}
"""What the profile of a virtual machine has a key for."""


def answer_instance(
    vm: VirtualMachine, scope: DeliveryScope | None, *, path: Sequence[str], form: str
) -> MetadataAnswer:
    """Answer with the part of the tree that *path* names, as JSON or as text."""
    interfaces = {"interface": [_interface(vm)]}
    known: Node = {"compute": _describe_compute(vm, scope), "network": interfaces}
    node = _find(known, path)
    if form == "text":
        return answer_bytes(_write_text(node).encode(), content_type=_CONTENT_TYPE_TEXT)
    if form != "json":
        return answer_error("Bad request. The format must be json or text", status=400)
    if isinstance(node, str):
        return answer_error("Bad request. A single value needs format=text", status=400)
    return _answer_json(node)


def _describe_compute(vm: VirtualMachine, scope: DeliveryScope | None) -> Node:
    is_scale_set = scope is not None and scope.kind is ScopeKind.SCALE_SET
    compute: dict[str, Node] = {word: getattr(vm.profile, key) for word, key in _COMPUTE.items()}
    if vm.profile.computer_name:
        compute["osProfile"] = {"computerName": vm.profile.computer_name}
    compute |= {
        "location": vm.location,
        "name": vm.resource_name,
        "placementGroupId": (scope.placement_group or "") if scope and is_scale_set else "",
        "platformFaultDomain": str(vm.fault_domain),
        "platformUpdateDomain": str(vm.update_domain),
        "provider": "Microsoft.Compute",
        "resourceGroupName": vm.resource_group,
        "resourceId": f"/subscriptions/{vm.subscription_id}/resourceGroups/{vm.resource_group}"
        f"/providers/Microsoft.Compute/{_resource(vm, scope if is_scale_set else None)}",
        "subscriptionId": vm.subscription_id,
        "tags": ";".join(f"{name}:{value}" for name, value in vm.tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in vm.tags.items()],
        "vmId": vm.vm_id,
        "vmScaleSetName": scope.name if scope and is_scale_set else "",
        "zone": vm.zone,
    }
    return dict(sorted(compute.items()))


def _resource(vm: VirtualMachine, scale_set: DeliveryScope | None) -> str:
    if scale_set is None:
        return f"virtualMachines/{vm.name}"
    # An instance is called SET_NUMBER, and by its number inside its scale set.
    number = vm.name.removeprefix(f"{scale_set.name}_")
    return f"virtualMachineScaleSets/{scale_set.name}/virtualMachines/{number}"


def _interface(vm: VirtualMachine) -> Node:
    addresses: dict[str, list[Node]] = {"ipv4": [], "ipv6": []}
    for address in vm.addresses:
        if ":" in address:
            addresses["ipv6"].append({"privateIpAddress": address})
        else:
            addresses["ipv4"].append({"privateIpAddress": address, "publicIpAddress": ""})
    interface: dict[str, Node] = {
        family: {"ipAddress": addresses[family], **_subnet(vm, family)} for family in addresses
    }
    # Clients take an empty macAddress for one; what is not known is left out.
    if vm.profile.mac_address:
        interface["macAddress"] = _SEPARATORS.sub("", vm.profile.mac_address).upper()
    return interface


def _subnet(vm: VirtualMachine, family: str) -> Mapping[str, Node]:
    if not vm.profile.subnet:
        return {}
    network = ip_network(vm.profile.subnet)
    if family != f"ipv{network.version}":
        return {}
    return {"subnet": [{"address": str(network.network_address), "prefix": str(network.prefixlen)}]}


def _find(node: Node, path: Sequence[str]) -> Node:
    for step in path:
        if isinstance(node, str):
            raise MetadataRefusedError(Refusal.NOT_FOUND)
        children = _children(node)
        if step not in children:
            raise MetadataRefusedError(Refusal.NOT_FOUND)
        node = children[step]
    return node


def _children(node: Mapping[str, Node] | Sequence[Node]) -> Mapping[str, Node]:
    if isinstance(node, Mapping):
        return {name.lower(): child for name, child in node.items()}
    return {str(number): child for number, child in enumerate(node)}


def _write_text(node: Node) -> str:
    if isinstance(node, str):
        return node
    named = node if isinstance(node, Mapping) else _children(node)
    return "\n".join(
        name if isinstance(child, str) else f"{name}/" for name, child in named.items()
    )
