"""Every brake: what puts it on, what it says, and when it lets go."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from itertools import count

import pytest
from tests.hosts import operations_of, resolved

from forewarn.domain.actions import AskGate, ScheduleStep
from forewarn.domain.aftermath import apply_actions
from forewarn.domain.amending import build_topology
from forewarn.domain.blockers import BrakeKind, Release, VerdictKind
from forewarn.domain.course import Course
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.errors import CapacityError, PlanError
from forewarn.domain.event import (
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    cancel,
    complete,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.maintenance import (
    Maintenance,
    Step,
    draft_events,
    pause,
    plan_errors,
    remaining_steps,
    resume,
)
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.domain.policy import Policy
from forewarn.domain.precedence import due_starts
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.standstill import find_standstill
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.domain.walk import BrakeSummary, Stage, calendar_errors, find_state, walk, walk_all
from forewarn.domain.windows import Calendar, Window
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
SOON, LATER = NOW + timedelta(minutes=30), NOW + timedelta(hours=1)
WEB, DB = ScopeId("availability-set/web"), ScopeId("availability-set/db")
ALL = tuple(VmName(name) for name in ("web-0", "web-1", "web-2", "db-0", "db-1"))
SOAK = timedelta(minutes=30)


def maintenance_of(*, hosts: tuple[str, ...] = (), **course: object) -> Maintenance:
    return Maintenance(
        maintenance_id=MaintenanceId("os"),
        event_type=EventType.FREEZE,
        started_at=NOW,
        duration_in_seconds=300,
        resources=() if hosts else ALL,
        hosts=tuple(map(HostName, hosts)),
        course=Course(**{"hold_all": False, **course}),  # type: ignore[arg-type]
    )


def announced(maintenance: Maintenance, fleet: Topology, *vms: str) -> list[ScheduledEvent]:
    """Announce the steps that touch *vms*, at noon."""
    return [
        schedule(
            draft,
            event_id=EventId(f"{maintenance.maintenance_id}:{draft.share.resources[0]}"),
            now=NOW,
            notice=timedelta(minutes=15),
        )
        for step in remaining_steps(maintenance, fleet, ())
        for draft in draft_events(maintenance, step, operation_id(step))
        if any(vm in share.resources for share in step.shares for vm in vms)
    ]


def operation_id(step: Step) -> OperationId | None:
    return OperationId(f"operation:{step.host}") if step.host else None


def ended(
    events: Iterable[ScheduledEvent], outcome: Outcome = Outcome.SUCCEEDED
) -> list[ScheduledEvent]:
    return [complete(start(event, now=NOW), outcome=outcome, now=NOW) for event in events]


def seen(
    maintenance: Maintenance,
    fleet: Topology,
    events: Iterable[ScheduledEvent] = (),
    answers: Mapping[Question, Answer] | None = None,
) -> Snapshot:
    known = tuple(events)
    return Snapshot(
        topology=fleet,
        maintenances={maintenance.maintenance_id: maintenance},
        events={event.event_id: event for event in known},
        operations=operations_of(known),
        answers=answers or {},
    )


def restart_of(vm: str, scope_id: ScopeId = WEB) -> ScheduledEvent:
    share = Share(scope_id=scope_id, update_domain=1, resources=(VmName(vm),))
    draft = Draft(event_type=EventType.REBOOT, event_source=EventSource.USER, share=share)
    return start_unannounced(draft, event_id=EventId(f"restart:{vm}"), now=NOW)


def brakes_of(stages: Iterable[Stage], vm: str) -> dict[BrakeKind, BrakeSummary]:
    """Return what holds the step that touches *vm*."""
    (stage,) = (stage for stage in stages for share in stage.step.shares if vm in share.resources)
    return {brake.kind: brake for brake in stage.brakes}


def begun(stages: Iterable[Stage]) -> list[str]:
    return [
        vm
        for stage in stages
        if not stage.brakes
        for share in stage.step.shares
        for vm in share.resources
    ]


def test_paused_maintenance_waits_for_somebody(fleet: Topology) -> None:
    maintenance = pause(maintenance_of())

    brakes = brakes_of(walk(maintenance, seen(maintenance, fleet), NOW), "web-0")

    assert brakes == {
        BrakeKind.PAUSED: BrakeSummary(kind=BrakeKind.PAUSED, release=Release.BY_HAND),
    }


def test_aborted_and_finished_maintenances_have_no_steps(fleet: Topology) -> None:
    aborted = replace(maintenance_of(), is_aborted=True)
    finished = replace(maintenance_of(), finished_at=NOW)

    assert walk(aborted, seen(aborted, fleet), NOW) == ()
    assert walk(finished, seen(finished, fleet), NOW) == ()


def test_later_steps_wait_for_the_earlier_ones_of_their_scope(fleet: Topology) -> None:
    maintenance = maintenance_of()

    stages = walk(maintenance, seen(maintenance, fleet), NOW)

    assert begun(stages) == ["web-0", "web-2", "db-0"]
    assert brakes_of(stages, "web-1") == {
        BrakeKind.EARLIER_STEP: BrakeSummary(
            kind=BrakeKind.EARLIER_STEP, release=Release.BY_PROGRESS, scope_ids=(WEB,)
        )
    }


def test_scope_with_an_event_in_flight_says_which(fleet: Topology) -> None:
    maintenance = maintenance_of()
    flying = announced(maintenance, fleet, "web-0")

    stages = walk(maintenance, seen(maintenance, fleet, flying), NOW)

    assert brakes_of(stages, "web-1")[BrakeKind.BUSY] == BrakeSummary(
        kind=BrakeKind.BUSY,
        release=Release.BY_PROGRESS,
        scope_ids=(WEB,),
        event_ids=(EventId("os:web-0"),),
    )


def test_scopes_that_hold_a_host_are_always_said_in_the_same_order() -> None:
    """The order of a set of words differs between processes."""
    machines = [VmName(f"vm-{number}") for number in range(8)]
    fleet = build_topology(
        virtual_machines=[
            VirtualMachine(name=vm, scope_id=standalone(vm).scope_id, host=HostName("kvm-1"))
            for vm in machines
        ],
        scopes=map(standalone, machines),
    )
    maintenance = maintenance_of(hosts=("kvm-1",))
    flying = [
        replace(
            restart_of(vm, standalone(vm).scope_id),
            event_source=EventSource.PLATFORM,
            is_announced=True,
        )
        for vm in machines
    ]

    (stage,) = walk(maintenance, seen(maintenance, fleet, flying), NOW)

    said = [blocker.event_ids for blocker in stage.blockers]
    assert said == [(f"restart:{vm}",) for vm in machines]


def test_failure_holds_its_scope_and_stays_by_hand(fleet: Topology) -> None:
    maintenance = maintenance_of()
    failed = ended(announced(maintenance, fleet, "web-0"), Outcome.FAILED)

    stages = walk(maintenance, seen(maintenance, fleet, failed), NOW)

    (brake,) = brakes_of(stages, "web-1").values()
    assert (brake.kind, brake.release) == (BrakeKind.FAILURE, Release.BY_HAND)
    assert (brake.scope_ids, brake.event_ids) == ((WEB,), (EventId("os:web-0"),))
    assert begun(stages) == ["db-0"]


def test_failure_holds_every_scope_when_told_to(fleet: Topology) -> None:
    maintenance = maintenance_of(hold_all=True)
    withdrawn = [cancel(event, now=NOW) for event in announced(maintenance, fleet, "web-0")]

    stages = walk(maintenance, seen(maintenance, fleet, withdrawn), NOW)

    assert brakes_of(stages, "db-0")[BrakeKind.FAILURE].scope_ids == (WEB,)
    assert all(stage.is_stuck for stage in stages)


def test_host_with_two_update_domains_of_a_scope_waits_for_somebody(fleet: Topology) -> None:
    vms = dict(fleet.virtual_machines)
    vms[VmName("web-1")] = replace(vms[VmName("web-1")], host=HostName("kvm-1"))
    shared = replace(fleet, virtual_machines=vms)
    maintenance = maintenance_of(hosts=("kvm-1", "kvm-3"), in_order=True)

    stages = walk(maintenance, seen(maintenance, shared), NOW)

    assert brakes_of(stages, "web-0")[BrakeKind.SHARED_HOST] == BrakeSummary(
        kind=BrakeKind.SHARED_HOST, release=Release.BY_HAND, detail="kvm-1"
    )
    assert brakes_of(stages, "solo")[BrakeKind.EARLIER_STEP].release is Release.BY_HAND


def test_canary_goes_first_whatever_its_update_domain(fleet: Topology) -> None:
    maintenance = maintenance_of(canary=(DB,))

    stages = walk(maintenance, seen(maintenance, fleet), NOW)

    assert [stage.step.shares[0].resources[0] for stage in stages] == [
        "db-0",
        "db-1",
        "web-0",
        "web-1",
    ]
    assert begun(stages) == ["db-0"]
    assert brakes_of(stages, "web-0") == {
        BrakeKind.CANARY: BrakeSummary(kind=BrakeKind.CANARY, release=Release.BY_PROGRESS)
    }


def test_host_can_be_the_canary(fleet: Topology) -> None:
    maintenance = maintenance_of(hosts=("kvm-1", "kvm-2", "kvm-3"), canary=("kvm-3",))

    stages = walk(maintenance, seen(maintenance, fleet), NOW)

    assert [stage.step.host for stage in stages] == ["kvm-3", "kvm-1", "kvm-2"]
    assert begun(stages) == ["web-2", "solo"]


def test_others_wait_while_the_last_canary_is_in_flight(fleet: Topology) -> None:
    maintenance = maintenance_of(canary=(DB,))
    events = [
        *ended(announced(maintenance, fleet, "db-0")),
        *announced(maintenance, fleet, "db-1"),
    ]

    stages = walk(maintenance, seen(maintenance, fleet, events), NOW)

    assert brakes_of(stages, "web-0")[BrakeKind.CANARY] == BrakeSummary(
        kind=BrakeKind.CANARY, release=Release.BY_PROGRESS, event_ids=(EventId("os:db-1"),)
    )


def test_failed_canary_holds_everybody_until_somebody_skips_it(fleet: Topology) -> None:
    maintenance = maintenance_of(canary=(DB,))
    events = [
        *ended(announced(maintenance, fleet, "db-0")),
        *ended(announced(maintenance, fleet, "db-1"), Outcome.FAILED),
    ]
    snapshot = seen(maintenance, fleet, events)

    stages = walk(maintenance, snapshot, NOW)
    resumed = walk(resolved(maintenance, events), snapshot, NOW)

    canary = brakes_of(stages, "web-0")[BrakeKind.CANARY]
    assert (canary.release, canary.event_ids) == (Release.BY_HAND, (EventId("os:db-1"),))
    assert find_state(maintenance, snapshot, NOW).status is MaintenanceStatus.HELD
    assert begun(resumed) == ["web-0", "web-2"]


def test_canary_that_is_stuck_before_its_end_holds_everybody(fleet: Topology) -> None:
    maintenance = maintenance_of(canary=(DB,))
    failed = ended(announced(maintenance, fleet, "db-0"), Outcome.FAILED)

    stages = walk(maintenance, seen(maintenance, fleet, failed), NOW)

    assert brakes_of(stages, "web-0")[BrakeKind.CANARY].release is Release.BY_HAND


def test_everybody_soaks_after_the_last_canary(fleet: Topology) -> None:
    maintenance = maintenance_of(canary=(DB,), soak=SOAK)
    snapshot = seen(maintenance, fleet, ended(announced(maintenance, fleet, "db-0", "db-1")))

    early, late = walk(maintenance, snapshot, NOW), walk(maintenance, snapshot, SOON)

    assert brakes_of(early, "web-0")[BrakeKind.CANARY] == BrakeSummary(
        kind=BrakeKind.CANARY, release=Release.BY_TIME, until=SOON
    )
    assert begun(late) == ["web-0", "web-2"]


def test_scope_soaks_between_its_steps(fleet: Topology) -> None:
    maintenance = maintenance_of(soak=SOAK)
    snapshot = seen(maintenance, fleet, ended(announced(maintenance, fleet, "web-0", "db-0")))

    early, late = walk(maintenance, snapshot, NOW), walk(maintenance, snapshot, SOON)

    assert brakes_of(early, "web-1") == {
        BrakeKind.SOAK: BrakeSummary(
            kind=BrakeKind.SOAK, release=Release.BY_TIME, until=SOON, scope_ids=(WEB,)
        )
    }
    assert find_state(maintenance, snapshot, NOW).status is MaintenanceStatus.WAITING
    assert next_deadline(snapshot, NOW) == SOON
    assert begun(late) == ["web-1", "db-1"]


def test_speed_divides_the_soak(fleet: Topology) -> None:
    maintenance = maintenance_of(soak=SOAK)
    events = ended(announced(maintenance, fleet, "web-0", "db-0"))
    snapshot = replace(seen(maintenance, fleet, events), speed=60)

    assert next_deadline(snapshot, NOW) == NOW + timedelta(seconds=30)


def test_what_was_withdrawn_is_not_soaked(fleet: Topology) -> None:
    maintenance = maintenance_of(soak=SOAK)
    events = [cancel(event, now=NOW) for event in announced(maintenance, fleet, "web-0")]

    stages = walk(resolved(maintenance, events), seen(maintenance, fleet, events), NOW)

    assert begun(stages) == ["db-0", "web-1"]


def test_no_more_scopes_than_wanted_are_under_way_at_once(fleet: Topology) -> None:
    maintenance = maintenance_of(at_once=1)
    flying = announced(maintenance, fleet, "web-0")
    limit = BrakeSummary(kind=BrakeKind.AT_ONCE, release=Release.BY_PROGRESS)

    stages = walk(maintenance, seen(maintenance, fleet), NOW)
    with_one = walk(maintenance, seen(maintenance, fleet, flying), NOW)

    assert begun(stages) == ["web-0", "web-2"]
    assert brakes_of(stages, "db-0") == {BrakeKind.AT_ONCE: limit}
    assert begun(with_one) == []
    assert brakes_of(with_one, "db-0") == {BrakeKind.AT_ONCE: limit}


def test_hosts_under_way_are_counted_by_host(fleet: Topology) -> None:
    vms = {
        name: replace(vm, scope_id=ScopeId(f"s/{name}"))
        for name, vm in fleet.virtual_machines.items()
    }
    scopes = {vm.scope_id: fleet.scopes[WEB] for vm in vms.values()}
    apart = replace(fleet, virtual_machines=vms, scopes=scopes)
    maintenance = maintenance_of(hosts=("kvm-1", "kvm-2", "kvm-3"), at_once=2)

    stages = walk(maintenance, seen(maintenance, apart), NOW)

    assert [stage.step.host for stage in stages if not stage.brakes] == ["kvm-1", "kvm-3"]


def test_capacity_counts_what_users_restart(fleet: Topology) -> None:
    maintenance = maintenance_of(min_available=33)

    free = walk(maintenance, seen(maintenance, fleet), NOW)
    stages = walk(maintenance, seen(maintenance, fleet, [restart_of("web-1")]), NOW)

    assert begun(free) == ["web-0", "web-2", "db-0"]
    assert brakes_of(stages, "web-0")[BrakeKind.CAPACITY] == BrakeSummary(
        kind=BrakeKind.CAPACITY,
        release=Release.BY_PROGRESS,
        scope_ids=(WEB,),
        event_ids=(EventId("restart:web-1"),),
        detail="0 of 3 would stay available, but the minimum is 1",
    )


def test_step_that_undercuts_the_capacity_by_itself_waits_for_somebody(fleet: Topology) -> None:
    maintenance = maintenance_of(min_available=50)

    stages = walk(maintenance, seen(maintenance, fleet), NOW)

    assert brakes_of(stages, "web-0")[BrakeKind.CAPACITY].release is Release.BY_HAND
    (error,) = errors_of(maintenance, fleet)
    assert isinstance(error, CapacityError)
    assert (
        "Update domain 0 of availability-set/web takes too many virtual machines at once: 1 of 3"
        in str(error)
    )


def errors_of(maintenance: Maintenance, fleet: Topology) -> list[PlanError]:
    return [*plan_errors(maintenance, fleet, remaining_steps(maintenance, fleet, ()))]


def test_plan_that_leaves_enough_is_made(fleet: Topology) -> None:
    assert errors_of(maintenance_of(min_available=33), fleet) == []


def test_standalone_machine_has_no_capacity_to_keep(fleet: Topology) -> None:
    maintenance = replace(maintenance_of(min_available=99), resources=(VmName("solo"),))

    assert errors_of(maintenance, fleet) == []
    assert begun(walk(maintenance, seen(maintenance, fleet), NOW)) == ["solo"]


NIGHTS = Calendar(
    windows=(Window(days=frozenset({0}), opens=time(22), closes=time(23), zone="UTC"),)
)
TONIGHT = NOW.replace(hour=22)


def test_step_waits_for_the_window(fleet: Topology) -> None:
    maintenance = maintenance_of(calendar=NIGHTS)
    snapshot = seen(maintenance, fleet)

    stages = walk(maintenance, snapshot, NOW)

    assert brakes_of(stages, "web-0") == {
        BrakeKind.CALENDAR: BrakeSummary(
            kind=BrakeKind.CALENDAR, release=Release.BY_TIME, until=TONIGHT
        )
    }
    assert next_deadline(snapshot, NOW) == TONIGHT
    assert find_state(maintenance, snapshot, NOW).status is MaintenanceStatus.WAITING
    assert begun(walk(maintenance, snapshot, TONIGHT)) == ["web-0", "web-2", "db-0"]


def test_step_that_would_not_end_inside_the_window_waits_for_the_next(fleet: Topology) -> None:
    maintenance = maintenance_of(calendar=NIGHTS)
    snapshot = seen(maintenance, fleet)
    last_call = TONIGHT + timedelta(minutes=40)

    assert begun(walk(maintenance, snapshot, last_call))
    late = walk(maintenance, snapshot, last_call + timedelta(minutes=1))
    assert brakes_of(late, "web-0")[BrakeKind.CALENDAR].until == TONIGHT + timedelta(days=7)


@pytest.mark.parametrize("late", [timedelta(milliseconds=3), timedelta(seconds=58)])
@pytest.mark.parametrize(("minutes", "outside"), [(20, False), (5, True)])
def test_whoever_wakes_up_a_moment_late_finds_room_in_a_window_that_just_fits(
    fleet: Topology, minutes: int, late: timedelta, *, outside: bool
) -> None:
    exact = replace(NIGHTS, windows=(replace(NIGHTS.windows[0], closes=time(22, minutes)),))
    maintenance = maintenance_of(calendar=exact, notice_outside=outside)
    now = TONIGHT - (timedelta(minutes=15) if outside else timedelta(0)) + late

    snapshot = apply_actions(
        seen(maintenance, fleet),
        decide(seen(maintenance, fleet), now).actions,
        now=now,
        event_ids=(EventId(f"E{n}") for n in count()),
    )

    assert snapshot.events
    due = max(event.not_before for event in snapshot.events.values())
    assert due_starts(snapshot, due + timedelta(milliseconds=3)).keys() == snapshot.events.keys()


def test_step_whose_event_falls_due_when_the_window_closes_never_begins(fleet: Topology) -> None:
    exact = replace(NIGHTS, windows=(replace(NIGHTS.windows[0], closes=time(22, 15)),))
    maintenance = replace(maintenance_of(calendar=exact), duration_in_seconds=0)

    stages = walk(maintenance, seen(maintenance, fleet), TONIGHT)

    assert brakes_of(stages, "web-0")[BrakeKind.CALENDAR].release is Release.BY_HAND


def test_step_that_would_start_too_late_by_a_rounded_second_waits(fleet: Topology) -> None:
    exact = replace(NIGHTS, windows=(replace(NIGHTS.windows[0], closes=time(22, 20)),))
    maintenance = maintenance_of(calendar=exact)
    late = TONIGHT + timedelta(seconds=59, milliseconds=3)

    stages = walk(maintenance, seen(maintenance, fleet), late)

    assert brakes_of(stages, "web-0")[BrakeKind.CALENDAR].until == TONIGHT + timedelta(days=7)


def test_longer_notice_of_a_scope_has_to_fit_in_too(fleet: Topology) -> None:
    web = replace(fleet.scopes[WEB], policy=Policy(notice=timedelta(hours=1)))
    patient = replace(fleet, scopes={**fleet.scopes, WEB: web})
    maintenance = maintenance_of(calendar=NIGHTS)
    snapshot = seen(maintenance, patient)

    stages = walk(maintenance, snapshot, TONIGHT)

    assert brakes_of(stages, "web-0") == {
        BrakeKind.CALENDAR: BrakeSummary(kind=BrakeKind.CALENDAR, release=Release.BY_HAND)
    }
    steps = remaining_steps(maintenance, patient, ())
    (error,) = calendar_errors(maintenance, steps, snapshot, NOW)
    assert "availability-set/web needs 65 min (60 min notice and 5 min impact)" in str(error)


def test_calendar_that_has_room_is_accepted(fleet: Topology) -> None:
    for calendar in (NIGHTS, Calendar()):
        maintenance = maintenance_of(calendar=calendar)
        snapshot = seen(maintenance, fleet)
        steps = remaining_steps(maintenance, fleet, ())
        assert not [*calendar_errors(maintenance, steps, snapshot, NOW)]


def test_notice_may_begin_before_the_window(fleet: Topology) -> None:
    maintenance = maintenance_of(calendar=NIGHTS, notice_outside=True)
    snapshot = seen(maintenance, fleet)
    before = TONIGHT - timedelta(minutes=15)

    stages = walk(maintenance, snapshot, NOW)

    assert brakes_of(stages, "web-0")[BrakeKind.CALENDAR].until == before
    assert next_deadline(snapshot, NOW) == before
    assert begun(walk(maintenance, snapshot, before)) == ["web-0", "web-2", "db-0"]


def test_step_that_would_start_too_late_for_the_window_waits_for_the_next(fleet: Topology) -> None:
    maintenance = maintenance_of(calendar=NIGHTS, notice_outside=True)
    snapshot = seen(maintenance, fleet)
    last_call = TONIGHT + timedelta(minutes=40)
    next_week = TONIGHT + timedelta(days=7, minutes=-15)

    assert begun(walk(maintenance, snapshot, last_call))
    late = walk(maintenance, snapshot, last_call + timedelta(minutes=1))
    assert brakes_of(late, "web-0")[BrakeKind.CALENDAR].until == next_week


def test_all_of_a_step_starts_when_the_longest_notice_is_over(fleet: Topology) -> None:
    web = replace(fleet.scopes[WEB], policy=Policy(notice=timedelta(hours=2)))
    patient = replace(fleet, scopes={**fleet.scopes, WEB: web})
    maintenance = maintenance_of(hosts=("kvm-1",), calendar=NIGHTS, notice_outside=True)
    snapshot = seen(maintenance, patient)
    early = TONIGHT - timedelta(hours=2)

    actions = decide(snapshot, early).actions
    recorded = apply_actions(
        snapshot, actions, now=early, event_ids=(EventId(f"E{n}") for n in count())
    )

    assert not decide(snapshot, early - timedelta(seconds=1)).actions
    assert [event.not_before for event in recorded.events.values()] == [TONIGHT, TONIGHT]


def test_with_notice_outside_only_the_impact_has_to_fit_in(fleet: Topology) -> None:
    short = replace(NIGHTS, windows=(replace(NIGHTS.windows[0], closes=time(22, 5)),))
    maintenance = maintenance_of(calendar=short, notice_outside=True)
    longer = replace(maintenance, duration_in_seconds=301)
    steps = remaining_steps(maintenance, fleet, ())
    snapshot = seen(maintenance, fleet)

    assert not [*calendar_errors(maintenance, steps, snapshot, NOW)]
    (error,) = calendar_errors(longer, steps, snapshot, NOW)
    assert "needs 301 s for its impact, but the windows are open for at most" in str(error)
    (brake,) = walk(longer, seen(longer, fleet), NOW)[0].brakes
    assert brake == BrakeSummary(kind=BrakeKind.CALENDAR, release=Release.BY_HAND)


def ask(maintenance: Maintenance, gate: str, scope_id: ScopeId, steps_done: int) -> Question:
    return Question(
        gate=gate,
        maintenance_id=maintenance.maintenance_id,
        scope_ids=(scope_id,),
        steps_done=steps_done,
    )


def said(status: GateStatus, **more: object) -> Answer:
    return Answer(status=status, asked_since=NOW, **more)  # type: ignore[arg-type]


def test_first_steps_ask_no_gate(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",))

    stages = walk(maintenance, seen(maintenance, fleet), NOW)

    assert begun(stages) == ["web-0", "web-2", "db-0"]
    assert not any(stage.questions for stage in stages)


def test_gate_is_asked_before_the_next_step_and_holds_it(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",))
    events = [
        *ended(announced(maintenance, fleet, "web-0")),
        *announced(maintenance, fleet, "db-0"),
    ]
    snapshot = seen(maintenance, fleet, events)
    question = ask(maintenance, "smoke", WEB, 1)

    stages = walk(maintenance, snapshot, NOW)
    decisions = decide(snapshot, NOW)

    assert brakes_of(stages, "web-1") == {
        BrakeKind.GATE: BrakeSummary(kind=BrakeKind.GATE, release=Release.BY_PROGRESS, gate="smoke")
    }
    assert decisions.effects == (AskGate(question=question),)
    assert decisions.questions == {question}


def test_open_gate_lets_the_step_begin(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",))
    events = ended(announced(maintenance, fleet, "web-0"))
    answers = {ask(maintenance, "smoke", WEB, 1): said(GateStatus.OPEN)}

    decisions = decide(seen(maintenance, fleet, events, answers), NOW)

    (action,) = decisions.actions
    assert isinstance(action, ScheduleStep)
    assert action.step.scope_ids == {WEB}
    assert decisions.effects == (AskGate(question=ask(maintenance, "smoke", DB, 0)),)


def test_shut_gate_is_asked_again_when_it_says(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",))
    events = [
        *ended(announced(maintenance, fleet, "web-0")),
        *announced(maintenance, fleet, "db-0"),
    ]
    again = NOW + timedelta(minutes=1)
    question = ask(maintenance, "smoke", WEB, 1)
    shut = said(GateStatus.SHUT, output="2 of 3 down", ask_again_at=again)
    snapshot = seen(maintenance, fleet, events, {question: shut})

    stages = walk(maintenance, snapshot, NOW)

    assert brakes_of(stages, "web-1")[BrakeKind.GATE] == BrakeSummary(
        kind=BrakeKind.GATE,
        release=Release.BY_PROGRESS,
        until=again,
        gate="smoke",
        detail="2 of 3 down",
    )
    assert decide(snapshot, NOW).effects == ()
    assert next_deadline(snapshot, NOW) == again
    assert decide(snapshot, again).effects == (AskGate(question=question),)


def test_gates_are_asked_one_after_the_other(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke", "ticket"))
    events = [
        *ended(announced(maintenance, fleet, "web-0")),
        *announced(maintenance, fleet, "db-0"),
    ]
    smoke, ticket = (ask(maintenance, gate, WEB, 1) for gate in ("smoke", "ticket"))
    snapshot = seen(maintenance, fleet, events, {smoke: said(GateStatus.OPEN)})

    decisions = decide(snapshot, NOW)

    assert decisions.effects == (AskGate(question=ticket),)
    assert decisions.questions == {smoke, ticket}


def test_gate_that_stays_shut_holds_the_step_until_somebody_resumes(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",), gate_patience=timedelta(hours=1))
    events = ended(announced(maintenance, fleet, "web-0", "web-1", "db-0"))
    shut = said(GateStatus.SHUT, output="no", ask_again_at=NOW)
    snapshot = seen(maintenance, fleet, events, {ask(maintenance, "smoke", DB, 1): shut})
    resumed = resume(maintenance, now=LATER)

    stages = walk(maintenance, snapshot, LATER)

    assert brakes_of(stages, "db-1")[BrakeKind.GATE] == BrakeSummary(
        kind=BrakeKind.GATE, release=Release.BY_HAND, gate="smoke", detail="no"
    )
    assert find_state(maintenance, snapshot, LATER).status is MaintenanceStatus.HELD
    assert decide(snapshot, LATER).effects == ()
    assert brakes_of(walk(resumed, snapshot, LATER), "db-1")[BrakeKind.GATE].release is (
        Release.BY_PROGRESS
    )


def test_gate_that_is_still_thinking_does_not_wear_out_patience(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",))
    events = ended(announced(maintenance, fleet, "web-0", "web-1", "db-0"))
    answers = {ask(maintenance, "smoke", DB, 1): said(GateStatus.ASKING)}

    stages = walk(maintenance, seen(maintenance, fleet, events, answers), LATER)

    assert brakes_of(stages, "db-1")[BrakeKind.GATE].release is Release.BY_PROGRESS


def test_no_gate_is_asked_while_anything_else_holds_the_step(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",), soak=SOAK)
    snapshot = seen(maintenance, fleet, ended(announced(maintenance, fleet, "web-0", "db-0")))

    assert decide(snapshot, NOW).questions == frozenset()
    assert len(decide(snapshot, SOON).questions) == 2


def test_step_that_asks_its_gate_has_a_place(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",), at_once=1)
    snapshot = seen(maintenance, fleet, ended(announced(maintenance, fleet, "web-0")))

    stages = walk(maintenance, snapshot, NOW)

    assert BrakeKind.GATE in brakes_of(stages, "db-0")
    assert BrakeKind.AT_ONCE in brakes_of(stages, "web-1")


def test_step_that_has_lost_patience_gives_its_place_away(fleet: Topology) -> None:
    maintenance = maintenance_of(gates=("smoke",), at_once=1)
    events = ended(announced(maintenance, fleet, "web-0"))
    answers = {ask(maintenance, "smoke", DB, 0): said(GateStatus.SHUT)}

    stages = walk(maintenance, seen(maintenance, fleet, events, answers), LATER)

    assert BrakeKind.GATE in brakes_of(stages, "web-1")


def test_of_two_maintenances_that_want_a_scope_the_older_gets_it(fleet: Topology) -> None:
    older, younger = maintenance_of(), maintenance_of()
    younger = replace(younger, maintenance_id=MaintenanceId("firmware"))
    snapshot = Snapshot(
        topology=fleet,
        maintenances={each.maintenance_id: each for each in (older, younger)},
    )

    walks = walk_all(snapshot, NOW)

    assert begun(walks[older.maintenance_id]) == ["web-0", "web-2", "db-0"]
    assert brakes_of(walks[younger.maintenance_id], "web-0")[BrakeKind.BUSY] == BrakeSummary(
        kind=BrakeKind.BUSY, release=Release.BY_PROGRESS, scope_ids=(WEB,)
    )


def test_maintenance_that_waits_for_others_is_not_held(fleet: Topology) -> None:
    maintenance = maintenance_of()
    other = replace(maintenance, maintenance_id=MaintenanceId("firmware"))
    flying = announced(other, fleet, "web-0", "db-0")

    state = find_state(maintenance, seen(maintenance, fleet, flying), NOW)
    assert state.status is MaintenanceStatus.WAITING


def test_maintenance_is_not_held_while_another_is_about_to_begin_where_it_waits(
    fleet: Topology,
) -> None:
    """Its canary takes too many for ever, but that is not all it waits for yet."""
    other = replace(maintenance_of(), maintenance_id=MaintenanceId("first"), resources=(ALL[0],))
    waiting = maintenance_of(canary=(DB,), min_available=60, at_once=1)
    snapshot = Snapshot(
        topology=fleet,
        maintenances={each.maintenance_id: each for each in (other, waiting)},
    )

    found = find_standstill(waiting, snapshot, NOW)

    is_held = find_state(waiting, snapshot, NOW).status is MaintenanceStatus.HELD
    assert is_held == (found.verdict.kind is VerdictKind.NEVER)
