"""Changing single fields of one entry of the fleet (JSON merge patch, RFC 7396).

An entry is taken in the words of the fleet file, changed, and declared again, so that what a
patch may say and what refuses it is what a fleet file may say and what refuses that.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from forewarn.domain.errors import ConflictError
from forewarn.domain.names import VmName, name_key, nearest_names
from forewarn.domain.topology import DeliveryScope, Host, Topology, VirtualMachine
from forewarn.files.declarations import DEFAULTS, SET_TABLES, Entry, declare_set, declare_vm
from forewarn.files.fleet import read_fleet
from forewarn.operations.context import Context
from forewarn.operations.hosts import find_host
from forewarn.operations.inventory import apply_fleet, find_vm
from forewarn.operations.safeguards import ApplyOptions
from forewarn.operations.scopes import find_scopes
from forewarn.ports.store import Transaction

_DOMAINS: Final = ("update_domain", "fault_domain")


class NewHostError(ConflictError):
    """A virtual machine that is moved to a host nobody has named before, as by a typo."""

    def __init__(self, host: str, known: Iterable[str]) -> None:
        near = nearest_names(host, known)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"Unknown host {host!r}.{meant}")
        self.host = host


def patch_vm(
    tx: Transaction,
    context: Context,
    name: str,
    patch: Mapping[str, JsonValue],
    options: ApplyOptions,
    *,
    new_host: bool = False,
) -> VirtualMachine:
    """Change what *patch* names of a virtual machine, and nothing else.

    The host has to be one that a declaration or another machine names, unless it is a *new_host*.
    """
    topology = tx.topology()
    vm = find_vm(topology, name)
    if not new_host:
        _check_host(topology, patch.get("host"))
    entry = declare_vm(vm, topology.scopes[vm.scope_id])
    # The domains stay as they are in the same scope, and are assigned anew in another one.
    dropped = set(_DOMAINS)
    if any(patch.get(table) is not None for table in SET_TABLES.values()):
        # Settings of its own are those of the scope of a standalone machine.
        dropped |= DEFAULTS.keys()
    kept = {key: value for key, value in entry.items() if key not in dropped}
    fleet = read_fleet({"virtual_machine": [_merge(kept, patch)]})
    apply_fleet(tx, context, fleet, options=options, action="vm set")
    return find_vm(tx.topology(), vm.name)


def patch_host(
    tx: Transaction, context: Context, name: str, patch: Mapping[str, JsonValue]
) -> Host:
    """Change what *patch* names of a host, and nothing else."""
    host = find_host(tx.topology().hosts.values(), name)
    entry: Entry = {"name": host.name, "labels": dict(host.labels)}
    fleet = read_fleet({"host": [_merge(entry, patch)]})
    apply_fleet(tx, context, fleet, action="host set")
    return find_host(tx.topology().hosts.values(), host.name)


def patch_scope(
    tx: Transaction, context: Context, name: str, patch: Mapping[str, JsonValue]
) -> DeliveryScope:
    """Change the settings that *patch* names of a scope, and nothing else.

    All placement groups of a scale set have its settings.
    """
    topology = tx.topology()
    scope = find_scopes(topology, name)[0]
    table = SET_TABLES.get(scope.kind)
    if table is None:
        # The settings of a standalone machine are in its own entry.
        table, entry = (
            "virtual_machine",
            declare_vm(topology.virtual_machines[VmName(scope.name)], scope),
        )
    else:
        entry = declare_set(scope)
    apply_fleet(tx, context, read_fleet({table: [_merge(entry, patch)]}), action="scope set")
    return tx.topology().scopes[scope.scope_id]


def _check_host(topology: Topology, host: JsonValue) -> None:
    if isinstance(host, str) and name_key(host) not in map(name_key, topology.hosts):
        raise NewHostError(host, topology.hosts)


def _merge(entry: Mapping[str, JsonValue], patch: Mapping[str, JsonValue]) -> Entry:
    merged = dict(entry)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            known = merged.get(key)
            merged[key] = _merge(known if isinstance(known, dict) else {}, value)
        else:
            merged[key] = value
    return merged
