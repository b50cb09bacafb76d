from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.hosts import operations_of

from forewarn.domain.actions import (
    CancelEvent,
    ChangeTask,
    CompleteEvent,
    Decisions,
    FinishMaintenance,
    ReserveTask,
    ScheduleStep,
    StartEvent,
    StartReason,
)
from forewarn.domain.aftermath import apply_actions, without_ended
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import (
    Approval,
    Approver,
    Outcome,
    ScheduledEvent,
    approve,
    cancel,
    complete,
    request_start,
    start,
)
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceOutcome,
    abort,
    pause,
    remaining_steps,
)
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import BY_HAND, FETCHED, MANUAL, SIMULATED, Ownership, Task, TaskState
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

BEGINNING = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
BY_SCOPE = Maintenance(
    maintenance_id=MaintenanceId("m1"),
    event_type=EventType.REBOOT,
    started_at=BEGINNING,
    resources=(VmName("web-0"), VmName("web-1"), VmName("web-2")),
)
BY_HOST = Maintenance(
    maintenance_id=MaintenanceId("m2"),
    event_type=EventType.FREEZE,
    started_at=BEGINNING,
    hosts=(HostName("kvm-1"), HostName("kvm-2")),
)
NOTHING = Decisions(actions=(), effects=())


def look(
    fleet: Topology,
    events: Iterable[ScheduledEvent] = (),
    maintenances: Iterable[Maintenance] = (),
    impacts: Mapping[str, ImpactStatus] | None = None,
) -> Snapshot:
    """Take a snapshot; *impacts* are by virtual machine, for each of the events."""
    found = {event.event_id: event for event in events}
    return Snapshot(
        topology=fleet,
        events=found,
        operations=operations_of(found.values()),
        maintenances={maintenance.maintenance_id: maintenance for maintenance in maintenances},
        impacts={
            (event_id, VmName(vm)): Impact(status=status)
            for event_id in found
            for vm, status in (impacts or {}).items()
        },
    )


def begun(*events: ScheduledEvent) -> tuple[ReserveTask, ...]:
    """Return what is reserved so that the impact of *events* begins."""
    return tuple(
        ReserveTask(about=(event.event_id, vm)) for event in events for vm in event.resources
    )


def announce(snapshot: Snapshot, now: datetime) -> list[ScheduledEvent]:
    """Record the steps that are due and return all the events there are then."""
    event_ids = (EventId(f"N{number}") for number in range(100))
    recorded = apply_actions(snapshot, decide(snapshot, now).actions, now=now, event_ids=event_ids)
    return list(recorded.events.values())


def with_policy(fleet: Topology, scope_id: str, policy: Policy) -> Topology:
    scopes = {
        scope.scope_id: replace(scope, policy=policy) if scope.scope_id == scope_id else scope
        for scope in fleet.scopes.values()
    }
    return replace(fleet, scopes=scopes)


def test_nothing_is_due_in_an_idle_fleet(fleet: Topology, now: datetime) -> None:
    decisions = decide(look(fleet), now)

    assert decisions == NOTHING
    assert not decisions


def test_scheduled_event_waits_for_approval_or_not_before(
    fleet: Topology, event: ScheduledEvent
) -> None:
    just_before = event.not_before - timedelta(seconds=1)

    assert decide(look(fleet, [event]), just_before) == NOTHING


def test_event_starts_at_not_before(fleet: Topology, event: ScheduledEvent) -> None:
    decisions = decide(look(fleet, [event]), event.not_before)

    expected = StartEvent(event_id=event.event_id, reason=StartReason.NOT_BEFORE_REACHED)
    assert decisions == replace(NOTHING, actions=(expected, *begun(event)))
    assert decisions


def test_paused_server_begins_nothing_and_completes_what_has_ended(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    web, db = event, replace(event, event_id=EventId("E2"), resources=(VmName("db-0"),))
    done = {"db-0": ImpactStatus.DONE}
    snapshot = look(fleet, [web, start(db, now=now)], [BY_HOST], done)
    paused = replace(snapshot, server_pause=ServerPause(who="alice", since=now))

    decisions = decide(paused, web.not_before)

    ended = CompleteEvent(event_id=db.event_id, outcome=Outcome.SUCCEEDED, reason="")
    assert decisions.actions == (ended,)
    assert decisions.effects == ()


def test_approved_event_starts_ahead_of_not_before(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    approved = request_start(event, vm=VmName("web-1"), now=now)

    decisions = decide(look(fleet, [approved]), now)

    expected = StartEvent(event_id=event.event_id, reason=StartReason.APPROVED)
    assert decisions.actions == (expected, *begun(event))


@pytest.mark.parametrize(
    ("approval", "starts"),
    [(ApprovalPolicy.ANY, True), (ApprovalPolicy.ALL, False), (ApprovalPolicy.LEADER, False)],
)
def test_vote_counts_by_the_policy_of_the_scope(
    fleet: Topology, event: ScheduledEvent, now: datetime, approval: ApprovalPolicy, *, starts: bool
) -> None:
    strict = with_policy(fleet, event.scope_id, Policy(approval=approval))

    voted = request_start(event, vm=VmName("web-2"), now=now)

    assert bool(decide(look(strict, [voted]), now)) is starts


@pytest.mark.parametrize("event_status", [EventStatus.COMPLETED, EventStatus.CANCELED])
def test_ended_event_is_left_alone(
    fleet: Topology, event: ScheduledEvent, event_status: EventStatus
) -> None:
    ended = replace(event, event_status=event_status)

    assert decide(look(fleet, [ended]), event.not_before) == NOTHING


def test_late_report_on_a_completed_event_is_ignored(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    completed = complete(start(event, now=now), outcome=Outcome.SUCCEEDED, now=now)
    reports = {"web-0": ImpactStatus.FAILED, "web-2": ImpactStatus.FAILED}

    assert decide(look(fleet, [completed], impacts=reports), now) == NOTHING


def test_approved_event_of_a_host_operation_waits_for_the_others(
    fleet: Topology, now: datetime
) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)

    approved = request_start(web, vm=VmName("web-0"), now=now)

    assert decide(look(fleet, [approved, db], [BY_HOST]), now) == NOTHING


def test_operator_approval_waits_for_the_host_operation_too(fleet: Topology, now: datetime) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)

    word = Approval(approver=Approver.OPERATOR, name="ada", approved_at=now)

    assert decide(look(fleet, [approve(web, word), db], [BY_HOST]), now) == NOTHING


def test_events_of_a_host_operation_start_together_once_each_is_approved(
    fleet: Topology, now: datetime
) -> None:
    events = announce(look(fleet, maintenances=[BY_HOST]), now)

    approved = [request_start(event, vm=event.resources[0], now=now) for event in events]

    actions = decide(look(fleet, approved, [BY_HOST]), now).actions
    starts = [StartEvent(event_id=each.event_id, reason=StartReason.APPROVED) for each in events]
    assert actions == (*starts, *begun(*events))


def test_events_of_a_host_operation_start_together_each_for_its_own_reason(
    fleet: Topology, now: datetime
) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)

    approved = request_start(web, vm=VmName("web-0"), now=now)

    assert decide(look(fleet, [approved, db], [BY_HOST]), db.not_before).actions == (
        StartEvent(event_id=web.event_id, reason=StartReason.APPROVED),
        StartEvent(event_id=db.event_id, reason=StartReason.NOT_BEFORE_REACHED),
        *begun(web, db),
    )


def test_event_past_not_before_waits_for_a_postponed_one_of_its_host_operation(
    fleet: Topology, now: datetime
) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)

    postponed = replace(db, not_before=db.not_before + timedelta(minutes=5))

    assert decide(look(fleet, [web, postponed], [BY_HOST]), web.not_before) == NOTHING


@pytest.mark.parametrize("event_status", sorted(set(EventStatus) - {EventStatus.SCHEDULED}))
def test_event_that_left_its_host_operation_holds_nobody(
    fleet: Topology, now: datetime, event_status: EventStatus
) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)
    approved = request_start(web, vm=VmName("web-0"), now=now)

    gone = replace(db, event_status=event_status)
    decisions = decide(look(fleet, [approved, gone], [BY_HOST]), now)

    started = StartEvent(event_id=web.event_id, reason=StartReason.APPROVED)
    assert started in decisions.actions


def test_start_past_the_host_operation_leaves_the_others_waiting(
    fleet: Topology, now: datetime
) -> None:
    web, db = announce(look(fleet, maintenances=[BY_HOST]), now)

    decisions = decide(look(fleet, [start(web, now=now), db], [BY_HOST]), now)

    assert decisions.actions[-1:] == begun(web)
    assert not [action for action in decisions.actions if isinstance(action, StartEvent)]


def test_other_event_on_the_host_neither_waits_nor_holds(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    operation = announce(look(fleet, maintenances=[BY_HOST]), now)
    approved = [request_start(own, vm=own.resources[0], now=now) for own in operation]
    other = replace(event, host=HostName("kvm-1"))

    held = decide(look(fleet, [*operation, request_start(other, vm=VmName("web-0"), now=now)]), now)
    holding = decide(look(fleet, [*approved, other]), now)

    starts = [[a for a in due.actions if isinstance(a, StartEvent)] for due in (held, holding)]
    assert [len(found) for found in starts] == [1, 2]


def test_host_operations_do_not_wait_for_each_other(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    waiting = replace(event, operation_id=OperationId("first"))
    neighbour = replace(event, event_id=EventId("E2"), operation_id=OperationId("second"))

    approved = request_start(neighbour, vm=VmName("web-2"), now=now)

    actions = decide(look(fleet, [waiting, approved]), now).actions
    started = StartEvent(event_id=EventId("E2"), reason=StartReason.APPROVED)
    assert actions == (started, *begun(neighbour))


def test_impact_is_reserved_for_each_machine_of_an_event_that_was_started_otherwise(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    decisions = decide(look(fleet, [start(event, now=now)]), now)

    assert decisions == replace(NOTHING, actions=begun(event))
    assert decisions


@pytest.mark.parametrize("known", ImpactStatus)
def test_impact_is_reserved_only_where_it_is_not(
    fleet: Topology, event: ScheduledEvent, now: datetime, known: ImpactStatus
) -> None:
    decisions = decide(look(fleet, [start(event, now=now)], impacts={"web-0": known}), now)

    assert decisions.actions == (ReserveTask(about=(event.event_id, VmName("web-2"))),)


def test_impact_without_an_executor_is_reserved_again_when_the_file_may_be_corrected(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    later = now + timedelta(minutes=1)
    lost = Impact(status=ImpactStatus.UNKNOWN, has_no_executor=True, ask_again_at=later)
    (key, other) = [(event.event_id, vm) for vm in event.resources]
    impacts = {key: lost, other: Impact(status=ImpactStatus.DONE)}
    snapshot = replace(look(fleet, [start(event, now=now)]), impacts=impacts)

    assert decide(snapshot, now) == NOTHING
    assert decide(snapshot, later).actions == (ReserveTask(about=key),)


@pytest.mark.parametrize(
    "answer", [ImpactStatus.RUNNING, ImpactStatus.UNKNOWN], ids=lambda answer: answer.value
)
def test_event_is_held_while_one_impact_is_running_or_unknown(
    fleet: Topology, event: ScheduledEvent, now: datetime, answer: ImpactStatus
) -> None:
    answers = {"web-0": ImpactStatus.FAILED, "web-2": answer}

    assert decide(look(fleet, [start(event, now=now)], impacts=answers), now) == NOTHING


def test_scheduled_event_has_no_impact_yet(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    answers = {"web-0": ImpactStatus.NOT_BEGUN, "web-2": ImpactStatus.NOT_BEGUN}

    assert decide(look(fleet, [event], impacts=answers), now) == NOTHING


def test_event_is_completed_when_every_impact_is_done(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    answers = {"web-0": ImpactStatus.DONE, "web-2": ImpactStatus.DONE}

    decisions = decide(look(fleet, [start(event, now=now)], impacts=answers), now)

    expected = CompleteEvent(event_id=event.event_id, outcome=Outcome.SUCCEEDED, reason="")
    assert decisions == replace(NOTHING, actions=(expected,))


@pytest.mark.parametrize(
    ("web_0", "web_2", "reason"),
    [
        (Impact(status=ImpactStatus.FAILED, reason="no boot"), None, "web-0: no boot"),
        (Impact(status=ImpactStatus.FAILED), None, "web-0: failed"),
        (
            Impact(status=ImpactStatus.FAILED),
            Impact(status=ImpactStatus.FAILED, reason="gone"),
            "web-0: failed; web-2: gone",
        ),
    ],
)
def test_event_fails_with_the_reason_of_each_failed_impact(
    fleet: Topology,
    event: ScheduledEvent,
    now: datetime,
    web_0: Impact,
    web_2: Impact | None,
    reason: str,
) -> None:
    impacts = {
        (event.event_id, VmName("web-0")): web_0,
        (event.event_id, VmName("web-2")): web_2 or Impact(status=ImpactStatus.DONE),
    }

    decisions = decide(replace(look(fleet, [start(event, now=now)]), impacts=impacts), now)

    expected = CompleteEvent(event_id=event.event_id, outcome=Outcome.FAILED, reason=reason)
    assert decisions.actions == (expected,)


def test_first_step_of_a_maintenance_is_due_at_once(fleet: Topology, now: datetime) -> None:
    decisions = decide(look(fleet, maintenances=[BY_SCOPE]), now)

    first = remaining_steps(BY_SCOPE, fleet, ())[0]
    expected = ScheduleStep(maintenance_id=BY_SCOPE.maintenance_id, step=first)
    assert decisions == replace(NOTHING, actions=(expected,))


def test_next_step_is_due_after_the_previous_is_completed(fleet: Topology, now: datetime) -> None:
    (first,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)
    completed = complete(start(first, now=now), outcome=Outcome.SUCCEEDED, now=now)

    decisions = decide(look(fleet, [completed], [BY_SCOPE]), now)

    second = remaining_steps(BY_SCOPE, fleet, ())[1]
    expected = ScheduleStep(maintenance_id=BY_SCOPE.maintenance_id, step=second)
    assert decisions.actions == (expected,)


def test_completion_is_recorded_before_the_next_step_is_due(fleet: Topology, now: datetime) -> None:
    (first,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)
    answers = {"web-0": ImpactStatus.DONE, "web-2": ImpactStatus.DONE}

    decisions = decide(look(fleet, [start(first, now=now)], [BY_SCOPE], answers), now)

    assert [type(action) for action in decisions.actions] == [CompleteEvent]


def test_two_maintenances_do_not_begin_two_update_domains_in_one_decision(
    fleet: Topology, now: datetime
) -> None:
    first = replace(BY_SCOPE, resources=(VmName("web-1"),))
    second = replace(
        BY_SCOPE, maintenance_id=MaintenanceId("m9"), resources=(VmName("web-0"), VmName("db-0"))
    )

    events = announce(look(fleet, maintenances=[first, second]), now)

    assert [(event.maintenance_id, event.resources) for event in events] == [
        ("m1", ("web-1",)),
        ("m9", ("db-0",)),
    ]


def test_second_maintenance_of_a_scope_waits_for_the_first(fleet: Topology, now: datetime) -> None:
    second = replace(BY_SCOPE, maintenance_id=MaintenanceId("m9"))

    events = announce(look(fleet, maintenances=[BY_SCOPE, second]), now)

    assert {event.maintenance_id for event in events} == {BY_SCOPE.maintenance_id}


def test_events_of_a_paused_maintenance_take_their_course(fleet: Topology, now: datetime) -> None:
    (event,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)

    decisions = decide(look(fleet, [event], [pause(BY_SCOPE)]), event.not_before)

    assert [type(action) for action in decisions.actions] == [StartEvent, ReserveTask, ReserveTask]


def test_aborted_maintenance_withdraws_what_is_scheduled_even_past_not_before(
    fleet: Topology, now: datetime
) -> None:
    (event,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)

    decisions = decide(look(fleet, [event], [abort(BY_SCOPE)]), event.not_before)

    expected = CancelEvent(event_id=event.event_id, reason="the maintenance was aborted")
    assert decisions.actions == (expected,)


def test_started_events_of_an_aborted_maintenance_run_out(fleet: Topology, now: datetime) -> None:
    (event,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)
    answers = {"web-0": ImpactStatus.NOT_BEGUN, "web-2": ImpactStatus.NOT_BEGUN}

    started = start(event, now=now)

    reserved = decide(look(fleet, [started], [abort(BY_SCOPE)]), now)

    assert reserved.actions == begun(started)
    assert decide(look(fleet, [started], [abort(BY_SCOPE)], answers), now) == NOTHING


def test_abort_touches_no_event_of_others(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    (own,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)

    decisions = decide(look(fleet, [event, own], [abort(BY_SCOPE)]), now)

    assert [action for action in decisions.actions if isinstance(action, CancelEvent)] == [
        CancelEvent(event_id=own.event_id, reason="the maintenance was aborted")
    ]


@pytest.mark.parametrize("maintenance", [abort(BY_SCOPE), replace(BY_SCOPE, resources=())])
def test_maintenance_with_nothing_left_is_finished(
    fleet: Topology, now: datetime, maintenance: Maintenance
) -> None:
    decisions = decide(look(fleet, maintenances=[maintenance]), now)

    expected = FinishMaintenance(maintenance_id=maintenance.maintenance_id)
    assert decisions == replace(NOTHING, actions=(expected,))


def test_finished_maintenance_is_not_finished_again(fleet: Topology, now: datetime) -> None:
    finished = replace(abort(BY_SCOPE), finished_at=now)

    assert decide(look(fleet, maintenances=[finished]), now) == NOTHING


def test_held_maintenance_is_not_finished(fleet: Topology, now: datetime) -> None:
    (event,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)

    decisions = decide(look(fleet, [cancel(event, now=now)], [BY_SCOPE]), now)

    assert decisions == NOTHING


def test_next_deadline_is_the_earliest_not_before_to_come(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    later = replace(
        event, event_id=EventId("E2"), not_before=event.not_before + timedelta(minutes=5)
    )

    snapshot = look(fleet, [later, event])

    assert next_deadline(snapshot, now) == event.not_before
    assert next_deadline(snapshot, event.not_before) == later.not_before


@pytest.mark.parametrize("event_status", sorted(set(EventStatus) - {EventStatus.SCHEDULED}))
def test_only_scheduled_events_have_a_deadline(
    fleet: Topology, event: ScheduledEvent, now: datetime, event_status: EventStatus
) -> None:
    snapshot = look(fleet, [replace(event, event_status=event_status)])

    assert next_deadline(snapshot, now) is None


def test_idle_fleet_has_no_deadline(fleet: Topology, now: datetime) -> None:
    assert next_deadline(look(fleet), now) is None


def test_start_is_recorded(fleet: Topology, event: ScheduledEvent, now: datetime) -> None:
    action = StartEvent(event_id=event.event_id, reason=StartReason.APPROVED)

    recorded = apply_actions(look(fleet, [event]), [action], now=now, event_ids=iter(()))

    assert recorded == look(fleet, [start(event, now=now)])


def test_completion_is_recorded(fleet: Topology, event: ScheduledEvent, now: datetime) -> None:
    started = start(event, now=now)
    action = CompleteEvent(event_id=event.event_id, outcome=Outcome.FAILED, reason="no boot")

    recorded = apply_actions(look(fleet, [started]), [action], now=now, event_ids=iter(()))

    expected = complete(started, outcome=Outcome.FAILED, reason="no boot", now=now)
    assert recorded == look(fleet, [expected])


def test_cancellation_is_recorded(fleet: Topology, event: ScheduledEvent, now: datetime) -> None:
    action = CancelEvent(event_id=event.event_id, reason="not needed")

    recorded = apply_actions(look(fleet, [event]), [action], now=now, event_ids=iter(()))

    assert recorded == look(fleet, [cancel(event, reason="not needed", now=now)])


def test_finish_is_recorded(fleet: Topology, now: datetime) -> None:
    action = FinishMaintenance(maintenance_id=BY_SCOPE.maintenance_id)

    recorded = apply_actions(
        look(fleet, maintenances=[BY_SCOPE, BY_HOST]), [action], now=now, event_ids=iter(())
    )

    finished = replace(BY_SCOPE, finished_at=now, outcome=MaintenanceOutcome.SUCCEEDED)
    expected = [finished, BY_HOST]
    assert recorded == look(fleet, maintenances=expected)


def test_recorded_step_takes_ids_in_order_and_gives_notice(fleet: Topology, now: datetime) -> None:
    events = announce(look(fleet, maintenances=[BY_HOST]), now)

    assert [(event.event_id, event.resources) for event in events] == [
        ("N1", ("web-0",)),
        ("N2", ("db-0",)),
    ]
    assert {event.not_before for event in events} == {now + timedelta(minutes=15)}
    assert {event.event_status for event in events} == {EventStatus.SCHEDULED}
    assert {event.operation_id for event in events} == {"n0"}


@pytest.mark.parametrize(
    ("policy", "speed", "notice"),
    [
        (Policy(), 1, timedelta(minutes=5)),
        (Policy(terminate_notice=timedelta(minutes=15)), 1, timedelta(minutes=15)),
        (Policy(terminate_notice=timedelta(minutes=15)), 60, timedelta(seconds=15)),
        (Policy(notice=timedelta(hours=1)), 1, timedelta(hours=1)),
        (Policy(notice=timedelta(hours=1)), 60, timedelta(minutes=1)),
        (Policy(notice=timedelta(minutes=1)), 1, timedelta(minutes=5)),
    ],
)
def test_recorded_step_gives_the_notice_of_its_scope_at_the_speed(
    fleet: Topology, now: datetime, policy: Policy, speed: float, notice: timedelta
) -> None:
    maintenance = replace(BY_SCOPE, event_type=EventType.TERMINATE)
    strict = with_policy(fleet, "availability-set/web", policy)
    snapshot = replace(look(strict, maintenances=[maintenance]), speed=speed)

    recorded = apply_actions(
        snapshot,
        decide(snapshot, now).actions,
        now=now,
        event_ids=iter([EventId("E1")]),
    )

    assert recorded.events[EventId("E1")].not_before == now + notice


def test_recording_leaves_the_old_snapshot_as_it_was(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    snapshot = look(fleet, [event])
    action = StartEvent(event_id=event.event_id, reason=StartReason.APPROVED)

    apply_actions(snapshot, [action], now=now, event_ids=iter(()))

    assert snapshot == look(fleet, [event])


@pytest.mark.parametrize("maintenance", [BY_SCOPE, BY_HOST], ids=["scope", "host"])
def test_decided_and_recorded_steps_are_not_due_again(
    fleet: Topology, now: datetime, maintenance: Maintenance
) -> None:
    events = announce(look(fleet, maintenances=[maintenance]), now)

    assert decide(look(fleet, events, [maintenance]), now) == NOTHING


def test_maintenance_is_walked_to_its_end_step_by_step(fleet: Topology, now: datetime) -> None:
    snapshot = look(fleet, maintenances=[BY_SCOPE])
    event_ids = iter([EventId("E1"), EventId("E2")])
    answers = dict.fromkeys(map(str, fleet.virtual_machines), ImpactStatus.DONE)
    walked: list[type] = []

    while actions := decide(snapshot, now).actions:
        walked += [type(action) for action in actions]
        after = apply_actions(snapshot, actions, now=now, event_ids=event_ids)
        snapshot = look(fleet, after.events.values(), after.maintenances.values(), answers)
        now += timedelta(minutes=15)

    first = [ScheduleStep, StartEvent, ReserveTask, ReserveTask, CompleteEvent]
    second = [ScheduleStep, StartEvent, ReserveTask, CompleteEvent]
    assert walked == [*first, *second, FinishMaintenance]


def row(event: ScheduledEvent, vm: str, said: Impact, *, runner: str = "command") -> Task:
    """Return the impact of *event* as a task of the leader."""
    return Task(
        subject=event.event_id,
        name=vm,
        vm=VmName(vm),
        runner=runner,
        state=STATES[said.status],
        node="n1",
        epoch=1,
        said=said,
        reserved_at=BEGINNING,
    )


STATES = {
    ImpactStatus.NOT_BEGUN: TaskState.RESERVED,
    ImpactStatus.RUNNING: TaskState.BEGUN,
    ImpactStatus.UNKNOWN: TaskState.UNKNOWN,
    ImpactStatus.DONE: TaskState.ENDED,
    ImpactStatus.FAILED: TaskState.ENDED,
}


def with_rows(snapshot: Snapshot, *rows: Task) -> Snapshot:
    seen = replace(snapshot, ownership=Ownership(node="n1", at=BEGINNING))
    return seen.with_rows({each.key: each for each in rows})


def changes(snapshot: Snapshot, now: datetime) -> list[Task]:
    """Return what becomes of tasks by itself."""
    actions = decide(snapshot, now).actions
    return [action.task for action in actions if isinstance(action, ChangeTask)]


def test_simulated_impact_ends_at_its_moment_which_is_the_next_deadline(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    over = now + timedelta(minutes=10)
    running = Impact(status=ImpactStatus.RUNNING, ask_again_at=over)
    rows = [row(event, vm, running, runner=SIMULATED) for vm in event.resources]
    snapshot = with_rows(look(fleet, [start(event, now=now)]), *rows)

    assert next_deadline(snapshot, now) == over
    assert decide(snapshot, now) == NOTHING
    assert [task.state for task in changes(snapshot, over)] == [TaskState.ENDED, TaskState.ENDED]


def test_impact_that_an_owner_asks_about_is_no_deadline_of_the_leader(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    soon = Impact(status=ImpactStatus.RUNNING, ask_again_at=now + timedelta(seconds=1))
    snapshot = with_rows(look(fleet, [start(event, now=now)]), row(event, "web-0", soon))

    assert next_deadline(snapshot, now) is None


OVER = {
    # What it was when its event was completed: what it is then.
    "reserved": (Impact(status=ImpactStatus.NOT_BEGUN), "command", TaskState.WITHDRAWN),
    "by hand": (BY_HAND, MANUAL, TaskState.ENDED),
    "simulated": (Impact(status=ImpactStatus.RUNNING), SIMULATED, TaskState.ENDED),
}


@pytest.mark.parametrize("case", OVER)
@pytest.mark.parametrize("outcome", Outcome)
def test_task_is_over_with_the_event_that_an_operator_completed(
    fleet: Topology, event: ScheduledEvent, now: datetime, case: str, outcome: Outcome
) -> None:
    said, runner, state = OVER[case]
    ended = complete(start(event, now=now), outcome=outcome, now=now)

    (task,) = changes(
        with_rows(look(fleet, [ended]), row(event, "web-0", said, runner=runner)), now
    )

    assert task.state is state
    is_done = state is TaskState.ENDED
    assert task.said.status is (ImpactStatus.DONE if is_done else ImpactStatus.FAILED)


@pytest.mark.parametrize("status", [ImpactStatus.UNKNOWN, ImpactStatus.RUNNING])
def test_task_that_may_be_running_is_not_over_with_its_event(
    fleet: Topology, event: ScheduledEvent, now: datetime, status: ImpactStatus
) -> None:
    ended = complete(start(event, now=now), outcome=Outcome.SUCCEEDED, now=now)
    task = row(event, "web-0", Impact(status=status))

    assert changes(with_rows(look(fleet, [ended]), task), now) == []


def test_task_of_an_event_that_is_over_is_closed_when_it_has_ended_itself(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    ended = complete(start(event, now=now), outcome=Outcome.SUCCEEDED, now=now)
    running = row(event, "web-0", Impact(status=ImpactStatus.RUNNING))
    done = replace(running, state=TaskState.ENDED, said=Impact(status=ImpactStatus.DONE))

    assert changes(with_rows(look(fleet, [ended]), running), now) == []
    assert changes(with_rows(look(fleet, [ended]), done), now) == [
        replace(done, closed_at=BEGINNING)
    ]
    assert changes(with_rows(look(fleet, [start(event, now=now)]), done), now) == []


def test_paused_server_withdraws_nothing_that_a_host_has_not_fetched(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    started = start(event, now=now)
    said = Impact(status=ImpactStatus.NOT_BEGUN)
    rows = [row(event, vm, said, runner=FETCHED) for vm in event.resources]
    snapshot = with_rows(look(fleet, [started]), *rows)
    paused = replace(snapshot, server_pause=ServerPause(who="alice", since=now))

    assert {task.state for task in changes(snapshot, now)} == {TaskState.WITHDRAWN}
    assert changes(paused, now) == []


def test_what_is_over_is_not_looked_at_anew(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    over = replace(BY_SCOPE, finished_at=now)
    (own,) = announce(look(fleet, maintenances=[BY_SCOPE]), now)
    withdrawn = cancel(event, now=now)
    ended = cancel(
        replace(own, event_id=EventId("E9"), maintenance_id=BY_HOST.maintenance_id), now=now
    )
    snapshot = look(fleet, [withdrawn, own, ended], [over, BY_HOST])

    assert without_ended(snapshot) == look(fleet, [own, ended], [BY_HOST])


def rival(event: ScheduledEvent, name: str = "U1") -> ScheduledEvent:
    """Return a second event for the same virtual machines."""
    return replace(event, event_id=EventId(name))


def test_event_does_not_start_while_another_has_started_on_its_virtual_machine(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    running = replace(start(rival(event), now=now), resources=(VmName("web-2"),))
    impacts = {"web-2": ImpactStatus.RUNNING}

    assert decide(look(fleet, [event, running], impacts=impacts), event.not_before) == NOTHING


def test_older_of_two_events_starts_first(event: ScheduledEvent, fleet: Topology) -> None:
    actions = decide(look(fleet, [event, rival(event)]), event.not_before).actions

    first = StartEvent(event_id=event.event_id, reason=StartReason.NOT_BEFORE_REACHED)
    assert actions == (first, *begun(event))


@pytest.mark.parametrize(
    ("first", "second", "reserved"),
    [
        (None, None, "E1"),
        (None, ImpactStatus.NOT_BEGUN, None),
        (None, ImpactStatus.RUNNING, None),
        (None, ImpactStatus.UNKNOWN, None),
        (None, ImpactStatus.DONE, "E1"),
        (ImpactStatus.NOT_BEGUN, None, None),
        (ImpactStatus.RUNNING, None, None),
        (ImpactStatus.UNKNOWN, None, None),
        (ImpactStatus.FAILED, None, "U1"),
        (ImpactStatus.DONE, None, "U1"),
    ],
)
def test_virtual_machine_has_one_impact_at_a_time(
    event: ScheduledEvent,
    fleet: Topology,
    now: datetime,
    first: ImpactStatus | None,
    second: ImpactStatus | None,
    reserved: str | None,
) -> None:
    vm = VmName("web-0")
    older = replace(start(event, now=now), resources=(vm,))
    said = {(older.event_id, vm): first, (EventId("U1"), vm): second}
    seen = replace(
        look(fleet, [older, rival(older)]),
        impacts={key: Impact(status=status) for key, status in said.items() if status},
    )

    actions = decide(seen, now).actions

    assert [each.about for each in actions if isinstance(each, ReserveTask)] == (
        [(reserved, vm)] if reserved else []
    )


def test_tasks_of_what_is_not_known_any_more_say_nothing_of_it(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    unknown = Impact(status=ImpactStatus.UNKNOWN)
    plain = start(replace(event, maintenance_id=None), now=now)
    of_host = replace(row(plain, "web-0", unknown), subject="gone", name="work", vm=None)
    of_machine = replace(row(plain, "gone", unknown), subject="gone")

    seen = look(fleet, [plain], [BY_SCOPE])
    snapshot = with_rows(seen, row(plain, "web-0", unknown), of_host, of_machine)

    assert snapshot.tasks == {}
    assert snapshot.in_doubt == {}
    assert "gone" in snapshot.lingering_on
    assert changes(snapshot, now) == []
