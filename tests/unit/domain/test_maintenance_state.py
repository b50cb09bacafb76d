"""The state of a Maintenance: which status wins, and what is said of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.domain.test_walk import NOW, announced, ended, maintenance_of, seen

from forewarn.domain.event import start
from forewarn.domain.host_operation import HostOperation, HostPhase, OperationOutcome
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome, abort, pause
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.news import Told, find_news
from forewarn.domain.notification import Phase
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceState, MaintenanceStatus
from forewarn.domain.topology import Topology
from forewarn.domain.walk import find_state

AGAIN = NOW + timedelta(minutes=1)
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
AWAY = OwnerAway(
    name="kvm-a",
    since=MIDNIGHT.replace(hour=3, minute=12, second=7),
    pages_at=MIDNIGHT.replace(hour=3, minute=17, second=7),
)
LONGER_AWAY = replace(AWAY, name="kvm-b", pages_at=AWAY.pages_at + timedelta(minutes=1))
RUNNING = Impact(status=ImpactStatus.RUNNING)
BY_HAND = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)
LOST = Impact(status=ImpactStatus.UNKNOWN)
ASKED_AGAIN = Impact(status=ImpactStatus.UNKNOWN, ask_again_at=AGAIN)
NO_EXECUTOR = Impact(status=ImpactStatus.UNKNOWN, ask_again_at=AGAIN, has_no_executor=True)
GONE = Impact(status=ImpactStatus.UNKNOWN, ask_again_at=AGAIN, away=AWAY)
LONGER_GONE = replace(GONE, away=LONGER_AWAY)
AWAY_TEXT = "waiting for replica kvm-a (away since 03:12:07, pages at 03:17:07 GMT)"
STUCK_TEXT = "stuck: the state of the impact on web-0 is unknown"


def in_flight(
    maintenance: Maintenance, fleet: Topology, *said: Impact | None, vms: tuple[str, ...]
) -> Snapshot:
    """Return that the events of *vms* have started, and what is *said* of each impact."""
    events = [start(each, now=NOW) for each in announced(maintenance, fleet, *vms)]
    vm_of = {vm: each.event_id for each in events for vm in each.resources}
    impacts = {
        (vm_of[VmName(vm)], VmName(vm)): each
        for vm, each in zip(vms, said, strict=True)
        if each is not None
    }
    return replace(seen(maintenance, fleet, events), impacts=impacts)


@pytest.mark.parametrize(
    ("web_0", "db_0", "undisturbed", "is_paused", "is_aborted"),
    [
        (None, None, "running", "paused", "aborting"),
        (RUNNING, BY_HAND, "running", "paused", "aborting"),
        (ASKED_AGAIN, NO_EXECUTOR, "running", "paused", "aborting"),
        (GONE, RUNNING, AWAY_TEXT, "paused", "aborting"),
        (LONGER_GONE, GONE, AWAY_TEXT, "paused", "aborting"),
        (LOST, RUNNING, STUCK_TEXT, STUCK_TEXT, STUCK_TEXT),
        (LOST, GONE, STUCK_TEXT, STUCK_TEXT, STUCK_TEXT),
    ],
)
def test_one_task_that_is_lost_is_enough_and_an_absence_only_where_it_runs(
    fleet: Topology,
    web_0: Impact | None,
    db_0: Impact | None,
    undisturbed: str,
    is_paused: str,
    is_aborted: str,
) -> None:
    maintenance = maintenance_of()
    snapshot = in_flight(maintenance, fleet, web_0, db_0, vms=("web-0", "db-0"))

    def state(is_: Maintenance) -> str:
        return find_state(is_, snapshot, NOW).text

    assert state(maintenance) == undisturbed
    assert state(pause(maintenance)) == is_paused
    assert state(abort(maintenance)) == is_aborted


def test_stuck_says_how_many_tasks_are(fleet: Topology) -> None:
    maintenance = maintenance_of()
    vms = ("web-0", "db-0", "db-1")

    def text(*said: Impact) -> str:
        return find_state(
            maintenance, in_flight(maintenance, fleet, *said, vms=vms), NOW
        ).text.removeprefix("stuck: ")

    assert text(LOST, LOST, RUNNING) == (
        "the state of the impact on db-0 and of 1 more task is unknown"
    )
    assert text(LOST, LOST, LOST) == (
        "the state of the impact on db-0 and of 2 more tasks is unknown"
    )


def test_what_is_lost_matters_also_when_its_event_is_over_but_not_of_others(
    fleet: Topology,
) -> None:
    maintenance = maintenance_of()
    other = replace(maintenance, maintenance_id=MaintenanceId("firmware"))
    of_other = in_flight(other, fleet, LOST, vms=("web-0",))
    events = ended(announced(maintenance, fleet, "web-0"))
    over = replace(
        seen(maintenance, fleet, events), impacts={(events[0].event_id, VmName("web-0")): LOST}
    )

    assert find_state(maintenance, of_other, NOW).status is MaintenanceStatus.RUNNING
    assert find_state(maintenance, over, NOW).text == STUCK_TEXT


@pytest.mark.parametrize("outcome", MaintenanceOutcome)
def test_maintenance_that_is_over_is_not_stuck(
    fleet: Topology, outcome: MaintenanceOutcome
) -> None:
    maintenance = maintenance_of()
    snapshot = in_flight(maintenance, fleet, LOST, vms=("web-0",))
    over = replace(maintenance, finished_at=NOW, outcome=outcome)

    assert find_state(over, snapshot, NOW).status is not MaintenanceStatus.STUCK


@pytest.mark.parametrize(
    ("kind", "said", "text"),
    [
        (HostTaskKind.WORK, LOST, "stuck: the state of the work on kvm-1 is unknown"),
        (HostTaskKind.RETURN, LOST, "stuck: the state of the return on kvm-1 is unknown"),
        (HostTaskKind.VERIFY, LOST, "running"),
        (HostTaskKind.WORK, GONE, AWAY_TEXT),
        (HostTaskKind.VERIFY, GONE, "running"),
        (HostTaskKind.WORK, RUNNING, "running"),
    ],
)
def test_work_on_a_host_counts_but_checks_are_repeated(
    fleet: Topology, kind: HostTaskKind, said: Impact, text: str
) -> None:
    maintenance, operation, task = host_task(kind)

    def state(now_at: HostOperation) -> str:
        snapshot = Snapshot(
            topology=fleet,
            maintenances={maintenance.maintenance_id: maintenance},
            operations={operation.operation_id: now_at},
            tasks={task: said},
        )
        return find_state(maintenance, snapshot, NOW).text

    given_up = replace(
        operation, phase=HostPhase.OVER, outcome=OperationOutcome.FAILED, ended_at=NOW
    )
    assert state(operation) == text
    # Until an operator settles it, it may still be running.
    is_stuck = text.startswith("stuck")
    assert state(given_up) == text if is_stuck else state(given_up) in {"held", "running", text}


def test_unknown_impact_of_a_host_whose_turn_is_over_is_stuck_until_it_is_settled(
    fleet: Topology,
) -> None:
    maintenance = maintenance_of(hosts=("kvm-1",))
    snapshot = in_flight(maintenance, fleet, LOST, vms=("web-0",))
    (key, operation), *_ = snapshot.operations.items()
    over = replace(operation, phase=HostPhase.OVER, outcome=OperationOutcome.FAILED, ended_at=NOW)

    assert find_state(maintenance, snapshot, NOW).text == STUCK_TEXT
    ending = replace(snapshot, operations={key: over})
    assert find_state(maintenance, ending, NOW).text == STUCK_TEXT


def host_task(kind: HostTaskKind) -> tuple[Maintenance, HostOperation, HostTask]:
    maintenance = maintenance_of(hosts=("kvm-1",))
    operation = HostOperation(
        operation_id=OperationId("op-1"),
        maintenance_id=maintenance.maintenance_id,
        event_type=maintenance.event_type,
        host=HostName("kvm-1"),
        created_at=NOW,
        phase=HostPhase.WORK,
    )
    task = HostTask(
        operation_id=operation.operation_id,
        maintenance_id=maintenance.maintenance_id,
        event_type=maintenance.event_type,
        host=operation.host,
        kind=kind,
        vm=VmName("web-0") if kind is HostTaskKind.RETURN else None,
    )
    return maintenance, operation, task


def test_detail_that_is_not_known_is_left_out() -> None:
    state = MaintenanceState(status=MaintenanceStatus.STUCK)

    assert state.text == "stuck"


def phases(maintenance: Maintenance, *snapshots: Snapshot) -> list[str]:
    told, phases = Told(maintenance_id=maintenance.maintenance_id), []
    for snapshot in snapshots:
        told, news = find_news(maintenance, told, snapshot, NOW)
        phases += [" ".join(filter(None, (each.phase, each.detail))) for each in news]
    return phases


@pytest.mark.parametrize(
    ("change", "others"),
    [(lambda same: same, []), (pause, [Phase.PAUSED]), (abort, [])],
)
def test_stuck_is_told_once_and_again_after_it_continued(
    fleet: Topology, change: Callable[[Maintenance], Maintenance], others: list[Phase]
) -> None:
    maintenance = change(maintenance_of())
    well, lost, gone = (
        in_flight(maintenance, fleet, said, vms=("web-0",)) for said in (RUNNING, LOST, GONE)
    )
    stuck = "stuck the state of the impact on web-0 is unknown"
    continues = others or [Phase.RESUMED]

    assert phases(maintenance, well, gone) == others
    told = phases(maintenance, well, gone, lost, lost, gone, well, lost)
    assert told == [*others, stuck, *continues, stuck]
