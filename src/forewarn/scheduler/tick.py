"""One turn of the loop, inside one transaction: look, decide, and record what was decided."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Final

from forewarn.domain.actions import (
    BeginImpact,
    BeginTask,
    Decisions,
    StartEvent,
    StartReason,
    TakeStep,
)
from forewarn.domain.aftermath import apply_actions, without_ended
from forewarn.domain.decisions import decide
from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.host_work import HostTask
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.knowledge import Knowledge
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome
from forewarn.domain.moves import follow_moves
from forewarn.domain.names import VmName
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
from forewarn.operations.context import Context
from forewarn.operations.faults import record_fault_clear, record_fault_set
from forewarn.operations.placements import record_moves, say_move
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.operations.schedules import meet_occurrences
from forewarn.operations.snapshots import look
from forewarn.operations.telling import Tidings, tell_ending, tell_news
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.store import Transaction
from forewarn.wording.durations import format_duration

_NOT_BEGUN: Final = Impact(status=ImpactStatus.NOT_BEGUN)
_LATE: Final = timedelta(seconds=1)
"""Less than that is how long a busy server takes to notice that NotBefore is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was seen, what was due, and what is left to be seen now that it is recorded.

    *finished* are the Maintenances that are over now. What is *reserved* may be begun: nobody else
    will, and nobody has. What was said of those whose move was *followed* says so no more.
    """

    before: Snapshot
    decisions: Decisions
    after: Snapshot
    finished: tuple[Maintenance, ...]
    reserved: Knowledge
    followed: Knowledge

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


def decide_and_record(tx: Transaction, context: Context, known: Knowledge, *, epoch: int) -> Turn:
    """Decide on what is committed now, and write the decisions down under the lease *epoch*."""
    tx.check_epoch(epoch)
    before = look(tx, context, known)
    decisions = decide(before, context.now)
    reserved = _beginnings(before, decisions)
    tx.reserve(reserved, epoch=epoch)
    met = meet_occurrences(tx, context, before, decisions.occurrences)
    now, event_ids = context.now, (context.new_id() for _ in count())
    acted = apply_actions(met, decisions.actions, now=now, event_ids=event_ids)
    after = follow_moves(acted, decisions.moves, now=now, event_ids=event_ids)
    followed = _followed(after, decisions)
    if followed:
        tx.put_knowledge(followed, epoch=epoch)
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
    _record_scenarios(tx, context, before, after, decisions)
    _record_faults(tx, context, _fault_steps(before, decisions))
    return Turn(
        before=before,
        decisions=decisions,
        after=without_ended(after),
        finished=finished,
        reserved=reserved,
        followed=followed,
    )


def look_and_tell(
    tx: Transaction, context: Context, known: Knowledge, *, epoch: int
) -> tuple[Tidings, ...]:
    """Write messages about Maintenances, from what is committed now, under the lease *epoch*."""
    tx.check_epoch(epoch)
    return tell_news(tx, context, look(tx, context, known))


def _beginnings(before: Snapshot, decisions: Decisions) -> Knowledge:
    """Return what is about to begin, now or when what is ahead of it is over."""
    # What was Scheduled until this very transaction nobody can have begun: no executor need be
    # asked about it.
    impacts = [
        (action.event_id, vm)
        for action in decisions.actions
        if isinstance(action, StartEvent)
        for vm in before.events[action.event_id].resources
    ]
    effects = decisions.effects
    impacts += [(each.event_id, each.vm) for each in effects if isinstance(each, BeginImpact)]
    tasks = (each.task for each in effects if isinstance(each, BeginTask))
    return Knowledge(
        impacts=dict.fromkeys(impacts, _NOT_BEGUN), tasks=dict.fromkeys(tasks, _NOT_BEGUN)
    )


def _followed(after: Snapshot, decisions: Decisions) -> Knowledge:
    about = [move.about for move in decisions.moves]
    return Knowledge(
        impacts={each: after.impacts[each] for each in about if not isinstance(each, HostTask)},
        tasks={each: after.tasks[each] for each in about if isinstance(each, HostTask)},
    )


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
