"""Planning a Maintenance from what the store has; nothing is changed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.course import Course
from forewarn.domain.errors import (
    CapacityError,
    EmptySelectionError,
    PlanError,
    UnknownCanaryError,
    WindowTooShortError,
)
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import VmName
from forewarn.domain.planning import Plan, summarise
from forewarn.domain.timetable import LEAST_SAMPLES
from forewarn.domain.windows import Calendar, read_window
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import (
    EventOrder,
    complete_event,
    create_events,
    operate,
    start_event,
)
from forewarn.operations.gates import GateNotFoundError
from forewarn.operations.maintenances import abort_maintenance, start_maintenance
from forewarn.operations.pausing import pause_server
from forewarn.operations.planning import plan_maintenance, warn_of_overlaps
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

WEB = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web",))


def plan(store: Store, context: Context, order: MaintenanceOrder = WEB) -> Plan:
    return store.read(lambda reading: plan_maintenance(reading, context, order, gates={"Smoke"}))


def test_plan_begins_now(fleet: Store, operator: Context) -> None:
    made = plan(fleet, operator)

    assert [step.shares[0].resources for step in made.steps] == [("web-0",), ("web-1",)]
    assert made.steps[0].earliest
    assert made.steps[0].earliest.begins == operator.now
    assert not fleet.read(lambda reading: reading.maintenances())


def test_plan_of_simulated_impact_knows_its_end(fleet: Store, operator: Context) -> None:
    simulated = replace(operator, rules=Rules(is_simulated=True))

    assert plan(fleet, operator).latest is None
    # Two steps of 15 min notice, postponed by 30 min, and 10 min impact.
    assert plan(fleet, simulated).latest == operator.now + 2 * timedelta(minutes=55)


def test_machines_nobody_polls_for_are_said(fleet: Store, operator: Context) -> None:
    fleet.write(lambda tx: tx.put_polls({VmName("WEB-0"): operator.now}))

    made = plan(fleet, operator)

    assert made.unpolled == ("web-1",)
    assert summarise(made)[-1] == ("No polls in 24 hours from 1 of 2 virtual machines: web-1.")


def test_scope_that_is_busy_is_said(fleet: Store, operator: Context) -> None:
    order = EventOrder(event_type=EventType.FREEZE, resources=("web-1",))
    fleet.write(lambda tx: create_events(tx, operator, order))

    assert "Events are in flight in availability-set/web" in plan(fleet, operator).remarks[-1]


def live(store: Store, context: Context, event_type: EventType, minutes: int) -> None:
    """Have an event wait and last for so many *minutes* each."""
    order = EventOrder(event_type=event_type, resources=("solo",))
    (event,) = store.write(lambda tx: create_events(tx, context, order))
    started = replace(context, now=context.now + timedelta(minutes=minutes))
    store.write(lambda tx: start_event(tx, started, event.event_id))
    ended = replace(context, now=context.now + timedelta(minutes=2 * minutes))
    store.write(lambda tx: complete_event(tx, ended, event.event_id))


def test_history_of_the_same_event_type_gives_a_forecast(fleet: Store, operator: Context) -> None:
    for number in range(LEAST_SAMPLES):
        live(fleet, operator, EventType.REBOOT, minutes=1 + number // 5)
        live(fleet, operator, EventType.FREEZE, minutes=100)

    forecast = plan(fleet, operator).forecast

    assert forecast
    assert forecast.samples == LEAST_SAMPLES
    assert forecast.low == operator.now + 2 * timedelta(minutes=2)
    assert forecast.high == operator.now + 2 * timedelta(minutes=4)


def test_all_that_is_wrong_is_said_and_start_refuses_with_the_first(
    fleet: Store, operator: Context
) -> None:
    course = Course(
        canary=("WEB", "nobody"),
        gates=("smoke", "nowhere"),
        min_available=60,
        calendar=Calendar(windows=(read_window("Sat 22:00-22:20 UTC"),)),
    )
    order = replace(WEB, course=course)

    errors = plan(fleet, operator, order).errors

    assert [type(error) for error in errors] == [
        GateNotFoundError,
        UnknownCanaryError,
        CapacityError,
        CapacityError,
        WindowTooShortError,
    ]
    with pytest.raises(GateNotFoundError):
        fleet.write(lambda tx: start_maintenance(tx, operator, order, gates={"smoke"}))


def test_selection_of_nothing_is_an_error_of_the_plan(fleet: Store, operator: Context) -> None:
    made = plan(fleet, operator, MaintenanceOrder(event_type=EventType.FREEZE))

    assert [type(error) for error in made.errors] == [EmptySelectionError]
    assert made.steps == ()


def test_hosts_and_scopes_together_are_no_selection(fleet: Store, operator: Context) -> None:
    with pytest.raises(PlanError):
        plan(fleet, operator, replace(WEB, hosts=("kvm-0",)))


def test_window_at_the_change_to_summer_time_is_planned_by_the_clock_on_the_wall(
    fleet: Store, operator: Context
) -> None:
    """At 2:00 in Berlin it is 3:00: what is an hour on other nights is none."""
    saturday = replace(operator, now=datetime(2026, 3, 28, 12, tzinfo=UTC))
    narrow = Calendar(windows=(read_window("Sun 02:00-03:00 Europe/Berlin"),))

    made = plan(fleet, saturday, replace(WEB, course=Course(calendar=narrow)))

    assert not made.errors
    assert made.steps[0].earliest
    assert made.steps[0].earliest.begins == datetime(2026, 4, 5, 0, 0, tzinfo=UTC)


def test_restart_by_an_owner_is_counted(fleet: Store, operator: Context) -> None:
    fleet.write(lambda tx: operate(tx, operator, "web-1", EventType.REBOOT))

    made = plan(fleet, operator)

    assert [(step.shares[0].resources, step.shares[0].available) for step in made.steps] == [
        (("web-0",), 0),
        (("web-1",), 1),
    ]
    assert made.remarks[-1] == (
        "Other events are in flight for web-1, such as restarts by their owners: "
        "a step with these virtual machines starts when they have ended."
    )


def shared(store: Store, context: Context, order: MaintenanceOrder) -> list[str]:
    """Return what the plan of *order* warns of about other Maintenances."""
    return [said for said in plan(store, context, order).warnings if "also part of" in said]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (WEB, "1 scope is also part of"),
        (MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-0",)), "1 host is also part of"),
        (
            MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-0", "kvm-1")),
            "2 hosts are also part of",
        ),
    ],
)
@pytest.mark.parametrize("is_by_host", [False, True])
def test_plan_warns_of_what_another_maintenance_has_as_well(
    fleet: Store, operator: Context, order: MaintenanceOrder, said: str, *, is_by_host: bool
) -> None:
    by_host = MaintenanceOrder(event_type=EventType.REBOOT, hosts=("kvm-0", "kvm-1"))
    first = fleet.write(
        lambda tx: start_maintenance(tx, operator, by_host if is_by_host else WEB)
    ).maintenance_id

    said = f"{said} Maintenance {first}, which is still under way."
    assert shared(fleet, operator, order) == [said]
    solo = MaintenanceOrder(event_type=EventType.REBOOT, virtual_machines=("solo",))
    assert shared(fleet, operator, solo) == []
    fleet.write(lambda tx: abort_maintenance(tx, operator, first))
    assert shared(fleet, operator, order) == []


def test_plan_says_that_the_other_maintenance_is_held(fleet: Store, operator: Context) -> None:
    first = fleet.write(lambda tx: start_maintenance(tx, operator, WEB)).maintenance_id
    fleet.write(lambda tx: pause_server(tx, operator, "later"))

    assert shared(fleet, operator, WEB) == [
        f"1 scope is also part of Maintenance {first}, which is held."
    ]


def test_begun_maintenance_does_not_overlap_itself(fleet: Store, operator: Context) -> None:
    begun = fleet.write(lambda tx: start_maintenance(tx, operator, WEB))

    assert fleet.read(lambda reading: warn_of_overlaps(reading, operator, begun)) == ()
