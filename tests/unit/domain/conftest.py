"""The event, the fleet and the moment that the tests of the rules begin from."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.amending import build_topology
from forewarn.domain.event import Draft, ScheduledEvent, Share, schedule
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
    standalone,
)
from forewarn.protocol.vocabulary import EventId, EventSource, EventType


@pytest.fixture
def now() -> datetime:
    return datetime(2026, 3, 2, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def draft() -> Draft:
    """A reboot of two virtual machines of update domain 0."""
    share = Share(
        scope_id=ScopeId("availability-set/web"),
        update_domain=0,
        resources=(VmName("web-0"), VmName("web-2")),
    )
    return Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        share=share,
        description="Host server is undergoing maintenance.",
        duration_in_seconds=9,
    )


@pytest.fixture
def event(draft: Draft, now: datetime) -> ScheduledEvent:
    """Announce the draft for a quarter past twelve."""
    return schedule(draft, event_id=EventId("E1"), now=now, notice=timedelta(minutes=15))


@pytest.fixture
def fleet() -> Topology:
    """Two sets and a standalone virtual machine.

    |     | kvm-1       | kvm-2       | kvm-3       |
    |-----|-------------|-------------|-------------|
    | web | web-0 (0)   | web-1 (1)   | web-2 (0)   |
    | db  | db-0 (0)    | db-1 (1)    |             |
    | -   |             |             | solo (0)    |
    """
    places = (
        ("web-0", "availability-set/web", 0, "kvm-1"),
        ("web-1", "availability-set/web", 1, "kvm-2"),
        ("web-2", "availability-set/web", 0, "kvm-3"),
        ("db-0", "availability-set/db", 0, "kvm-1"),
        ("db-1", "availability-set/db", 1, "kvm-2"),
        ("solo", "virtual-machine/solo", 0, "kvm-3"),
    )
    return build_topology(
        scopes=(
            DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web"),
            DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="db"),
            standalone(VmName("solo")),
        ),
        virtual_machines=(
            VirtualMachine(
                name=VmName(name),
                scope_id=ScopeId(scope_id),
                update_domain=update_domain,
                host=HostName(host),
            )
            for name, scope_id, update_domain, host in places
        ),
    )
