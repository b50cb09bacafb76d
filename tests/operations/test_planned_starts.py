"""Starting what a plan has shown, and nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest

from forewarn.domain.course import Course
from forewarn.domain.errors import PlanError
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.files.fleet import read_fleet
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import start_maintenance
from forewarn.operations.planned_starts import (
    PlanChangedError,
    PlanOffer,
    offer_plan,
    start_as_planned,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

WEB = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web",))


def offer(store: Store, context: Context, order: MaintenanceOrder = WEB) -> PlanOffer:
    return store.read(lambda reading: offer_plan(reading, context, order))


def start(store: Store, context: Context, digest: str, order: MaintenanceOrder = WEB) -> None:
    store.write(lambda tx: start_as_planned(tx, context, order, digest))


def grow(store: Store, context: Context) -> None:
    more = {"virtual_machine": [{"name": "web-2", "availability_set": "web"}]}
    sets = {"availability_set": [{"name": "web", "update_domains": 3, "postpone_until": "30m"}]}
    store.write(lambda tx: apply_fleet(tx, context, read_fleet({**sets, **more})))


def test_what_was_shown_is_started(fleet: Store, operator: Context) -> None:
    shown = offer(fleet, operator)

    start(fleet, replace(operator, now=operator.now + timedelta(minutes=5)), shown.digest)

    (begun,) = fleet.read(lambda reading: reading.maintenances())
    assert begun.resources == shown.plan.resources


def test_another_fleet_is_another_plan(fleet: Store, operator: Context) -> None:
    shown = offer(fleet, operator)
    grow(fleet, operator)

    with pytest.raises(PlanChangedError):
        start(fleet, operator, shown.digest)

    assert fleet.read(lambda reading: reading.maintenances()) == ()


@pytest.mark.parametrize(
    "order",
    [
        replace(WEB, event_type=EventType.FREEZE),
        replace(WEB, description="another"),
        replace(WEB, course=Course(soak=timedelta(minutes=1))),
    ],
)
def test_another_order_is_another_plan(
    fleet: Store, operator: Context, order: MaintenanceOrder
) -> None:
    shown = offer(fleet, operator)

    with pytest.raises(PlanChangedError):
        start(fleet, operator, shown.digest, order)


def test_another_maintenance_of_the_same_machines_is_another_plan(
    fleet: Store, operator: Context
) -> None:
    shown = offer(fleet, operator)
    fleet.write(lambda tx: start_maintenance(tx, operator, WEB))

    with pytest.raises(PlanChangedError):
        start(fleet, operator, shown.digest)


def test_plan_with_errors_is_not_started(fleet: Store, operator: Context) -> None:
    order = replace(WEB, course=Course(min_available=100))
    shown = offer(fleet, operator, order)

    assert shown.plan.errors
    with pytest.raises(PlanError):
        start(fleet, operator, shown.digest, order)
