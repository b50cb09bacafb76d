"""Who comes to which host when the fleet changes, and what keeps them from there.

Every change of the fleet is checked here before it is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.domain.errors import DomainError
from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import Closure, Topology
from forewarn.domain.wording import say_moment, say_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A virtual machine that a change puts on a host: it is new, or was elsewhere."""

    vm: VmName
    host: HostName


class HostClosedError(DomainError):
    """A host that takes no more virtual machines."""

    def __init__(self, host: HostName, closure: Closure, vms: Iterable[VmName]) -> None:
        self.host = host
        self.vms = tuple(vms)
        self.vm = self.vms[0]
        self.since = closure.closed_at
        reason = f": {closure.closed_reason.rstrip('.')}" if closure.closed_reason else ""
        super().__init__(
            f"{host} is closed to new virtual machines since "
            f"{say_moment(closure.closed_at)}{reason}. Choose another host for "
            f"{say_names(self.vms)}, open it with: forewarn host open {host}, "
            "or state it as a fact with --as-is."
        )


def arrivals(before: Topology, after: Topology) -> tuple[Arrival, ...]:
    """Return who comes to which host between *before* and *after*, in fleet order."""
    known = before.virtual_machines
    return tuple(
        Arrival(vm=name, host=vm.host)
        for name, vm in after.virtual_machines.items()
        if vm.host is not None and (name not in known or known[name].host != vm.host)
    )


def check_placements(before: Topology, after: Topology, *, as_is: bool) -> None:
    """Refuse a change that puts virtual machines on hosts that do not take them.

    What is stated *as_is* has happened already, so there is nothing to refuse.
    """
    if as_is:
        return
    coming: dict[HostName, list[VmName]] = {}
    for arrival in arrivals(before, after):
        coming.setdefault(arrival.host, []).append(arrival.vm)
    for host, vms in coming.items():
        closure = after.hosts[host].closure
        if closure is not None:
            raise HostClosedError(host, closure, vms)
