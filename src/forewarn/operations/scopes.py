"""Delivery scopes by name or id."""

from forewarn.domain.errors import NotFoundError
from forewarn.domain.names import ScopeId, name_key, names_place, place_keys
from forewarn.domain.topology import DeliveryScope, Topology, VirtualMachine


class UnknownSelectionError(NotFoundError):
    """A delivery scope that does not exist was selected; *vm* has that name, if there is one."""

    def __init__(self, scope: str, vm: VirtualMachine | None = None) -> None:
        super().__init__(
            f"Unknown set, service, scale set or virtual machine {scope!r}."
            if vm is None
            else f"{vm.name} belongs to the scope {vm.scope_id}; use that name."
        )
        self.scope = scope


def find_scope_ids(topology: Topology, name: str) -> tuple[ScopeId, ...]:
    """Return the scopes that *name* is the name or the id of, in any case: none, one or several.

    The placement groups of a scale set are scopes of one name.
    """
    return tuple(scope_id for scope_id in topology.scopes if names_place(name, scope_id))


def find_scopes(topology: Topology, *names: str) -> tuple[DeliveryScope, ...]:
    """Return the scopes that *names* are names or ids of, or refuse the first that is neither."""
    wanted = {name_key(name): name for name in names}
    meant = {scope_id: place_keys(scope_id) & wanted.keys() for scope_id in topology.scopes}
    known = set().union(*meant.values())
    for key, name in wanted.items():
        if key not in known:
            raise unknown_selection(topology, name)
    return tuple(topology.scopes[scope_id] for scope_id, keys in meant.items() if keys)


def unknown_selection(topology: Topology, name: str) -> UnknownSelectionError:
    """Return why *name* selects no scope of *topology*."""
    key = name_key(name)
    vms = topology.virtual_machines.values()
    return UnknownSelectionError(name, next((vm for vm in vms if name_key(vm.name) == key), None))
