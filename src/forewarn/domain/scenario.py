"""Scenarios: what happens to virtual machines by a timeline, and one run of it.

A timeline is in maintenance time, from the beginning of the run. The server carries it, so that it
goes on after a restart and under any clock: each step is a deadline like any other.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from forewarn.domain.errors import ScenarioOverError
from forewarn.domain.event import (
    TRANSITIONS,
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    Trigger,
    approve,
    cancel,
    complete,
    schedule,
    start_unannounced,
)
from forewarn.domain.fault import FAULTS, Fault, FaultKind
from forewarn.domain.names import ScenarioRunId, VmName
from forewarn.domain.topology import Topology, split_by_update_domain
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

USUAL_IMPACT: Final[Mapping[EventType, timedelta]] = {
    EventType.FREEZE: timedelta(minutes=5),
    EventType.REBOOT: timedelta(minutes=10),
    EventType.REDEPLOY: timedelta(minutes=10),
    EventType.PREEMPT: timedelta(seconds=30),
    EventType.TERMINATE: timedelta(minutes=1),
}
"""How long a simulated impact takes if nothing else is said."""


def simulated_impact(event: ScheduledEvent, *, speed: float = 1) -> timedelta:
    """Return how long the impact of *event* takes where it is simulated."""
    if event.simulated_duration is not None:
        return event.simulated_duration
    return USUAL_IMPACT[event.event_type] / speed


def likely_impact(
    event: ScheduledEvent, *, is_simulated: bool, speed: float = 1
) -> timedelta | None:
    """Return how long the impact of *event* takes in all likelihood, if anybody can tell."""
    if is_simulated:
        return simulated_impact(event, speed=speed)
    seconds = event.duration_in_seconds
    return None if seconds is None else timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Announce an event with *notice*; without, it begins at once.

    *impact* is how long it takes where it is simulated. Later steps know the event by *label*.
    """

    at: timedelta
    label: str
    event_type: EventType
    event_source: EventSource
    description: str
    duration_in_seconds: int | None
    notice: timedelta | None
    impact: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Change the course of what was announced under *label*, if it is not too late for that."""

    at: timedelta
    label: str
    trigger: Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep:
    """Misbehave towards every machine of the run from now on."""

    at: timedelta
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearStep:
    """Behave again towards every machine of the run: in one respect, or in all without a *kind*."""

    at: timedelta
    kind: FaultKind | None


ScenarioStep: TypeAlias = Announcement | Intervention | FaultStep | ClearStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A timeline. Steps are in the order of their time, and name only labels of earlier ones."""

    name: str
    description: str
    steps: tuple[ScenarioStep, ...]


class ScenarioRunStatus(StrEnum):
    """Where a run is, as an operator sees it."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRun:
    """A scenario that happens to *resources*, *speed* times as fast as it is written."""

    run_id: ScenarioRunId
    name: str
    resources: tuple[VmName, ...]
    began_at: datetime
    speed: float
    steps: tuple[ScenarioStep, ...]
    steps_done: int = 0
    events: Mapping[str, tuple[EventId, ...]] = field(default_factory=dict)
    is_stopped: bool = False
    finished_at: datetime | None = None

    @property
    def status(self) -> ScenarioRunStatus:
        if self.is_stopped:
            return ScenarioRunStatus.STOPPED
        is_over = self.finished_at is not None
        return ScenarioRunStatus.FINISHED if is_over else ScenarioRunStatus.RUNNING

    @property
    def event_ids(self) -> tuple[EventId, ...]:
        """Every event it has made, in that order."""
        return tuple(event_id for made in self.events.values() for event_id in made)

    @property
    def steps_remaining(self) -> int:
        return 0 if self.is_stopped else len(self.steps) - self.steps_done

    @property
    def next_step(self) -> ScenarioStep | None:
        return self.steps[self.steps_done] if self.steps_remaining else None

    @property
    def next_step_at(self) -> datetime | None:
        step = self.next_step
        return None if step is None else self.began_at + step.at / self.speed

    def has_ended(self, events: Mapping[EventId, ScheduledEvent]) -> bool:
        """Tell whether no step is left and none of its *events* is in flight."""
        known = (events[each] for each in self.event_ids if each in events)
        return self.next_step is None and not any(event.is_in_flight for event in known)


def stop(run: ScenarioRun) -> ScenarioRun:
    """Have no more steps done."""
    if run.is_stopped or run.finished_at is not None:
        raise ScenarioOverError(run.run_id)
    return replace(run, is_stopped=True)


def take_step(
    run: ScenarioRun,
    step: ScenarioStep,
    *,
    topology: Topology,
    events: Mapping[EventId, ScheduledEvent],
    now: datetime,
    event_ids: Iterator[EventId],
) -> tuple[ScenarioRun, tuple[ScheduledEvent, ...]]:
    """Return *run* after *step*, and the events that the step has made or changed."""
    taken = replace(run, steps_done=run.steps_done + 1)
    match step:
        case Announcement():
            made = tuple(_announce(run, step, topology, now, event_ids))
            known = {**run.events, step.label: tuple(event.event_id for event in made)}
            return replace(taken, events=known), made
        case Intervention():
            late = late_events(run, step, events)
            in_time = (each for each in run.events[step.label] if each not in late)
            change = INTERVENTIONS[step.trigger]
            return taken, tuple(
                change(events[each], f"scenario {run.name}", now) for each in in_time
            )
        case FaultStep() | ClearStep():
            return taken, ()
        case _:
            assert_never(step)


def late_events(
    run: ScenarioRun, step: ScenarioStep, events: Mapping[EventId, ScheduledEvent]
) -> tuple[EventId, ...]:
    """Return those that *step* comes too late for; an event that is not in *events* has ended."""
    if not isinstance(step, Intervention):
        return ()
    return tuple(
        event_id
        for event_id in run.events[step.label]
        if (event := events.get(event_id)) is None
        or (event.event_status, step.trigger) not in TRANSITIONS
    )


def hurry(fault: Fault, speed: float) -> Fault:
    """Return *fault* with as much less maintenance time as a run of that *speed* takes."""
    if fault.seconds is None or not FAULTS[fault.kind].of_maintenance_time:
        return fault
    return replace(fault, seconds=fault.seconds / speed)


def _announce(
    run: ScenarioRun,
    step: Announcement,
    topology: Topology,
    now: datetime,
    event_ids: Iterator[EventId],
) -> Iterator[ScheduledEvent]:
    # Some may have left the fleet since the run began.
    names = [vm for vm in run.resources if vm in topology.virtual_machines]
    for share in split_by_update_domain(topology, names):
        draft = Draft(
            event_type=step.event_type,
            event_source=step.event_source,
            share=share,
            description=step.description,
            duration_in_seconds=step.duration_in_seconds,
            simulated_duration=step.impact / run.speed,
        )
        if step.notice is None:
            yield start_unannounced(draft, event_id=next(event_ids), now=now)
        else:
            notice = step.notice / run.speed
            yield schedule(draft, event_id=next(event_ids), now=now, notice=notice)


INTERVENTIONS: Final[
    Mapping[Trigger, Callable[[ScheduledEvent, str, datetime], ScheduledEvent]]
] = {
    Trigger.APPROVE: lambda event, why, now: approve(
        event, Approval(approver=Approver.OPERATOR, name=why, approved_at=now)
    ),
    Trigger.CANCEL: lambda event, why, now: cancel(event, reason=why, now=now),
    Trigger.COMPLETE: lambda event, why, now: complete(
        event, outcome=Outcome.SUCCEEDED, reason=why, now=now
    ),
}
"""What a step can do to an event that an earlier one has made."""
