from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from forewarn.domain.course import Course
from forewarn.domain.errors import PlanError, UnknownHostError
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.standing import MaintenanceStatus
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.gates import GateNotFoundError
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import (
    UnknownLabelsError,
    UnknownMaintenanceError,
    abort_maintenance,
    pause_maintenance,
    report_maintenance,
    report_maintenances,
    resume_maintenance,
    start_maintenance,
)
from forewarn.operations.scopes import UnknownSelectionError
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventType

FREEZE = EventType.FREEZE


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        (MaintenanceOrder(event_type=FREEZE, scopes=("WEB",)), 2),
        (MaintenanceOrder(event_type=FREEZE, scopes=("availability-set/web", "batch")), 3),
        (MaintenanceOrder(event_type=FREEZE, virtual_machines=("solo",)), 1),
        (MaintenanceOrder(event_type=FREEZE, hosts=("KVM-1", "kvm-0")), 2),
    ],
)
def test_maintenance_selects_by_scope_machine_or_host(
    fleet: Store, operator: Context, order: MaintenanceOrder, steps: int
) -> None:
    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))

    report = fleet.read(
        lambda reading: report_maintenance(reading, operator, started.maintenance_id)
    )

    assert report.status is MaintenanceStatus.RUNNING
    assert len(report.stages) == steps
    assert fleet.read(lambda reading: report_maintenances(reading, operator)) == (report,)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (MaintenanceOrder(event_type=FREEZE), PlanError),
        (MaintenanceOrder(event_type=FREEZE, scopes=("web",), hosts=("kvm-0",)), PlanError),
        (MaintenanceOrder(event_type=FREEZE, scopes=("nothing",)), UnknownSelectionError),
        (MaintenanceOrder(event_type=FREEZE, hosts=("kvm-9",)), UnknownHostError),
        (
            MaintenanceOrder(event_type=FREEZE, scopes=("web",), course=Course(canary=("batch",))),
            PlanError,
        ),
    ],
)
def test_maintenance_that_cannot_be_walked_is_refused(
    fleet: Store, operator: Context, order: MaintenanceOrder, error: type[Exception]
) -> None:
    with pytest.raises(error):
        fleet.write(lambda tx: start_maintenance(tx, operator, order))

    assert fleet.read(lambda reading: report_maintenances(reading, operator)) == ()


def test_maintenances_are_reported_page_by_page(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",))
    ids = [
        fleet.write(lambda tx: start_maintenance(tx, operator, order)).maintenance_id
        for _ in range(3)
    ]

    def page(older_than: str | None) -> list[str]:
        found = fleet.read(
            lambda at: report_maintenances(at, operator, older_than=older_than, limit=2)
        )
        return [report.maintenance.maintenance_id for report in found]

    assert [page(None), page(ids[1]), page(ids[0])] == [ids[1:], ids[:1], []]
    with pytest.raises(UnknownMaintenanceError, match="'none'"):
        page("none")


def test_unknown_maintenance_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownMaintenanceError, match="'none'"):
        fleet.read(lambda reading: report_maintenance(reading, operator, "none"))


def test_maintenance_selects_by_labels_what_carries_all_of_them(
    fleet: Store, operator: Context
) -> None:
    labels = """
[[host]]
name = "kvm-0"
labels = { row = "a", kernel = "6.1" }

[[virtual_machine]]
name = "solo"
labels = { tier = "front", owner = "ops" }
"""
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(labels)))
    by_label = MaintenanceOrder(event_type=FREEZE, labels={"tier": "front", "owner": "ops"})
    by_host = MaintenanceOrder(event_type=FREEZE, host_labels={"row": "a"})

    started = fleet.write(lambda tx: start_maintenance(tx, operator, by_label))
    on_hosts = fleet.write(lambda tx: start_maintenance(tx, operator, by_host))

    assert started.resources == ("solo",)
    assert on_hosts.hosts == ("kvm-0",)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (
            MaintenanceOrder(event_type=FREEZE, scopes=("web",), labels={"tier": "x", "a": "b"}),
            "No virtual machine has the labels tier=x, a=b.",
        ),
        (
            MaintenanceOrder(event_type=FREEZE, host_labels={"row": "z"}),
            "No host has the labels row=z.",
        ),
    ],
)
def test_labels_that_nothing_carries_are_refused_by_name(
    fleet: Store, operator: Context, order: MaintenanceOrder, sentence: str
) -> None:
    with pytest.raises(UnknownLabelsError, match=sentence):
        fleet.write(lambda tx: start_maintenance(tx, operator, order))


def test_maintenance_keeps_its_course_and_when_it_began(fleet: Store, operator: Context) -> None:
    course = Course(at_once=2, soak=timedelta(minutes=30), hold_all=True)
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",), course=course)

    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))

    kept = fleet.read(lambda reading: reading.maintenance(started.maintenance_id))
    assert kept == started
    assert kept is not None
    assert (kept.course, kept.started_at) == (course, operator.now)


def test_steering_is_recorded_with_who_did_it(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",))
    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))
    name = started.maintenance_id

    def steered(steer: Callable[[Transaction, Context, str], None]) -> MaintenanceStatus:
        fleet.write(lambda tx: steer(tx, operator, name))
        report = fleet.read(lambda reading: report_maintenance(reading, operator, name))
        return report.status

    seen = list(map(steered, (pause_maintenance, resume_maintenance, abort_maintenance)))

    assert seen == [
        MaintenanceStatus.PAUSED,
        MaintenanceStatus.RUNNING,
        MaintenanceStatus.ABORTING,
    ]
    entries = fleet.read(lambda reading: reading.audit())
    assert [entry.action for entry in entries if entry.subject == name] == [
        "maintenance start",
        "maintenance pause",
        "maintenance resume",
        "maintenance abort",
    ]


def test_canary_may_be_named_by_scope_or_host(fleet: Store, operator: Context) -> None:
    by_scope = MaintenanceOrder(
        event_type=FREEZE, scopes=("web", "batch"), course=Course(canary=("BATCH", "batch"))
    )
    by_host = MaintenanceOrder(
        event_type=FREEZE, hosts=("kvm-0", "kvm-1"), course=Course(canary=("KVM-1",))
    )

    first = fleet.write(lambda tx: start_maintenance(tx, operator, by_scope))
    second = fleet.write(lambda tx: start_maintenance(tx, operator, by_host))

    assert first.course.canary == ("scale-set/batch/pg1",)
    assert second.course.canary == ("kvm-1",)


def test_gates_are_those_of_the_server_in_any_case(fleet: Store, operator: Context) -> None:
    course = Course(gates=("SMOKE", "smoke", "ticket"))
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",), course=course)
    known = ("smoke", "ticket")

    started = fleet.write(lambda tx: start_maintenance(tx, operator, order, gates=known))

    assert started.course.gates == known
    with pytest.raises(GateNotFoundError, match="'SMOKE'"):
        fleet.write(lambda tx: start_maintenance(tx, operator, order))


def test_finished_maintenance_is_reported_with_its_events(fleet: Store, operator: Context) -> None:
    order = MaintenanceOrder(event_type=FREEZE, scopes=("web",))
    started = fleet.write(lambda tx: start_maintenance(tx, operator, order))
    outcome = MaintenanceOutcome.SUCCEEDED
    over = replace(started, finished_at=operator.now, outcome=outcome)
    fleet.write(lambda tx: tx.put_maintenance(over))

    report = fleet.read(
        lambda reading: report_maintenance(reading, operator, started.maintenance_id)
    )

    assert (report.status, report.stages, report.events) == (MaintenanceStatus.COMPLETED, (), ())


def test_events_of_a_scope_are_announced_with_its_own_notice(
    fleet: Store, operator: Context
) -> None:
    fleet.write(
        lambda tx: apply_fleet(
            tx, operator, read_fleet_file('[[virtual_machine]]\nname = "solo"\nnotice = "2h"\n')
        )
    )
    order = EventOrder(event_type=FREEZE, resources=("solo",))
    sooner = replace(order, not_before=timedelta(minutes=20))

    (usual,) = fleet.write(lambda tx: create_events(tx, operator, order))
    (said,) = fleet.write(lambda tx: create_events(tx, operator, sooner))

    assert usual.not_before == operator.now + timedelta(hours=2)
    assert said.not_before == operator.now + timedelta(minutes=20)
