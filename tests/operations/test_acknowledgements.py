"""Approving in the name of a virtual machine, or of a set of them."""

import pytest

from forewarn.domain.errors import UnknownEventError
from forewarn.domain.event import Approver
from forewarn.domain.topology import ScopeKind
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.approvals import ArmResource, UnknownResourceError, acknowledge
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType

PLACED = """
[[virtual_machine]]
name = "placed"
subscription_id = "5A"
resource_group = "shop"
"""


def announce(store: Store, operator: Context, vm: str, *, started: bool = False) -> EventId:
    order = EventOrder(event_type=EventType.REBOOT, resources=(vm,), started=started)
    (event,) = store.write(lambda tx: create_events(tx, operator, order))
    return event.event_id


def approve(store: Store, operator: Context, event_id: EventId, kind: ScopeKind, name: str) -> None:
    resource = ArmResource(kind=kind, name=name, subscription_id="5a", resource_group="Shop")
    store.write(lambda tx: acknowledge(tx, operator, resource, event_id))


def approvals(store: Store, event_id: EventId) -> list[tuple[Approver, str]]:
    event = store.read(lambda reading: reading.event(event_id))
    assert event is not None
    return [(approval.approver, approval.name) for approval in event.approvals]


def test_virtual_machine_votes_for_itself(fleet: Store, operator: Context) -> None:
    event_id = announce(fleet, operator, "web-0")

    approve(fleet, operator, event_id, ScopeKind.VIRTUAL_MACHINE, "WEB-1")

    assert approvals(fleet, event_id) == [(Approver.VIRTUAL_MACHINE, "web-1")]


@pytest.mark.parametrize(
    ("kind", "name", "vm"),
    [
        (ScopeKind.AVAILABILITY_SET, "Web", "web-0"),
        (ScopeKind.SCALE_SET, "batch", "batch-0"),
    ],
)
def test_set_is_spoken_for_by_an_operator_once(
    fleet: Store, operator: Context, kind: ScopeKind, name: str, vm: str
) -> None:
    event_id = announce(fleet, operator, vm)

    approve(fleet, operator, event_id, kind, name)
    approve(fleet, operator, event_id, kind, name)

    assert approvals(fleet, event_id) == [(Approver.OPERATOR, "alice")]
    assert len(fleet.read(lambda reading: reading.ledger(event_id))) == 2


def test_acknowledgement_that_comes_too_late_does_no_harm(fleet: Store, operator: Context) -> None:
    event_id = announce(fleet, operator, "web-0", started=True)

    approve(fleet, operator, event_id, ScopeKind.AVAILABILITY_SET, "web")
    approve(fleet, operator, event_id, ScopeKind.VIRTUAL_MACHINE, "web-0")

    assert approvals(fleet, event_id) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ScopeKind.VIRTUAL_MACHINE, "solo"), (ScopeKind.SCALE_SET, "batch")],
)
def test_event_of_another_scope_is_unknown(
    fleet: Store, operator: Context, kind: ScopeKind, name: str
) -> None:
    event_id = announce(fleet, operator, "web-0")

    with pytest.raises(UnknownEventError):
        approve(fleet, operator, event_id, kind, name)


@pytest.mark.parametrize("kind", [ScopeKind.VIRTUAL_MACHINE, ScopeKind.AVAILABILITY_SET])
def test_resource_that_is_not_there_is_unknown(
    fleet: Store, operator: Context, kind: ScopeKind
) -> None:
    with pytest.raises(UnknownResourceError, match="'ghost' in resource group 'Shop'"):
        approve(fleet, operator, EventId("E1"), kind, "ghost")


@pytest.mark.parametrize(
    ("subscription_id", "resource_group", "is_there"),
    [("5a", "SHOP", True), ("5b", "shop", False), ("5a", "office", False)],
)
def test_machine_is_only_found_where_it_says_it_is(
    fleet: Store, operator: Context, subscription_id: str, resource_group: str, *, is_there: bool
) -> None:
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(PLACED)))
    event_id = announce(fleet, operator, "placed")
    resource = ArmResource(
        kind=ScopeKind.VIRTUAL_MACHINE,
        name="placed",
        subscription_id=subscription_id,
        resource_group=resource_group,
    )

    try:
        fleet.write(lambda tx: acknowledge(tx, operator, resource, event_id))
    except UnknownResourceError:
        assert not is_there
    assert bool(approvals(fleet, event_id)) is is_there
