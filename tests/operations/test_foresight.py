"""The steps that Maintenances have before them, and when they are likely to take place."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.operations.test_planning import live
from tests.tasks import Assigner

from forewarn.domain.course import Course
from forewarn.domain.event import Outcome
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.timetable import LEAST_SAMPLES
from forewarn.files.fleet import read_fleet
from forewarn.operations.context import Context
from forewarn.operations.events import complete_event, start_event
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    abort_maintenance,
    pause_maintenance,
    start_maintenance,
)
from forewarn.operations.pausing import pause_server
from forewarn.operations.planning import foresee_maintenance, foresee_steps
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.scheduler.tick import decide_and_record

Later = Callable[[datetime], Context]
Foreseen = list[tuple[str, timedelta, timedelta | None]]

MINUTE = timedelta(minutes=1)
WEB = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web",))


def begin(store: Store, context: Context, order: MaintenanceOrder = WEB) -> str:
    return store.write(lambda tx: start_maintenance(tx, context, order)).maintenance_id


def tick(store: Store, context: Context) -> None:
    store.write(lambda tx: decide_and_record(tx, context, {}, Assigner(), epoch=tx.next_epoch()))


def foreseen(store: Store, context: Context, began: datetime | None = None) -> Foreseen:
    """Return whom each step is for, when it starts and when it ends, since it *began*."""
    since = began or context.now
    return [
        (
            each.step.shares[0].resources[0],
            each.likely.starts - since,
            each.likely.ends - since if each.likely.ends else None,
        )
        for each in store.read(lambda reading: list(foresee_steps(reading, context)))
    ]


def in_flight(store: Store) -> EventId:
    (event,) = store.read(lambda reading: reading.events_in_flight())
    return event.event_id


def test_steps_are_due_with_their_notice_one_after_the_other(
    fleet: Store, operator: Context
) -> None:
    begin(fleet, operator)

    assert foreseen(fleet, operator) == [
        ("web-0", 15 * MINUTE, 25 * MINUTE),
        ("web-1", 40 * MINUTE, 50 * MINUTE),
    ]


def test_step_waits_for_the_end_of_what_is_announced(
    fleet: Store, operator: Context, later: Later
) -> None:
    begin(fleet, operator)
    tick(fleet, operator)

    after = later(operator.now + MINUTE)

    assert foreseen(fleet, after, operator.now) == [("web-1", 40 * MINUTE, 50 * MINUTE)]


def test_step_waits_for_the_end_of_what_has_started_and_not_for_the_past(
    fleet: Store, operator: Context, later: Later
) -> None:
    began = operator.now
    begin(fleet, operator)
    tick(fleet, operator)
    fleet.write(lambda tx: start_event(tx, later(began + 5 * MINUTE), in_flight(fleet)))

    assert [
        foreseen(fleet, later(began + minutes * MINUTE), began)[0][1] for minutes in (6, 60)
    ] == [30 * MINUTE, 75 * MINUTE]


def test_soak_and_canary_are_waited_for(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(
        event_type=EventType.REBOOT,
        scopes=("web", "solo"),
        course=Course(canary=("solo",), soak=10 * MINUTE),
    )
    begin(fleet, operator, order)
    tick(fleet, operator)

    assert foreseen(fleet, operator) == [
        ("web-0", 50 * MINUTE, 60 * MINUTE),
        ("web-1", 85 * MINUTE, 95 * MINUTE),
    ]


def test_host_is_one_step(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(event_type=EventType.REBOOT, hosts=("kvm-0", "kvm-1"))
    begin(fleet, operator, order)
    tick(fleet, operator)

    assert foreseen(fleet, operator) == [("web-1", 40 * MINUTE, 50 * MINUTE)]


@pytest.mark.parametrize(("in_order", "starts"), [(False, [15, 40, 15]), (True, [15, 40, 65])])
def test_host_overtakes_one_that_waits_unless_in_order(
    store: Store, operator: Context, *, in_order: bool, starts: list[int]
) -> None:
    places = {"web-0": "kvm-0", "web-1": "kvm-1", "db-0": "kvm-1", "db-1": "kvm-2"}
    machines = [
        {"name": name, "availability_set": name[:-2], "host": host} for name, host in places.items()
    ]
    sets = [{"name": name} for name in ("web", "db")]
    declared = read_fleet({"availability_set": sets, "virtual_machine": machines})
    store.write(lambda tx: apply_fleet(tx, operator, declared))
    order = MaintenanceOrder(
        event_type=EventType.REBOOT,
        hosts=("kvm-0", "kvm-1", "kvm-2"),
        course=Course(at_once=2, in_order=in_order),
    )
    begin(store, operator, order)

    assert [start // MINUTE for _, start, _ in foreseen(store, operator)] == starts


def test_what_somebody_has_to_look_after_is_left_out(fleet: Store, operator: Context) -> None:
    begin(fleet, operator)
    tick(fleet, operator)
    event_id = in_flight(fleet)
    fleet.write(lambda tx: start_event(tx, operator, event_id))
    fleet.write(lambda tx: complete_event(tx, operator, event_id, Outcome.FAILED, "no boot"))

    assert foreseen(fleet, operator) == []


@pytest.mark.parametrize("steer", [pause_maintenance, abort_maintenance])
def test_paused_or_aborted_maintenance_has_nothing_before_it(
    fleet: Store, operator: Context, steer: Callable[..., object]
) -> None:
    maintenance_id = begin(fleet, operator)
    fleet.write(lambda tx: steer(tx, operator, maintenance_id))

    assert foreseen(fleet, operator) == []


def test_paused_server_has_nothing_before_it(fleet: Store, operator: Context) -> None:
    begin(fleet, operator)
    fleet.write(lambda tx: pause_server(tx, operator))

    assert foreseen(fleet, operator) == []


def test_times_are_those_of_the_past_where_there_is_one(fleet: Store, operator: Context) -> None:
    for _ in range(LEAST_SAMPLES):
        live(fleet, operator, EventType.REBOOT, minutes=2)
    now = replace(operator, now=operator.now + timedelta(hours=1))
    begin(fleet, now)

    assert foreseen(fleet, now) == [
        ("web-0", 2 * MINUTE, 4 * MINUTE),
        ("web-1", 6 * MINUTE, 8 * MINUTE),
    ]


def test_five_hundred_steps_are_foreseen_at_most(store: Store, operator: Context) -> None:
    names = [f"vm-{number}" for number in range(502)]
    declared = read_fleet({"virtual_machine": [{"name": name} for name in names]})
    store.write(lambda tx: apply_fleet(tx, operator, declared))
    first, last = names[:501], names[501:]
    for vms in (first, last):
        order = MaintenanceOrder(event_type=EventType.REBOOT, virtual_machines=tuple(vms))
        begin(store, operator, order)

    found = foreseen(store, operator)

    assert [vm for vm, _, _ in found] == names[:500]


def test_steps_of_one_maintenance_are_foreseen_by_themselves(
    fleet: Store, operator: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(fleet, operator, replace(WEB, scopes=("batch",)))
    key = begin(fleet, operator)

    def places() -> list[str]:
        found = fleet.read(lambda reading: foresee_maintenance(reading, operator, key))
        return [each.step.place for each in found]

    assert places() == ["availability-set/web"] * 2
    monkeypatch.setattr("forewarn.operations.planning._STEPS_FORESEEN", 1)
    assert places() == []
