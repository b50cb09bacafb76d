"""What is due. `decide` looks at a snapshot and says so; `record` writes it into the snapshot.

Nothing here acts. The scheduler's loop takes a snapshot from the store, decides, records what was
decided in one transaction, and only then has the effects performed. So a crash between any two of
these loses nothing and repeats nothing: the next leader takes a new snapshot and decides again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias, assert_never

from forewarn.domain.event import Outcome, ScheduledEvent, cancel, complete, schedule, start
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceStatus,
    Step,
    busy_scopes,
    draft_events,
    next_steps,
    status,
)
from forewarn.domain.names import MaintenanceId, ScenarioRunId, VmName
from forewarn.domain.notice import minimum_notice
from forewarn.domain.overdue import NoteOverdue, overdue_moments
from forewarn.domain.policy import is_approved
from forewarn.domain.scenario import ScenarioRun, ScenarioStep, take_step
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a decision depends on.

    *events* are those in flight and every event of *maintenances*. These and *scenario_runs* are
    those not finished. *impacts* is what the executors last said; where nothing is known since the
    lease began, nothing is there. Events are overdue *overdue_after* their time, if ever.
    """

    topology: Topology
    events: Mapping[EventId, ScheduledEvent] = field(default_factory=dict)
    maintenances: Mapping[MaintenanceId, Maintenance] = field(default_factory=dict)
    scenario_runs: Mapping[ScenarioRunId, ScenarioRun] = field(default_factory=dict)
    impacts: Mapping[tuple[EventId, VmName], Impact] = field(default_factory=dict)
    overdue_after: timedelta | None = None


class StartReason(StrEnum):
    """Why an event may start."""

    APPROVED = "approved"
    NOT_BEFORE_REACHED = "NotBefore reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEvent:
    """Record the event as Started."""

    event_id: EventId
    reason: StartReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteEvent:
    """Record the event as Completed."""

    event_id: EventId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEvent:
    """Record the event as Canceled."""

    event_id: EventId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStep:
    """Announce the events of one step."""

    maintenance_id: MaintenanceId
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishMaintenance:
    """Record that there is nothing left to do."""

    maintenance_id: MaintenanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeStep:
    """Do the next step of a scenario."""

    run_id: ScenarioRunId
    step: ScenarioStep


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishScenario:
    """Record that all steps are done and all events have ended."""

    run_id: ScenarioRunId


@dataclass(frozen=True, slots=True, kw_only=True)
class InquireImpact:
    """Ask the executor how far it is."""

    event_id: EventId
    vm: VmName


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginImpact:
    """Have the executor do it."""

    event_id: EventId
    vm: VmName


Action: TypeAlias = (
    StartEvent
    | CompleteEvent
    | CancelEvent
    | NoteOverdue
    | ScheduleStep
    | FinishMaintenance
    | TakeStep
    | FinishScenario
)
"""Something to record."""

Effect: TypeAlias = InquireImpact | BeginImpact
"""Something to perform, after everything decided with it is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What is due now: first record the actions, then perform the effects."""

    actions: tuple[Action, ...]
    effects: tuple[Effect, ...]

    def __bool__(self) -> bool:
        return bool(self.actions or self.effects)


def decide(snapshot: Snapshot, now: datetime) -> Decisions:
    """Say what is due at *now*."""
    scenario_steps = tuple(_scenario_steps(snapshot, now))
    if scenario_steps:
        # They come first and alone: what else is due depends on what they change.
        return Decisions(actions=scenario_steps, effects=())
    return Decisions(
        actions=(
            *_cancellations(snapshot),
            *_starts(snapshot, now),
            *_completions(snapshot),
            *_delays(snapshot, now),
            *_steps(snapshot),
            *_finishes(snapshot),
            *_scenario_finishes(snapshot),
        ),
        effects=tuple(_effects(snapshot, now)),
    )


def next_deadline(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when something may become due by itself, if nothing changes before."""
    moments = [event.not_before for event in _scheduled(snapshot)]
    moments += [
        impact.ask_again_at
        for event in _started(snapshot)
        for vm in event.resources
        if (impact := snapshot.impacts.get((event.event_id, vm))) and impact.ask_again_at
    ]
    moments += overdue_moments(_started(snapshot), snapshot.overdue_after).values()
    moments += [run.next_step_at for run in snapshot.scenario_runs.values() if run.next_step_at]
    return min((moment for moment in moments if moment > now), default=None)


def record(
    snapshot: Snapshot,
    actions: Iterable[Action],
    *,
    now: datetime,
    event_ids: Iterator[EventId],
    speed: float = 1,
) -> Snapshot:
    """Return *snapshot* after *actions*, new events taking their ids from *event_ids*."""
    events = dict(snapshot.events)
    maintenances = dict(snapshot.maintenances)
    runs = dict(snapshot.scenario_runs)
    for action in actions:
        match action:
            case StartEvent() | CompleteEvent() | CancelEvent() | NoteOverdue():
                events[action.event_id] = _change(events[action.event_id], action, now)
            case ScheduleStep():
                maintenance = maintenances[action.maintenance_id]
                made = _announce(snapshot, maintenance, action.step, now, event_ids, speed)
                events |= {event.event_id: event for event in made}
            case FinishMaintenance():
                maintenances[action.maintenance_id] = replace(
                    maintenances[action.maintenance_id], finished_at=now
                )
            case TakeStep():
                runs[action.run_id], changed = take_step(
                    runs[action.run_id],
                    action.step,
                    topology=snapshot.topology,
                    events=events,
                    now=now,
                    event_ids=event_ids,
                )
                events |= {event.event_id: event for event in changed}
            case FinishScenario():
                runs[action.run_id] = replace(runs[action.run_id], finished_at=now)
            case _:
                assert_never(action)
    return replace(snapshot, events=events, maintenances=maintenances, scenario_runs=runs)


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
    return replace(snapshot, events=events, maintenances=maintenances, scenario_runs=runs)


def _cancellations(snapshot: Snapshot) -> Iterator[CancelEvent]:
    for event in _scheduled(snapshot):
        if _is_of_aborted_maintenance(event, snapshot):
            yield CancelEvent(event_id=event.event_id, reason="the maintenance was aborted")


def _starts(snapshot: Snapshot, now: datetime) -> Iterator[StartEvent]:
    waiting = {
        event.event_id: _start_reason(event, snapshot, now)
        for event in _scheduled(snapshot)
        if not _is_of_aborted_maintenance(event, snapshot)
    }
    # The events of a host operation start together, when each of them may.
    held_operations = {
        snapshot.events[event_id].host_operation
        for event_id, reason in waiting.items()
        if reason is None
    } - {None}
    for event_id, reason in waiting.items():
        if reason and snapshot.events[event_id].host_operation not in held_operations:
            yield StartEvent(event_id=event_id, reason=reason)


def _completions(snapshot: Snapshot) -> Iterator[CompleteEvent]:
    for event in _started(snapshot):
        ended = {
            vm: impact
            for vm in event.resources
            if (impact := snapshot.impacts.get((event.event_id, vm)))
            and impact.status in {ImpactStatus.DONE, ImpactStatus.FAILED}
        }
        if len(ended) < len(event.resources):
            continue
        failures = [
            f"{vm}: {impact.reason or 'failed'}"
            for vm, impact in ended.items()
            if impact.status is ImpactStatus.FAILED
        ]
        yield CompleteEvent(
            event_id=event.event_id,
            outcome=Outcome.FAILED if failures else Outcome.SUCCEEDED,
            reason="; ".join(failures),
        )


def _delays(snapshot: Snapshot, now: datetime) -> Iterator[NoteOverdue]:
    ended = {action.event_id for action in _completions(snapshot)}
    lasting = (event for event in _started(snapshot) if event.event_id not in ended)
    for event_id, moment in overdue_moments(lasting, snapshot.overdue_after).items():
        if moment <= now:
            yield NoteOverdue(event_id=event_id)


def _steps(snapshot: Snapshot) -> Iterator[ScheduleStep]:
    events = snapshot.events.values()
    busy = busy_scopes(events)
    for maintenance in snapshot.maintenances.values():
        for step in next_steps(maintenance, snapshot.topology, events, busy):
            # The next Maintenance in this very decision has to see it.
            busy |= step.scope_ids
            yield ScheduleStep(maintenance_id=maintenance.maintenance_id, step=step)


def _finishes(snapshot: Snapshot) -> Iterator[FinishMaintenance]:
    for maintenance in snapshot.maintenances.values():
        if maintenance.finished_at is None and status(
            maintenance, snapshot.topology, snapshot.events.values()
        ) in {MaintenanceStatus.ABORTED, MaintenanceStatus.COMPLETED}:
            yield FinishMaintenance(maintenance_id=maintenance.maintenance_id)


def _scenario_steps(snapshot: Snapshot, now: datetime) -> Iterator[TakeStep]:
    for run in snapshot.scenario_runs.values():
        if run.next_step and run.next_step_at and run.next_step_at <= now:
            yield TakeStep(run_id=run.run_id, step=run.next_step)


def _scenario_finishes(snapshot: Snapshot) -> Iterator[FinishScenario]:
    for run in snapshot.scenario_runs.values():
        if run.finished_at is None and run.has_ended(snapshot.events):
            yield FinishScenario(run_id=run.run_id)


def _effects(snapshot: Snapshot, now: datetime) -> Iterator[Effect]:
    for event in _started(snapshot):
        for vm in event.resources:
            impact = snapshot.impacts.get((event.event_id, vm))
            if impact is None or impact.has_news(now):
                yield InquireImpact(event_id=event.event_id, vm=vm)
            elif impact.status is ImpactStatus.NOT_BEGUN:
                yield BeginImpact(event_id=event.event_id, vm=vm)


def _start_reason(event: ScheduledEvent, snapshot: Snapshot, now: datetime) -> StartReason | None:
    if is_approved(event, snapshot.topology.scopes[event.scope_id].policy):
        return StartReason.APPROVED
    if event.has_reached_not_before(now):
        return StartReason.NOT_BEFORE_REACHED
    return None


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


def _announce(
    snapshot: Snapshot,
    maintenance: Maintenance,
    step: Step,
    now: datetime,
    event_ids: Iterator[EventId],
    speed: float,
) -> Iterator[ScheduledEvent]:
    for draft in draft_events(maintenance, step):
        policy = snapshot.topology.scopes[draft.share.scope_id].policy
        notice = minimum_notice(
            draft.event_type, terminate_notice=policy.terminate_notice, speed=speed
        )
        yield schedule(draft, event_id=next(event_ids), now=now, notice=notice)


def _scheduled(snapshot: Snapshot) -> Iterator[ScheduledEvent]:
    return (
        event for event in snapshot.events.values() if event.event_status is EventStatus.SCHEDULED
    )


def _started(snapshot: Snapshot) -> Iterator[ScheduledEvent]:
    return (
        event for event in snapshot.events.values() if event.event_status is EventStatus.STARTED
    )


def _is_of_aborted_maintenance(event: ScheduledEvent, snapshot: Snapshot) -> bool:
    maintenance = snapshot.maintenances.get(event.maintenance_id) if event.maintenance_id else None
    return maintenance is not None and maintenance.is_aborted
