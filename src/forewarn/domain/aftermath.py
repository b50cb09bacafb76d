"""What a snapshot becomes once the actions that were decided on it are carried out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import assert_never

from forewarn.domain.actions import (
    Action,
    AdvanceOperation,
    CancelEvent,
    ChangeTask,
    CompleteEvent,
    FinishMaintenance,
    FinishScenario,
    NoteOverdue,
    ReserveTask,
    ScheduleStep,
    StartEvent,
    TakeStep,
)
from forewarn.domain.event import Draft, ScheduledEvent, cancel, complete, schedule, start
from forewarn.domain.failures import outcome_of
from forewarn.domain.host_facts import rule_of
from forewarn.domain.host_operation import HostOperation, begin
from forewarn.domain.maintenance import Maintenance, Step, draft_events, soaks_until
from forewarn.domain.names import OperationId, ScopeId
from forewarn.domain.notice import earliest_not_before
from forewarn.domain.openings import longest_notice
from forewarn.domain.policy import usual_notice
from forewarn.domain.scenario import ScenarioRun, take_step
from forewarn.domain.snapshot import Snapshot
from forewarn.protocol.vocabulary import EventId


def apply_actions(
    snapshot: Snapshot,
    actions: Iterable[Action],
    *,
    now: datetime,
    event_ids: Iterator[EventId],
) -> Snapshot:
    """Return *snapshot* after *actions*, new events taking their ids from *event_ids*."""
    events = dict(snapshot.events)
    maintenances = dict(snapshot.maintenances)
    operations = dict(snapshot.operations)
    runs = dict(snapshot.scenario_runs)
    soaks = dict(snapshot.soaks)
    rows = dict(snapshot.rows)
    for action in actions:
        match action:
            case StartEvent() | CompleteEvent() | CancelEvent() | NoteOverdue():
                events[action.event_id] = _change(events[action.event_id], action, now)
                soaks |= _soak(snapshot, soaks, events[action.event_id])
            case ScheduleStep():
                maintenance = maintenances[action.maintenance_id]
                made, begun = _announce(snapshot, maintenance, action.step, now, event_ids)
                events |= {event.event_id: event for event in made}
                operations |= {operation.operation_id: operation for operation in begun}
            case AdvanceOperation():
                operations[action.operation.operation_id] = action.operation
            case FinishMaintenance():
                maintenance = maintenances[action.maintenance_id]
                outcome = outcome_of(maintenance, events.values(), operations.values())
                finished = replace(maintenance, finished_at=now, outcome=outcome)
                maintenances[action.maintenance_id] = finished
            case TakeStep() | FinishScenario():
                after = replace(snapshot, events=events)
                run, changed = _run(after, runs[action.run_id], action, now, event_ids)
                runs[action.run_id] = run
                events |= {event.event_id: event for event in changed}
            case ChangeTask():
                rows[action.task.key] = action.task
            case ReserveTask():
                pass  # who it is for is not decided here
            case _:
                assert_never(action)
    after = replace(
        snapshot,
        events=events,
        maintenances=maintenances,
        operations=operations,
        scenario_runs=runs,
        soaks=soaks,
    )
    return after if rows == snapshot.rows else after.with_rows(rows)


def without_ended(snapshot: Snapshot) -> Snapshot:
    """Return what is left of *snapshot* when it is looked at anew: nothing that is over."""
    maintenances = {
        key: each for key, each in snapshot.maintenances.items() if each.finished_at is None
    }
    runs = {key: each for key, each in snapshot.scenario_runs.items() if each.finished_at is None}
    events = {
        key: event
        for key, event in snapshot.events.items()
        if event.is_in_flight or event.maintenance_id in maintenances
    }
    operations = {
        key: each
        for key, each in snapshot.operations.items()
        if each.maintenance_id in maintenances
    }
    return replace(
        snapshot,
        events=events,
        maintenances=maintenances,
        operations=operations,
        scenario_runs=runs,
    )


def _change(
    event: ScheduledEvent,
    action: StartEvent | CompleteEvent | CancelEvent | NoteOverdue,
    now: datetime,
) -> ScheduledEvent:
    match action:
        case StartEvent():
            return start(event, now=now)
        case CompleteEvent():
            return complete(event, outcome=action.outcome, reason=action.reason, now=now)
        case CancelEvent():
            return cancel(event, reason=action.reason, now=now)
        case NoteOverdue():
            return replace(event, overdue_at=now)
        case _:
            assert_never(action)


def _run(
    snapshot: Snapshot,
    run: ScenarioRun,
    action: TakeStep | FinishScenario,
    now: datetime,
    event_ids: Iterator[EventId],
) -> tuple[ScenarioRun, tuple[ScheduledEvent, ...]]:
    """Return *run* after *action*, and the events that this has made or changed."""
    if isinstance(action, FinishScenario):
        return replace(run, finished_at=now), ()
    return take_step(
        run,
        action.step,
        topology=snapshot.topology,
        events=snapshot.events,
        now=now,
        event_ids=event_ids,
    )


def _soak(
    snapshot: Snapshot, soaks: Mapping[ScopeId, datetime], event: ScheduledEvent
) -> dict[ScopeId, datetime]:
    """Return until when the scope of *event* is left alone, if it has just ended."""
    maintenance = snapshot.maintenances.get(event.maintenance_id) if event.maintenance_id else None
    if maintenance is None or event.ended_at is None or not maintenance.course.soak:
        return {}
    until = soaks_until(maintenance, event, speed=snapshot.speed)
    return {event.scope_id: max(until, soaks.get(event.scope_id, until))}


def _announce(
    snapshot: Snapshot,
    maintenance: Maintenance,
    step: Step,
    now: datetime,
    event_ids: Iterator[EventId],
) -> tuple[tuple[ScheduledEvent, ...], tuple[HostOperation, ...]]:
    """Return the events that announce *step*, and the operation they are of if it is on a host."""
    not_before = None
    if maintenance.course.notice_outside:
        # All of it starts where there is room, also what has shorter notice.
        not_before = earliest_not_before(now, longest_notice(maintenance, step, snapshot))
    announce = partial(_schedule, snapshot, now=now, event_ids=event_ids, not_before=not_before)
    if step.host is None:
        return tuple(announce(draft_events(maintenance, step))), ()
    operation = HostOperation(
        operation_id=OperationId(next(event_ids).lower()),
        maintenance_id=maintenance.maintenance_id,
        event_type=maintenance.event_type,
        host=step.host,
        created_at=now,
    )
    drafts = draft_events(maintenance, step, operation.operation_id)
    events = tuple(announce(drafts))
    return events, (begin(operation, events=events, rule=rule_of(operation, snapshot)),)


def _schedule(
    snapshot: Snapshot,
    drafts: Iterable[Draft],
    *,
    now: datetime,
    event_ids: Iterator[EventId],
    not_before: datetime | None,
) -> Iterator[ScheduledEvent]:
    for draft in drafts:
        policy = snapshot.topology.scopes[draft.share.scope_id].policy
        notice = usual_notice(draft.event_type, policy, speed=snapshot.speed)
        yield schedule(
            draft, event_id=next(event_ids), now=now, notice=notice, not_before=not_before
        )
