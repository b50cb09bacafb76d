"""The fleet of the demo: which machines each host carries, and how each answers an event."""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.names import HostName, VmName

HOST_LABEL: Final = ("rack", "a1")
"""What all hosts carry, so that an operator can name them all."""
SCOPES: Final = {"web": "availability_set", "cart": "availability_set", "batch": "scale_set"}
"""The table of the fleet file that declares each scope."""


class Behaviour(StrEnum):
    """How a virtual machine answers an event that names it."""

    DRAINS = "drains on notice, then approves"
    HASTY = "approves without draining"
    SILENT = "never responds"


@dataclass(frozen=True, slots=True)
class DemoMachine:
    """A virtual machine of the demo. *drain* is how long that takes, in maintenance time."""

    host: HostName
    name: VmName
    scope: str
    behaviour: Behaviour
    drain: timedelta


_PLACES: Final = {
    "kvm-1": "web-0 cart-0 batch_0 db",
    "kvm-2": "web-1 cart-1 batch_1 mail",
    "kvm-3": "web-2 cart-2 batch_2 dns",
    "kvm-4": "web-3 cart-3 batch_3 ldap",
}
_HABITS: Final = {"cart": (Behaviour.HASTY, 0), "batch_1": (Behaviour.SILENT, 0)}
"""How a machine or those of a scope answer, and how many minutes they drain, if not as usual."""
_USUAL: Final = (Behaviour.DRAINS, 2)


def _make_member(host: str, name: str) -> DemoMachine:
    scope = re.split("[-_]", name)[0]
    behaviour, minutes = _HABITS.get(name) or _HABITS.get(scope, _USUAL)
    return DemoMachine(HostName(host), VmName(name), scope, behaviour, timedelta(minutes=minutes))


MEMBERS: Final = {
    VmName(name): _make_member(host, name) for host in _PLACES for name in _PLACES[host].split()
}
SILENT: Final = {name for name, each in MEMBERS.items() if each.behaviour is Behaviour.SILENT}
HOSTS: Final = tuple(map(HostName, _PLACES))


def fleet_file() -> str:
    """Return the fleet as a server reads it; each host carries an update domain of its own."""
    lines = ["# The fleet of `forewarn demo`."]
    lines += [f'\n[[{table}]]\nname = "{scope}"' for scope, table in SCOPES.items()]
    label = '{{ {} = "{}" }}'.format(*HOST_LABEL)
    lines += [f'\n[[host]]\nname = "{host}"\nlabels = {label}' for host in HOSTS]
    for member in MEMBERS.values():
        lines.append(f'\n[[virtual_machine]]\nname = "{member.name}"\nhost = "{member.host}"')
        if table := SCOPES.get(member.scope):
            lines.append(f'{table} = "{member.scope}"\nupdate_domain = {HOSTS.index(member.host)}')
    return "\n".join([*lines, ""])
