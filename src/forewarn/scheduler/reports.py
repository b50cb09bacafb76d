"""The log lines about Maintenances, steps, impacts, host work and gates, one for each change."""

from collections.abc import Iterable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from forewarn.domain.actions import ScheduleStep
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_operation import task_called
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome
from forewarn.domain.names import MaintenanceId, OperationId
from forewarn.domain.notification import Phase
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import Task, TaskKey
from forewarn.operations.context import Context
from forewarn.operations.telling import Tidings, find_doer
from forewarn.ports.store import Store
from forewarn.scheduler.tick import Turn

_BAD: Final = frozenset({ImpactStatus.FAILED, ImpactStatus.UNKNOWN})
_STOPS: Final = frozenset({Phase.PAUSED, Phase.HELD, Phase.STUCK, Phase.RESUMED})
"""What else there is to tell has lines of its own, about events, hosts and gates."""


class MaintenanceLog:
    """Follows Maintenances. Those it finds at first have been logged by an earlier leader."""

    def __init__(self, store: Store, reports: FilteringBoundLogger) -> None:
        self._store = store
        self._reports = reports
        self._aborted: dict[MaintenanceId, bool] | None = None

    def follow(self, seen: Snapshot, context: Context) -> None:
        """Log what was started and what was aborted since the last look."""
        before = self._aborted
        self._aborted = {key: each.is_aborted for key, each in seen.maintenances.items()}
        if before is None or before == self._aborted:
            return
        for key, maintenance in seen.maintenances.items():
            if key not in before:
                self._report(maintenance, Phase.STARTED, context)
            elif maintenance.is_aborted and not before[key]:
                self._report(maintenance, Phase.ABORTED, context)

    def report_stops(self, tidings: Iterable[Tidings], context: Context) -> None:
        """Log which Maintenances were paused, are held or stuck, or continue."""
        for maintenance, phase in tidings:
            if phase in _STOPS:
                self._report(maintenance, phase, context)

    def report_endings(self, finished: Iterable[Maintenance], context: Context) -> None:
        """Log what is over, and with which outcome."""
        for maintenance in finished:
            self._report(maintenance, Phase.FINISHED, context)

    def _report(self, maintenance: Maintenance, phase: Phase, context: Context) -> None:
        outcome = maintenance.outcome
        is_stopped = phase in {Phase.HELD, Phase.STUCK}
        is_bad = is_stopped or outcome is MaintenanceOutcome.INCOMPLETE
        (self._reports.warning if is_bad else self._reports.info)(
            "maintenance_changed",
            what=phase.value,
            maintenance_id=maintenance.maintenance_id,
            event_type=maintenance.event_type.value,
            outcome=outcome and outcome.value,
            who=self._store.read(lambda reading: find_doer(reading, context, maintenance, phase)),
            at=context.now.isoformat(),
        )


def report_steps(log: FilteringBoundLogger, turn: Turn) -> None:
    """Log each step that *turn* has announced."""
    new = [event for key, event in turn.after.events.items() if key not in turn.before.events]
    for action in turn.decisions.actions:
        if isinstance(action, ScheduleStep):
            step = action.step
            # In one turn a scope has one step of a Maintenance at most.
            events = [
                event
                for event in new
                if event.maintenance_id == action.maintenance_id
                and event.scope_id in step.scope_ids
            ]
            log.info(
                "step_announced",
                maintenance_id=action.maintenance_id,
                host=step.host,
                scope_ids=sorted(step.scope_ids),
                event_ids=[event.event_id for event in events],
            )


class TaskReports:
    """Follows tasks. Those it finds at first have been logged by an earlier leader."""

    def __init__(self, reports: FilteringBoundLogger) -> None:
        self._reports = reports
        self._known: Mapping[TaskKey, ImpactStatus] | None = None

    def follow(self, seen: Snapshot) -> None:
        """Log each impact and each task on a host whose status has changed since the last look."""
        before = self._known
        self._known = {key: row.said.status for key, row in seen.rows.items()}
        if before is None:
            return
        for key, row in seen.rows.items():
            if not row.is_impact and OperationId(row.subject) not in seen.operations:
                continue  # it is over
            if row.said.status is not before.get(key, ImpactStatus.NOT_BEGUN):
                self._report(row, seen)

    def _report(self, row: Task, seen: Snapshot) -> None:
        said = row.said
        tell = self._reports.warning if said.status in _BAD else self._reports.info
        change = "impact_changed"
        about: dict[str, object] = {"event_id": row.subject, "vm": row.vm}
        if not row.is_impact:
            change, about = "host_task_changed", _about_host_task(row, seen)
        tell(change, **about, node=row.node, status=said.status.value, reason=said.reason)


def _about_host_task(row: Task, seen: Snapshot) -> dict[str, object]:
    task = task_called(row.name, seen.operations[OperationId(row.subject)])
    return {
        "maintenance_id": task.maintenance_id,
        "host": task.host,
        "task": task.kind.value,
        "vm": task.vm,
        "attempt": task.attempt,
    }


def report_answer(
    log: FilteringBoundLogger, question: Question, before: GateStatus | None, answer: Answer
) -> None:
    """Log what a gate says, unless it said the same *before*."""
    if answer.status is not before:
        log.info(
            "gate_changed",
            gate=question.gate,
            maintenance_id=question.maintenance_id,
            scope_ids=list(question.scope_ids),
            status=answer.status.value,
            output=answer.output,
        )
