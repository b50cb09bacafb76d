"""The log lines about steps, impacts, work on hosts and gates, one for each change."""

from typing import Final

from structlog.typing import FilteringBoundLogger

from forewarn.domain.actions import ScheduleStep
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.scheduler.tick import Turn

_BAD: Final = frozenset({ImpactStatus.FAILED, ImpactStatus.UNKNOWN})


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


def report_impact(
    log: FilteringBoundLogger, change: str, known: Impact | None, said: Impact, **about: object
) -> None:
    """Log what is said of work *about* something, unless the same was said before and *known*."""
    before = ImpactStatus.NOT_BEGUN if known is None else known.status
    if said.status is not before:
        tell = log.warning if said.status in _BAD else log.info
        tell(change, **about, status=said.status.value, reason=said.reason)


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
