"""Which virtual machines and scopes each host has, for followers that are told of one host only.

With 20,000 of them, a change must cost nothing for those that it does not concern. So whoever
follows the host of a virtual machine, or of one in a scope, is found without looking at the others.
"""

from collections.abc import Collection
from typing import Final

from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.domain.topology import Topology, VirtualMachine

_NONE: Final[dict[VmName, ScopeId]] = {}


def host_key(host: HostName | None) -> str | None:
    """Return what two spellings of a host have in common; None if there is no host."""
    return None if host is None else name_key(host)


class HostIndex:
    """The machines of each host by name, each with its scope, and the hosts of each scope.

    Of the latter there are only hosts that are followed. Whoever uses it holds a lock.
    """

    def __init__(self, topology: Topology) -> None:
        self._machines: dict[str, dict[VmName, ScopeId]] = {}
        # Most scopes are on one host or on none that is followed, so there is no set for each.
        self._hosts: dict[ScopeId, tuple[str, ...]] = {}
        self._followed: set[str] = set()
        for vm in topology.virtual_machines.values():
            self._enter(vm)

    def move(self, before: VirtualMachine | None, after: VirtualMachine | None) -> None:
        """Take in that a machine is as it is *after*."""
        if before is not None and (key := host_key(before.host)) is not None:
            self._machines.get(key, {}).pop(before.name, None)
            if not self._machines.get(key):
                self._machines.pop(key, None)
        if after is not None:
            self._enter(after)

    def follow(self, host: str) -> None:
        """Have `hosts_with` find *host* from now on."""
        self._followed.add(host)
        for scope_id in self.scopes_on(host):
            self._add_host(scope_id, host)

    def leave(self, host: str) -> None:
        """Have `hosts_with` no longer find *host*."""
        self._followed.discard(host)
        for scope_id in self.scopes_on(host):
            self.hosts_with(scope_id)

    def machines_on(self, host: str) -> Collection[VmName]:
        return self._machines.get(host, _NONE).keys()

    def scopes_on(self, host: str) -> set[ScopeId]:
        return set(self._machines.get(host, _NONE).values())

    def hosts_with(self, scope_id: ScopeId) -> tuple[str, ...]:
        """Return the hosts that are followed and have machines of the scope."""
        known = self._hosts.get(scope_id, ())
        found = tuple(host for host in known if self._is_wanted(host, scope_id))
        if found:
            self._hosts[scope_id] = found
        else:
            self._hosts.pop(scope_id, None)
        return found

    def _is_wanted(self, host: str, scope_id: ScopeId) -> bool:
        return host in self._followed and scope_id in self._machines.get(host, _NONE).values()

    def _enter(self, vm: VirtualMachine) -> None:
        host = host_key(vm.host)
        if host is None:
            return
        self._machines.setdefault(host, {})[vm.name] = vm.scope_id
        if host in self._followed:
            self._add_host(vm.scope_id, host)

    def _add_host(self, scope_id: ScopeId, host: str) -> None:
        known = self._hosts.get(scope_id, ())
        if host not in known:
            self._hosts[scope_id] = (*known, host)
