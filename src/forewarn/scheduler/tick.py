"""One turn of the loop, inside one transaction: look, decide, and record what was decided."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final

from forewarn.domain.actions import Decisions, ReserveTask, StartEvent, StartReason, TakeStep
from forewarn.domain.aftermath import apply_actions, without_ended
from forewarn.domain.decisions import decide, finished_tasks
from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_work import HostTask, Undertaking, key_of
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome
from forewarn.domain.moves import follow_moves
from forewarn.domain.names import HostName, OperationId, VmName
from forewarn.domain.scenario import (
    Announcement,
    ClearStep,
    FaultStep,
    Intervention,
    hurry,
    late_events,
)
from forewarn.domain.schedule import Occurrence, OccurrenceOutcome, PassOccurrence, StartOccurrence
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import IN_DOUBT, Task, TaskKey, TaskState, lose
from forewarn.operations.context import Context
from forewarn.operations.faults import record_fault_clear, record_fault_set
from forewarn.operations.placements import record_moves, say_move
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.operations.restoring import RESTORED_AT
from forewarn.operations.schedules import meet_occurrences
from forewarn.operations.snapshots import look
from forewarn.operations.tasks import find_ownership
from forewarn.operations.telling import Tidings, tell_ending, tell_news
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.runner import Assigner
from forewarn.ports.store import Transaction
from forewarn.protocol.vocabulary import EventId
from forewarn.wording.durations import format_duration

_LATE: Final = timedelta(seconds=1)
"""Less than that is how long a busy server takes to notice that NotBefore is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was seen, what was due, and what is left to be seen now that it is recorded.

    *finished* are the Maintenances that are over now.
    """

    before: Snapshot
    decisions: Decisions
    after: Snapshot
    finished: tuple[Maintenance, ...]

    @property
    def endings(self) -> tuple[MaintenanceOutcome, ...]:
        """How the Maintenances ended that are over now."""
        return tuple(each.outcome for each in self.finished if each.outcome is not None)

    @property
    def fault_steps(self) -> Iterator[tuple[VmName, FaultStep | ClearStep]]:
        """Which virtual machines the server misbehaves towards from now on, or no longer."""
        return _fault_steps(self.before, self.decisions)

    @property
    def met(self) -> Iterator[tuple[PassOccurrence | StartOccurrence, Occurrence]]:
        """What became of the occurrences that were due."""
        for action in self.decisions.occurrences:
            yield action, self.after.schedules[action.name].occurrences[-1]

    @property
    def outcomes(self) -> tuple[OccurrenceOutcome, ...]:
        """The outcomes of these, without dates that were skipped as planned."""
        return tuple(
            met.outcome
            for action, met in self.met
            if not (isinstance(action, PassOccurrence) and action.is_planned)
        )


def decide_and_record(
    tx: Transaction,
    context: Context,
    answers: Mapping[Question, Answer],
    assigner: Assigner,
    *,
    epoch: int,
) -> Turn:
    """Decide on what is committed now, and write the decisions down under the lease *epoch*."""
    tx.check_epoch(epoch)
    before = look(tx, context, answers)
    decisions = decide(before, context.now)
    met = meet_occurrences(tx, context, before, decisions.occurrences)
    now, event_ids = context.now, (context.new_id() for _ in count())
    acted = apply_actions(met, decisions.actions, now=now, event_ids=event_ids)
    after = follow_moves(acted, decisions.moves, now=now, event_ids=event_ids)
    if decisions.moves:
        causes = {move.vm: move.event_id for move in decisions.moves}
        record_moves(tx, context, before.topology, after.topology, causes)
    record_events(tx, context, _deeds(before, after, decisions))
    finished = tuple(each for each in after.maintenances.values() if each.finished_at is not None)
    for maintenance in finished:
        # Told first: once it is finished, what people knew of it is not looked up any more.
        tell_ending(tx, context, after, maintenance)
        tx.put_maintenance(maintenance)
        outcome = maintenance.outcome or ""
        record_audit(tx, context, "maintenance finish", maintenance.maintenance_id, detail=outcome)
    for operation_id, operation in after.operations.items():
        if operation != before.operations.get(operation_id):
            tx.put_operation(operation)
    reserve = partial(_reserve, snapshot=after, context=context, assigner=assigner, epoch=epoch)
    _record_scenarios(tx, context, before, after, decisions)
    _record_faults(tx, context, _fault_steps(before, decisions))
    return Turn(
        before=before,
        decisions=decisions,
        after=without_ended(_record_tasks(tx, context, before, after, decisions, reserve)),
        finished=finished,
    )


def look_and_tell(
    tx: Transaction, context: Context, answers: Mapping[Question, Answer], *, epoch: int
) -> tuple[Tidings, ...]:
    """Write messages about Maintenances, from what is committed now, under the lease *epoch*."""
    tx.check_epoch(epoch)
    return tell_news(tx, context, look(tx, context, answers))


def _record_tasks(
    tx: Transaction,
    context: Context,
    before: Snapshot,
    after: Snapshot,
    decisions: Decisions,
    reserve: Callable[[Undertaking], Task],
) -> Snapshot:
    """Write down the tasks that have changed or are reserved; return what is left to be seen."""
    rows: dict[TaskKey, Task] = dict(after.rows)
    for move in decisions.moves:
        key = key_of(move.about)
        rows[key] = replace(rows[key], said=replace(rows[key].said, moved_to=None))
    for action in decisions.actions:
        if isinstance(action, ReserveTask):
            task = _doubt(tx, context, reserve(action.about), after)
            rows[task.key] = task
    closed = {task.key for task in finished_tasks(replace(after, rows=rows))}
    for key, task in rows.items():
        if key in closed:
            tx.put_task(replace(task, closed_at=context.at))
        elif task is not before.rows.get(key):
            tx.put_task(task)
    left = {key: task for key, task in rows.items() if key not in closed and task.closed_at is None}
    # As the next look sees it, which asks for owners only where there are tasks.
    known = (after.ownership or find_ownership(tx, context)) if left else None
    return replace(after, ownership=known).with_rows(left)


def _doubt(tx: Transaction, context: Context, task: Task, snapshot: Snapshot) -> Task:
    """Return *task*, unknown if it may have begun before the database was restored."""
    if tx.setting(RESTORED_AT) is None:
        return task
    made_at = (
        snapshot.events[EventId(task.subject)].created_at
        if task.is_impact
        else snapshot.operations[OperationId(task.subject)].created_at
    )
    in_doubt = find_ownership(tx, context).is_in_doubt(task, made_at)
    return lose(task, IN_DOUBT, is_final=False) if in_doubt else task


def _reserve(
    about: Undertaking, *, snapshot: Snapshot, context: Context, assigner: Assigner, epoch: int
) -> Task:
    """Return the new task for what is *about* to begin, for the runner that it is for."""
    topology = snapshot.topology
    if isinstance(about, HostTask):
        assignment = assigner.assign_host_task(about, topology, context.now)
        subject, name, vm = str(about.operation_id), about.name, about.vm
        host: HostName | None = about.host
    else:
        (subject, vm), event = about, snapshot.events[about[0]]
        assignment, name = assigner.assign_impact(event, vm, topology, context.now), str(vm)
        # An earlier event can have moved it away from the host that this one is about.
        known = topology.virtual_machines.get(vm)
        host = (known.host if known else None) or event.host
    is_begun = assignment.said.status is ImpactStatus.RUNNING
    is_over = assignment.said.is_over
    return Task(
        subject=subject,
        name=name,
        vm=vm,
        host=host,
        runner=assignment.runner,
        state=_STATES[is_begun, is_over],
        node=assignment.node or context.rules.node,
        epoch=epoch,
        said=assignment.said,
        reserved_at=context.at,
        begun_at=context.at if is_begun else None,
        ended_at=context.at if is_over else None,
        details=assignment.details,
    )


_STATES: Final = {
    (False, False): TaskState.RESERVED,
    (True, False): TaskState.BEGUN,
    (False, True): TaskState.WITHDRAWN,
}
"""The state of a new task, by whether it runs at once, and whether it cannot be done at all."""


def _move_deeds(before: Snapshot, after: Snapshot, decisions: Decisions) -> Iterator[Deed]:
    for move in decisions.moves:
        if said := say_move(before.topology, after.topology, move.vm):
            # As it was before: what else becomes of it in this turn has a line of its own.
            yield Deed(event=before.events[move.event_id], what=Happening.MOVED, detail=said)


def _deeds(before: Snapshot, after: Snapshot, decisions: Decisions) -> Iterator[Deed]:
    yield from _move_deeds(before, after, decisions)
    reasons = {
        action.event_id: _say_why(after.events[action.event_id], action.reason)
        for action in decisions.actions
        if isinstance(action, StartEvent)
    }
    for event in after.events.values():
        known = before.events.get(event.event_id)
        if known is not None and known.event_status is event.event_status:
            if event.overdue_at != known.overdue_at:
                yield Deed(event=event, what=Happening.OVERDUE)
            elif event != known:  # the other thing that changes without the status
                yield Deed(event=event, what=Happening.APPROVED, detail=event.approvals[-1].name)
        else:
            detail = reasons.get(event.event_id, "")
            if known is None and decisions.moves:  # nothing else is new with these
                detail = f"came to {event.host}"
            yield Deed(event=event, what=Happening(event.event_status.lower()), detail=detail)


def _say_why(event: ScheduledEvent, reason: StartReason) -> str:
    """Return why *event* has started, or how late it is if something held it at NotBefore."""
    late = (event.started_at or event.not_before) - event.not_before
    if reason is StartReason.NOT_BEFORE_REACHED and late >= _LATE:
        return f"{format_duration(late)} after NotBefore"
    return reason.value


def _record_scenarios(
    tx: Transaction, context: Context, before: Snapshot, after: Snapshot, decisions: Decisions
) -> None:
    for action in decisions.actions:
        if isinstance(action, TakeStep):
            run = before.scenario_runs[action.run_id]
            for event_id in late_events(run, action.step, before.events):
                detail = f"step {run.steps_done + 1} of scenario {run.name} was too late"
                entry = LedgerEntry(
                    event_id=event_id,
                    at=context.now,
                    what=Happening.STEP_SKIPPED,
                    who=context.who,
                    detail=detail,
                )
                tx.append_ledger(entry)
    for run_id, run in after.scenario_runs.items():
        if run != before.scenario_runs[run_id]:
            tx.put_scenario_run(run)
            if run.finished_at is not None:
                record_audit(tx, context, "scenario finish", run_id)


def _record_faults(
    tx: Transaction, context: Context, steps: Iterable[tuple[VmName, FaultStep | ClearStep]]
) -> None:
    for vm, step in steps:
        if isinstance(step, FaultStep):
            record_fault_set(tx, context, vm, step.fault)
        else:
            record_fault_clear(tx, context, vm, step.kind)


def _fault_steps(
    before: Snapshot, decisions: Decisions
) -> Iterator[tuple[VmName, FaultStep | ClearStep]]:
    for action in decisions.actions:
        if not isinstance(action, TakeStep) or isinstance(action.step, Announcement | Intervention):
            continue
        run, step = before.scenario_runs[action.run_id], action.step
        if isinstance(step, FaultStep):
            step = replace(step, fault=hurry(step.fault, run.speed))
        # Some may have left the fleet since the run began.
        yield from ((vm, step) for vm in run.resources if vm in before.topology.virtual_machines)
