"""The fleet: who is where, who read whose document from when on, and who polls."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology
from forewarn.ports.entries import Membership, MembershipKey


class PreparedTopology(Protocol):
    """A topology, with the work that it takes to write it in place of another one."""

    @property
    def topology(self) -> Topology: ...


class FleetReading(Protocol):
    """A look at the fleet."""

    def topology(self) -> Topology: ...

    def topology_at_hand(self) -> tuple[int, Topology] | None:
        """Return the fleet and its number, which is higher than that of any before.

        None if all of it would have to be read, for which whoever holds up others has no time.
        """

    def prepare_topology(self, topology: Topology) -> PreparedTopology:
        """Do all the work for `put_topology` that need not be done while others wait."""

    def memberships(self, vm: str) -> tuple[Membership, ...]:
        """Return in which scopes a virtual machine was, in any case of its name, oldest first."""

    def superseded_memberships(self, before: datetime, *, limit: int) -> tuple[MembershipKey, ...]:
        """Return those that held for no moment from *before* on, and of machines gone by then."""

    def last_polled_at(self, scope_id: ScopeId, /) -> datetime | None: ...

    def last_polls(self, vms: Iterable[VmName]) -> Mapping[VmName, datetime]: ...


class FleetWriting(FleetReading, Protocol):
    """A look at the fleet that may also change it."""

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        """Make *topology* the fleet. What was *prepared* for another one is of no use, nor harm."""

    def put_memberships(self, memberships: Iterable[Membership]) -> None: ...

    def remove_memberships(self, memberships: Iterable[MembershipKey]) -> None: ...

    def put_polled_at(self, scope_id: ScopeId, at: datetime) -> None: ...

    def put_polls(self, polls: Mapping[VmName, datetime]) -> None: ...
