"""What is due. `decide` looks at a snapshot and says so; `aftermath.apply_actions` records it.

Nothing here acts. The scheduler's loop takes a snapshot from the store, decides, records what was
decided in one transaction, and only then has the effects performed. So a crash between any two of
these loses nothing and repeats nothing: the next leader takes a new snapshot and decides again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.actions import (
    BEGINS_NOTHING,
    AdvanceOperation,
    AskGate,
    CancelEvent,
    ChangeTask,
    CompleteEvent,
    Decisions,
    FinishMaintenance,
    FinishScenario,
    NoteOverdue,
    ReserveTask,
    ScheduleStep,
    StartEvent,
    TakeStep,
)
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.gate import Question
from forewarn.domain.host_facts import (
    Gathered,
    gather_facts,
    has_impact_behind,
    operation_at_work,
)
from forewarn.domain.host_operation import HostOperation, advance, due_tasks, failed_impacts
from forewarn.domain.impact import Impact
from forewarn.domain.moves import find_moves
from forewarn.domain.openings import next_start
from forewarn.domain.precedence import (
    due_starts,
    impacts_ahead,
    is_withdrawn,
    start_reason,
)
from forewarn.domain.schedule import due_occurrences, next_openings
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import (
    MANUAL,
    ROWS_ONLY,
    SIMULATED,
    Task,
    TaskState,
    conclude,
    next_tasks,
    withdraw,
)
from forewarn.domain.walk import Walks, is_through, walk_all
from forewarn.protocol.vocabulary import EventId, EventStatus

_TOO_LATE: Final = "what it was for was over before it began"


def decide(snapshot: Snapshot, now: datetime) -> Decisions:
    """Say what is due at *now*."""
    if snapshot.server_pause is not None:
        return _without_beginnings(_decide_all(snapshot, now))
    due = _due(snapshot, now)
    if due:
        return due
    # They come last: whether one starts depends on whether the Maintenance before it has finished.
    schedules = snapshot.schedules.values()
    return replace(
        due, occurrences=tuple(due_occurrences(schedules, snapshot.maintenances.keys(), now))
    )


def _due(snapshot: Snapshot, now: datetime) -> Decisions:
    scenario_steps = tuple(_scenario_steps(snapshot, now))
    if scenario_steps:
        # They come first and alone: what else is due depends on what they change.
        return Decisions(actions=scenario_steps, effects=(), questions=frozenset(snapshot.answers))
    return _decide_all(snapshot, now)


def _decide_all(snapshot: Snapshot, now: datetime) -> Decisions:
    moves = tuple(find_moves(snapshot))
    if moves:
        # They come first, with the events they end: what else is due depends on who is where.
        return Decisions(
            actions=tuple(_completions(snapshot)),
            effects=(),
            moves=moves,
            questions=frozenset(snapshot.answers),
        )
    walks, hosts = walk_all(snapshot, now), gather_facts(snapshot)
    starts = due_starts(snapshot, now)
    return Decisions(
        actions=(
            *_cancellations(snapshot),
            *(StartEvent(event_id=event_id, reason=why) for event_id, why in starts.items()),
            *_completions(snapshot),
            *_operations(hosts, now),
            *_delays(snapshot, now),
            *_steps(walks),
            *_finishes(snapshot, walks),
            *_scenario_finishes(snapshot),
            *_reservations(snapshot, starts, hosts, now),
            *_task_changes(snapshot, now),
        ),
        effects=tuple(_gate_effects(snapshot, walks, now)),
        questions=_questions(walks),
    )


def _without_beginnings(due: Decisions) -> Decisions:
    return replace(
        due,
        actions=tuple(action for action in due.actions if isinstance(action, BEGINS_NOTHING)),
        effects=(),
    )


def next_deadline(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when something may become due by itself, if nothing changes before."""
    moments = [event.not_before for event in _scheduled(snapshot)]
    moments += [
        opening
        for event in _scheduled(snapshot)
        if start_reason(event, snapshot, now) and (opening := next_start(event, snapshot, now))
    ]
    moments += [
        task.said.ask_again_at
        for task in snapshot.rows.values()
        if task.said.ask_again_at and (task.runner == SIMULATED or task.said.has_no_executor)
    ]
    moments += [
        moment
        for each in snapshot.operations.values()
        if not each.is_over
        for moment in (each.verify_at, each.verify_by)
        if moment
    ]
    moments += _overdue_moments(snapshot, _started(snapshot)).values()
    moments += [
        moment
        for stages in walk_all(snapshot, now).values()
        for stage in stages
        for moment in stage.moments
    ]
    moments += [run.next_step_at for run in snapshot.scenario_runs.values() if run.next_step_at]
    moments += next_openings(snapshot.schedules.values())
    return min((moment for moment in moments if moment > now), default=None)


def _cancellations(snapshot: Snapshot) -> Iterator[CancelEvent]:
    for event in _scheduled(snapshot):
        if is_withdrawn(event, snapshot):
            yield CancelEvent(event_id=event.event_id, reason="the maintenance was aborted")


def _completions(snapshot: Snapshot) -> Iterator[CompleteEvent]:
    for event in _started(snapshot):
        operation = operation_at_work(event, snapshot)
        if operation is not None:
            yield from _complete_with(operation, event, snapshot)
            continue
        impacts = (snapshot.impacts.get((event.event_id, vm)) for vm in event.resources)
        if all(impact is not None and impact.is_over for impact in impacts):
            yield _complete(event, "; ".join(failed_impacts(event, snapshot.impacts)))


def _complete_with(
    operation: HostOperation, event: ScheduledEvent, snapshot: Snapshot
) -> Iterator[CompleteEvent]:
    """Complete an event whose host has work of its own when that is over, one way or the other.

    Until then, nothing of the host may still run.
    """
    if operation.outcome is not None and not _still_open(operation, snapshot):
        own = "; ".join(failed_impacts(event, snapshot.impacts))
        yield _complete(event, own or operation.reason)


def _still_open(operation: HostOperation, snapshot: Snapshot) -> bool:
    """Tell whether anything is not over that is done for *operation* or to its machines.

    An impact that is carried out by hand is the work on the host itself, and over with it.
    """
    return any(task.runner != MANUAL for task in snapshot.open_in(operation.operation_id))


def _complete(event: ScheduledEvent, failure: str) -> CompleteEvent:
    outcome = Outcome.FAILED if failure else Outcome.SUCCEEDED
    return CompleteEvent(event_id=event.event_id, outcome=outcome, reason=failure)


def _operations(hosts: Gathered, now: datetime) -> Iterator[AdvanceOperation]:
    for operation, facts in hosts.items():
        advanced = advance(operation, facts, now)
        if advanced != operation:
            yield AdvanceOperation(operation=advanced)


def _delays(snapshot: Snapshot, now: datetime) -> Iterator[NoteOverdue]:
    ended = {action.event_id for action in _completions(snapshot)}
    lasting = (event for event in _started(snapshot) if event.event_id not in ended)
    for event_id, moment in _overdue_moments(snapshot, lasting).items():
        if moment <= now:
            yield NoteOverdue(event_id=event_id)


def _overdue_moments(
    snapshot: Snapshot, started: Iterable[ScheduledEvent]
) -> dict[EventId, datetime]:
    """Return when each event of *started* is overdue, of which that is not recorded yet.

    That is so much beyond the duration it was announced with; never, if nothing is set.
    """
    if snapshot.overdue_after is None:
        return {}
    return {
        event.event_id: event.started_at
        + timedelta(seconds=event.duration_in_seconds or 0)
        + snapshot.overdue_after
        for event in started
        if event.started_at is not None and event.overdue_at is None
    }


def _steps(walks: Walks) -> Iterator[ScheduleStep]:
    for maintenance_id, stages in walks.items():
        for stage in stages:
            if not stage.blockers:
                yield ScheduleStep(maintenance_id=maintenance_id, step=stage.step)


def _finishes(snapshot: Snapshot, walks: Walks) -> Iterator[FinishMaintenance]:
    for key, maintenance in snapshot.maintenances.items():
        if maintenance.finished_at is None and is_through(maintenance, snapshot, walks[key]):
            yield FinishMaintenance(maintenance_id=key)


def _questions(walks: Walks) -> frozenset[Question]:
    return frozenset(
        question for stages in walks.values() for stage in stages for question in stage.questions
    )


def _gate_effects(snapshot: Snapshot, walks: Walks, now: datetime) -> Iterator[AskGate]:
    for stages in walks.values():
        for stage in stages:
            # Whoever has lost patience asks no more.
            if stage.awaited and not stage.is_stuck:
                answer = snapshot.answers.get(stage.awaited)
                if answer is None or answer.has_news(now):
                    yield AskGate(question=stage.awaited)


def _scenario_steps(snapshot: Snapshot, now: datetime) -> Iterator[TakeStep]:
    for run in snapshot.scenario_runs.values():
        if run.next_step and run.next_step_at and run.next_step_at <= now:
            yield TakeStep(run_id=run.run_id, step=run.next_step)


def _scenario_finishes(snapshot: Snapshot) -> Iterator[FinishScenario]:
    for run in snapshot.scenario_runs.values():
        if run.finished_at is None and run.has_ended(snapshot.events):
            yield FinishScenario(run_id=run.run_id)


def _reservations(
    snapshot: Snapshot, starts: Iterable[EventId], hosts: Gathered, now: datetime
) -> Iterator[ReserveTask]:
    """Reserve what begins with *starts*, and with the next phase of *hosts*."""
    for event_id in starts:
        for vm in snapshot.events[event_id].resources:
            yield ReserveTask(about=(event_id, vm))
    for vm, started in snapshot.started_on.items():
        for event in started:
            is_due = _may_be_reserved(snapshot.impacts.get((event.event_id, vm)), now)
            is_held = (
                vm in snapshot.lingering_on
                or has_impact_behind(event, snapshot)
                or impacts_ahead(event, vm, started, snapshot)
            )
            if is_due and not is_held:
                yield ReserveTask(about=(event.event_id, vm))
    for operation, facts in hosts.items():
        for task in due_tasks(advance(operation, facts, now), facts, now):
            if _may_be_reserved(snapshot.tasks.get(task), now):
                yield ReserveTask(about=task)


def _may_be_reserved(said: Impact | None, now: datetime) -> bool:
    """Tell whether there is nothing yet, or nothing but an executor file with mistakes."""
    return said is None or (said.has_no_executor and said.has_news(now))


def _task_changes(snapshot: Snapshot, now: datetime) -> Iterator[ChangeTask]:
    if snapshot.ownership is None:
        return
    for task in next_tasks(snapshot.rows.values(), snapshot.ownership, now):
        if snapshot.server_pause is None or task.state is not TaskState.WITHDRAWN:
            yield ChangeTask(task=task)
    at = snapshot.ownership.at
    for task in snapshot.lingering:
        if task.state is TaskState.RESERVED:
            yield ChangeTask(task=withdraw(task, is_done=False, reason=_TOO_LATE, now=at))
        elif task.state is TaskState.BEGUN and task.runner in ROWS_ONLY:
            yield ChangeTask(task=conclude(task, at))
    for event in _started(snapshot):
        operation = operation_at_work(event, snapshot)
        if operation is not None and operation.outcome is not None:
            for task in snapshot.open_of.get(event.event_id, ()):
                if task.runner == MANUAL:
                    yield ChangeTask(task=conclude(task, at))
    for task in finished_tasks(snapshot):
        yield ChangeTask(task=replace(task, closed_at=at))


def finished_tasks(snapshot: Snapshot) -> Iterator[Task]:
    """Yield the tasks that matter no longer: over, and so is what they were for."""
    for task in snapshot.rows.values():
        if task.is_over and not snapshot.is_under_way(task):
            yield task


def _scheduled(snapshot: Snapshot) -> Iterator[ScheduledEvent]:
    return (
        event for event in snapshot.events.values() if event.event_status is EventStatus.SCHEDULED
    )


def _started(snapshot: Snapshot) -> Iterator[ScheduledEvent]:
    return (
        event for event in snapshot.events.values() if event.event_status is EventStatus.STARTED
    )
