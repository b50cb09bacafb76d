"""The fleet of the demo as data: who is where, who may approve, and how each one answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import DeliveryScope, ScopeKind


class Behaviour(StrEnum):
    """How a virtual machine answers an event that names it."""

    QUICK = "quick"
    """It drains and approves, soon."""
    SLOW = "slow"
    """It drains and approves, late."""
    LEADER = "leader"
    """It drains and approves if it comes first in Resources; else that is for another to do."""
    NEVER = "never"
    """It watches, and lets NotBefore come."""


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
    scope: str | None = None
    update_domain: int = 0

    @property
    def place(self) -> str:
        """Its scope and update domain in a few letters."""
        return f"{self.scope}/{self.update_domain}" if self.scope else "alone"


SCOPES: Final = (
    DemoScope(ScopeKind.AVAILABILITY_SET, "web", update_domains=3, approval=ApprovalPolicy.ANY),
    DemoScope(ScopeKind.CLOUD_SERVICE, "shop", update_domains=2, approval=ApprovalPolicy.ALL),
    DemoScope(ScopeKind.SCALE_SET, "batch", update_domains=2, approval=ApprovalPolicy.LEADER),
)
APPROVALS: Final[Mapping[ScopeId, ApprovalPolicy]] = {
    scope.scope_id: scope.approval for scope in SCOPES
}


def _members(
    host: str, *rows: tuple[str, str | None, int, Behaviour, float]
) -> tuple[DemoMachine, ...]:
    return tuple(
        DemoMachine(
            name=VmName(name),
            host=HostName(host),
            scope=scope,
            update_domain=update_domain,
            behaviour=behaviour,
            drain=timedelta(minutes=minutes),
        )
        for name, scope, update_domain, behaviour, minutes in rows
    )


MEMBERS: Final = (
    *_members(
        "kvm-1",
        ("web-0", "web", 0, Behaviour.QUICK, 1.5),
        ("web-3", "web", 0, Behaviour.SLOW, 8),
        ("FrontEnd_IN_0", "shop", 0, Behaviour.QUICK, 2),
        ("BackEnd_IN_0", "shop", 0, Behaviour.QUICK, 4),
    ),
    *_members(
        "kvm-2",
        ("web-1", "web", 1, Behaviour.QUICK, 2),
        ("web-4", "web", 1, Behaviour.SLOW, 7),
        ("batch_1", "batch", 1, Behaviour.NEVER, 0),
        ("batch_3", "batch", 1, Behaviour.LEADER, 3),
    ),
    *_members(
        "kvm-3",
        ("web-2", "web", 2, Behaviour.QUICK, 1.5),
        ("web-5", "web", 2, Behaviour.QUICK, 3),
        ("FrontEnd_IN_1", "shop", 1, Behaviour.QUICK, 2),
        ("BackEnd_IN_1", "shop", 1, Behaviour.SLOW, 9),
    ),
    *_members(
        "kvm-4",
        ("batch_0", "batch", 0, Behaviour.LEADER, 3),
        ("batch_2", "batch", 0, Behaviour.LEADER, 3),
        ("mail", None, 0, Behaviour.QUICK, 1),
        ("db", None, 0, Behaviour.SLOW, 6),
    ),
)
HOSTS: Final = tuple(dict.fromkeys(member.host for member in MEMBERS))


def fleet_file() -> str:
    """Return the fleet as a server reads it."""
    return "\n".join(_tables())


def _tables() -> Iterator[str]:
    yield "# The fleet of `forewarn demo`."
    tables = {scope.name: scope.kind.replace("-", "_") for scope in SCOPES}
    for scope in SCOPES:
        yield f'\n[[{tables[scope.name]}]]\nname = "{scope.name}"'
        yield f'update_domains = {scope.update_domains}\napproval = "{scope.approval}"'
    for member in MEMBERS:
        yield f'\n[[virtual_machine]]\nname = "{member.name}"\nhost = "{member.host}"'
        if member.scope:
            yield f'{tables[member.scope]} = "{member.scope}"'
            yield f"update_domain = {member.update_domain}"
    yield ""
