"""The fleet of the demo as data: who is where, who may approve, and how each one answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import DeliveryScope, ScopeKind


class Behaviour(StrEnum):
    """How a virtual machine answers an event that names it."""

    QUICK = "quick"  # drains and approves, soon
    SLOW = "slow"  # drains and approves, late
    LEADER = "leader"  # drains and approves if it is the first in Resources
    NEVER = "never"  # watches, and lets NotBefore come


@dataclass(frozen=True, slots=True)
class DemoScope:
    """A delivery scope of the demo."""

    kind: ScopeKind
    name: str
    update_domains: int
    approval: ApprovalPolicy

    @property
    def scope_id(self) -> ScopeId:
        return DeliveryScope(kind=self.kind, name=self.name).scope_id


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoMachine:
    """A virtual machine of the demo. *drain* is how long that takes, in maintenance time."""

    name: VmName
    host: HostName
    behaviour: Behaviour
    drain: timedelta
    scope: str | None
    update_domain: int


SCOPES: Final = (
    DemoScope(ScopeKind.AVAILABILITY_SET, "web", update_domains=3, approval=ApprovalPolicy.ANY),
    DemoScope(ScopeKind.CLOUD_SERVICE, "shop", update_domains=2, approval=ApprovalPolicy.ALL),
    DemoScope(ScopeKind.SCALE_SET, "batch", update_domains=2, approval=ApprovalPolicy.LEADER),
)
APPROVALS: Final[Mapping[ScopeId, ApprovalPolicy]] = {
    scope.scope_id: scope.approval for scope in SCOPES
}


_MEMBERS: Final = """
kvm-1  web-0          web    0  quick   1.5
kvm-1  web-3          web    0  slow    8
kvm-1  FrontEnd_IN_0  shop   0  quick   2
kvm-1  BackEnd_IN_0   shop   0  quick   4
kvm-2  web-1          web    1  quick   2
kvm-2  web-4          web    1  slow    7
kvm-2  batch_1        batch  1  never   0
kvm-2  batch_3        batch  1  leader  3
kvm-3  web-2          web    2  quick   1.5
kvm-3  web-5          web    2  quick   3
kvm-3  FrontEnd_IN_1  shop   1  quick   2
kvm-3  BackEnd_IN_1   shop   1  slow    9
kvm-4  batch_0        batch  0  leader  3
kvm-4  batch_2        batch  0  leader  3
kvm-4  mail           -      0  quick   1
kvm-4  db             -      0  slow    6
"""
"""Host, virtual machine, scope, update domain, how it answers, and its drain in minutes."""


def _read_member(line: str) -> DemoMachine:
    host, name, scope, update_domain, behaviour, minutes = line.split()
    return DemoMachine(
        name=VmName(name),
        host=HostName(host),
        scope=None if scope == "-" else scope,
        update_domain=int(update_domain),
        behaviour=Behaviour(behaviour),
        drain=timedelta(minutes=float(minutes)),
    )


MEMBERS: Final = tuple(map(_read_member, _MEMBERS.strip().splitlines()))
HOST_OF: Final = {member.name: member.host for member in MEMBERS}
HOSTS: Final = tuple(dict.fromkeys(HOST_OF.values()))


def fleet_file() -> str:
    """Return the fleet as a server reads it."""
    lines = ["# The fleet of `forewarn demo`."]
    tables = {scope.name: scope.kind.replace("-", "_") for scope in SCOPES}
    for scope in SCOPES:
        lines.append(f'\n[[{tables[scope.name]}]]\nname = "{scope.name}"')
        lines.append(f'update_domains = {scope.update_domains}\napproval = "{scope.approval}"')
    for member in MEMBERS:
        lines.append(f'\n[[virtual_machine]]\nname = "{member.name}"\nhost = "{member.host}"')
        if member.scope:
            lines.append(f'{tables[member.scope]} = "{member.scope}"')
            lines.append(f"update_domain = {member.update_domain}")
    return "\n".join([*lines, ""])
