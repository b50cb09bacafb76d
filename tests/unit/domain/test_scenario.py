from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.actions import Decisions, FinishScenario, StartEvent, TakeStep
from forewarn.domain.aftermath import apply_actions
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.errors import ScenarioOverError
from forewarn.domain.event import Outcome, ScheduledEvent, Trigger, cancel, start
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import ScenarioRunId, VmName
from forewarn.domain.scenario import (
    INTERVENTIONS,
    USUAL_IMPACT,
    Announcement,
    ClearStep,
    FaultStep,
    Intervention,
    ScenarioRun,
    ScenarioRunStatus,
    ScenarioStep,
    hurry,
    late_events,
    likely_impact,
    simulated_impact,
    stop,
    take_step,
)
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

MINUTE = timedelta(minutes=1)
FREEZE = Announcement(
    at=MINUTE,
    label="pause",
    event_type=EventType.FREEZE,
    event_source=EventSource.USER,
    description="Kernel",
    duration_in_seconds=9,
    notice=15 * MINUTE,
    impact=5 * MINUTE,
)
SET = FaultStep(at=2 * MINUTE, fault=Fault(kind=FaultKind.VANISH, times=2))
CLEAR = ClearStep(at=2 * MINUTE, kind=None)
FAILURE = replace(FREEZE, label="failure", event_type=EventType.REBOOT, notice=None)


def intervene(trigger: Trigger) -> Intervention:
    return Intervention(at=8 * MINUTE, label="pause", trigger=trigger)


@pytest.fixture
def event_ids() -> Iterator[EventId]:
    return (EventId(f"N{number}") for number in range(100))


@pytest.fixture
def run(now: datetime) -> ScenarioRun:
    """Freeze of web-0, web-1 and solo a minute from now, at single speed."""
    return ScenarioRun(
        run_id=ScenarioRunId("r1"),
        name="night",
        resources=(VmName("web-0"), VmName("web-1"), VmName("solo")),
        began_at=now,
        speed=1,
        steps=(FREEZE, intervene(Trigger.CANCEL)),
    )


def look(fleet: Topology, run: ScenarioRun, *events: ScheduledEvent) -> Snapshot:
    return Snapshot(
        topology=fleet,
        events={event.event_id: event for event in events},
        scenario_runs={run.run_id: run},
    )


def announce(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> tuple[ScenarioRun, tuple[ScheduledEvent, ...]]:
    return take_step(run, run.steps[0], topology=fleet, events={}, now=now, event_ids=event_ids)


def test_every_type_has_a_usual_impact() -> None:
    assert USUAL_IMPACT.keys() == set(EventType)


def test_announcement_makes_an_event_for_each_scope_and_update_domain(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    after, made = announce(fleet, run, now, event_ids)

    assert [event.resources for event in made] == [("web-0",), ("web-1",), ("solo",)]
    assert (after.steps_done, after.events) == (1, {"pause": ("N0", "N1", "N2")})
    assert after.event_ids == ("N0", "N1", "N2")
    (first, *_) = made
    assert (first.event_source, first.description) == (EventSource.USER, "Kernel")
    assert (first.duration_in_seconds, first.simulated_duration) == (9, 5 * MINUTE)
    assert (first.event_status, first.not_before) == (EventStatus.SCHEDULED, now + 15 * MINUTE)


def test_speed_divides_notice_and_impact_and_brings_steps_nearer(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    fast = replace(run, speed=60)

    _, (event, *_) = announce(fleet, fast, now, event_ids)

    assert event.not_before == now + timedelta(seconds=15)
    assert event.simulated_duration == timedelta(seconds=5)
    assert fast.next_step_at == now + timedelta(seconds=1)


def test_announcement_without_notice_is_started(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    _, made = announce(fleet, replace(run, steps=(FAILURE,)), now, event_ids)

    assert {(event.event_status, event.is_announced) for event in made} == {
        (EventStatus.STARTED, False)
    }


def test_machine_that_has_left_the_fleet_is_left_out(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    gone = replace(run, resources=(VmName("gone"), VmName("solo")))

    _, made = announce(fleet, gone, now, event_ids)

    assert [event.resources for event in made] == [("solo",)]


@pytest.mark.parametrize(
    ("trigger", "status", "word"),
    [
        (Trigger.APPROVE, EventStatus.SCHEDULED, None),
        (Trigger.CANCEL, EventStatus.CANCELED, None),
        (Trigger.COMPLETE, EventStatus.COMPLETED, Outcome.SUCCEEDED),
    ],
)
def test_intervention_changes_what_its_label_names(
    fleet: Topology,
    run: ScenarioRun,
    now: datetime,
    event_ids: Iterator[EventId],
    *,
    trigger: Trigger,
    status: EventStatus,
    word: Outcome | None,
) -> None:
    run, made = announce(fleet, run, now, event_ids)
    if trigger is Trigger.COMPLETE:
        made = tuple(start(event, now=now) for event in made)
    events = {event.event_id: event for event in made}

    after, changed = take_step(
        run, intervene(trigger), topology=fleet, events=events, now=now, event_ids=event_ids
    )

    assert after == replace(run, steps_done=2)
    assert [event.event_id for event in changed] == list(events)
    assert {(event.event_status, event.outcome) for event in changed} == {(status, word)}
    spoken = {event.reason for event in changed} | {
        approval.name for event in changed for approval in event.approvals
    }
    assert spoken - {""} == {"scenario night"}


def test_every_intervention_is_tried_above() -> None:
    assert set(INTERVENTIONS) == {Trigger.APPROVE, Trigger.CANCEL, Trigger.COMPLETE}


def test_intervention_leaves_alone_what_it_comes_too_late_for(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    run, (first, second, _) = announce(fleet, run, now, event_ids)
    # The third has ended, and is in no snapshot any more.
    events = {first.event_id: start(first, now=now), second.event_id: second}
    step = intervene(Trigger.CANCEL)

    after, changed = take_step(
        run, step, topology=fleet, events=events, now=now, event_ids=event_ids
    )

    assert late_events(run, step, events) == ("N0", "N2")
    assert changed == (cancel(second, now=now, reason="scenario night"),)
    assert after.steps_done == 2


@pytest.mark.parametrize("step", [FREEZE, SET, CLEAR])
def test_what_changes_no_event_is_never_late(run: ScenarioRun, step: ScenarioStep) -> None:
    assert late_events(run, step, {}) == ()


@pytest.mark.parametrize("step", [SET, CLEAR])
def test_fault_is_a_step_that_makes_and_changes_no_event(
    fleet: Topology,
    run: ScenarioRun,
    now: datetime,
    event_ids: Iterator[EventId],
    step: ScenarioStep,
) -> None:
    run, made = announce(fleet, run, now, event_ids)
    events = {event.event_id: event for event in made}

    after, changed = take_step(
        run, step, topology=fleet, events=events, now=now, event_ids=event_ids
    )

    assert (after, changed) == (replace(run, steps_done=2), ())


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (FaultKind.SLOW, 60),
        (FaultKind.DRIP, 60),
        (FaultKind.PUBLISH_DELAY, 6),
        (FaultKind.NOT_BEFORE_SLIP, 6),
        (FaultKind.SHORT_NOTICE, 6),
    ],
)
def test_speed_divides_the_maintenance_time_of_faults(kind: FaultKind, seconds: float) -> None:
    assert hurry(Fault(kind=kind, seconds=60), 10).seconds == seconds


def test_speed_changes_nothing_about_a_fault_that_takes_no_time() -> None:
    assert hurry(SET.fault, 10) is SET.fault


@pytest.mark.parametrize(
    ("done", "stopped", "step", "minutes"),
    [
        (0, False, FREEZE, 1),
        (1, False, intervene(Trigger.CANCEL), 8),
        (2, False, None, None),
        (0, True, None, None),
    ],
)
def test_next_step_is_the_first_that_is_not_done(
    run: ScenarioRun, *, done: int, stopped: bool, step: ScenarioStep | None, minutes: int | None
) -> None:
    at = None if minutes is None else run.began_at + minutes * MINUTE
    run = replace(run, steps_done=done, is_stopped=stopped)

    assert (run.next_step, run.next_step_at) == (step, at)


@pytest.mark.parametrize(
    ("stopped", "finished", "status"),
    [
        (False, False, ScenarioRunStatus.RUNNING),
        (False, True, ScenarioRunStatus.FINISHED),
        (True, False, ScenarioRunStatus.STOPPED),
        (True, True, ScenarioRunStatus.STOPPED),
    ],
)
def test_status_of_a_run(
    run: ScenarioRun, now: datetime, *, stopped: bool, finished: bool, status: ScenarioRunStatus
) -> None:
    run = replace(run, is_stopped=stopped, finished_at=now if finished else None)

    assert run.status is status


def test_run_can_be_stopped_once_and_before_its_end(run: ScenarioRun, now: datetime) -> None:
    stopped = stop(run)

    assert stopped == replace(run, is_stopped=True)
    for over in (stopped, replace(run, finished_at=now)):
        with pytest.raises(ScenarioOverError, match="r1 has already ended"):
            stop(over)


def test_step_is_due_at_its_time(fleet: Topology, run: ScenarioRun, now: datetime) -> None:
    snapshot = look(fleet, run)
    due = now + MINUTE

    assert not decide(snapshot, due - timedelta(microseconds=1))
    assert decide(snapshot, due).actions == (TakeStep(run_id=run.run_id, step=FREEZE),)
    assert next_deadline(snapshot, now) == due


def test_cancel_at_not_before_comes_before_the_start(
    fleet: Topology, run: ScenarioRun, event: ScheduledEvent
) -> None:
    step = replace(intervene(Trigger.CANCEL), at=event.not_before - run.began_at)
    run = replace(run, steps=(FREEZE, step), steps_done=1, events={"pause": (event.event_id,)})
    snapshot, at = look(fleet, run, event), event.not_before

    decisions = decide(snapshot, at)
    after = apply_actions(snapshot, decisions.actions, now=at, event_ids=iter(()))

    assert decisions == Decisions(actions=(TakeStep(run_id=run.run_id, step=step),), effects=())
    assert after.events[event.event_id].event_status is EventStatus.CANCELED
    assert not any(isinstance(action, StartEvent) for action in decide(after, at).actions)


def test_run_is_finished_when_its_steps_are_done_and_its_events_have_ended(
    fleet: Topology, run: ScenarioRun, event: ScheduledEvent, now: datetime
) -> None:
    run = replace(run, steps_done=2, events={"pause": (event.event_id,)})
    ended = look(fleet, run, cancel(event, now=now))

    finish = decide(ended, now).actions
    after = apply_actions(ended, finish, now=now, event_ids=iter(()))

    assert not decide(look(fleet, run, event), now)
    assert decide(look(fleet, run), now).actions == finish
    assert finish == (FinishScenario(run_id=run.run_id),)
    assert after.scenario_runs[run.run_id].finished_at == now
    assert not decide(after, now)


def test_walk_through_a_scenario_needs_nothing_but_deadlines(
    fleet: Topology, run: ScenarioRun, now: datetime, event_ids: Iterator[EventId]
) -> None:
    snapshot, walked = look(fleet, run), list[tuple[timedelta, type]]()
    moment: datetime | None = now

    while moment is not None:
        now = moment
        while actions := decide(snapshot, now).actions:
            walked += [(now - run.began_at, type(action)) for action in actions]
            snapshot = apply_actions(snapshot, actions, now=now, event_ids=event_ids)
        moment = next_deadline(snapshot, now)

    assert walked == [(MINUTE, TakeStep), (8 * MINUTE, TakeStep), (8 * MINUTE, FinishScenario)]


def test_simulated_impact_takes_what_the_event_says_or_what_is_usual(
    event: ScheduledEvent,
) -> None:
    said = replace(event, simulated_duration=timedelta(seconds=7))

    assert simulated_impact(said, speed=60) == timedelta(seconds=7)
    assert simulated_impact(event, speed=60) == USUAL_IMPACT[event.event_type] / 60


@pytest.mark.parametrize(("announced", "is_simulated"), [(None, False), (90, False), (90, True)])
def test_likely_impact_is_the_simulated_or_the_announced_one(
    event: ScheduledEvent, announced: int | None, *, is_simulated: bool
) -> None:
    known = replace(event, duration_in_seconds=announced)

    lasts = likely_impact(known, is_simulated=is_simulated)

    told = None if announced is None else timedelta(seconds=announced)
    assert lasts == (USUAL_IMPACT[event.event_type] if is_simulated else told)
