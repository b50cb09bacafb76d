"""Why an event is where it is: what holds it, and what else there is to know about it.

The reasons follow from the same facts that `decisions.decide` goes by. What *holds* is why the
event does not start, or does not end; an event in flight that nothing holds is about to go on.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Final, assert_never

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_facts import facts_of, operation_at_work
from forewarn.domain.host_operation import HostOperation, HostPhase, due_tasks, waiting_guests
from forewarn.domain.host_work import HostTask, HostTaskKind, key_of
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.openings import next_start
from forewarn.domain.policy import (
    ApprovalPolicy,
    Policy,
    is_approved,
    latest_not_before,
    missing_approvals,
)
from forewarn.domain.precedence import (
    due_starts,
    events_ahead,
    impacts_awaited,
    is_withdrawn,
    partners_of,
    rivals_of,
    start_reason,
)
from forewarn.domain.scenario import Intervention, ScenarioRun
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import Task, say_task
from forewarn.domain.why import OF_OTHERS, Reason, ReasonKind
from forewarn.protocol.vocabulary import EventId, EventStatus

_APPROVAL: Final = {
    ApprovalPolicy.ANY: ReasonKind.APPROVAL_OF_ANY,
    ApprovalPolicy.ALL: ReasonKind.APPROVAL_OF_ALL,
    ApprovalPolicy.LEADER: ReasonKind.APPROVAL_OF_LEADER,
}
_IMPACT: Final = {
    ImpactStatus.NOT_BEGUN: ReasonKind.NOT_BEGUN,
    ImpactStatus.RUNNING: ReasonKind.RUNNING,
    ImpactStatus.DONE: ReasonKind.IMPACT_DONE,
    ImpactStatus.FAILED: ReasonKind.IMPACT_FAILED,
    ImpactStatus.UNKNOWN: ReasonKind.UNKNOWN,
}
_TASKS: Final = {
    HostTaskKind.WORK: ReasonKind.HOST_WORK,
    HostTaskKind.RETURN: ReasonKind.HOST_RETURN,
}
_LATE: Final = OF_OTHERS | {
    ReasonKind.WINDOW,
    ReasonKind.OTHER_TASK,
    ReasonKind.OTHER_TASK_UNKNOWN,
}
"""What may hold an event even when its NotBefore is reached."""
_OUTCOME: Final = {Outcome.SUCCEEDED: ReasonKind.SUCCEEDED, Outcome.FAILED: ReasonKind.FAILED}


def explain(event: ScheduledEvent, snapshot: Snapshot, now: datetime) -> tuple[Reason, ...]:
    """Say why *event* is where it is at *now*; what holds it comes first."""
    starting = due_starts(snapshot, now)
    own = tuple(explain_itself(event, snapshot, now, starting))
    match event.event_status:
        case EventStatus.SCHEDULED:
            if not is_withdrawn(event, snapshot):
                own = (*own, *_together(event, snapshot, now, starting))
                own = (*own, *_deadlines(event, snapshot, now, held_by=own))
            otherwise = ReasonKind.ABOUT_TO_START
        case EventStatus.STARTED:
            operation = operation_at_work(event, snapshot)
            if operation is not None and operation.outcome is None:
                own = (*own, *explain_operation(operation, snapshot, now))
            own = tuple(sorted(own, key=lambda reason: not reason.holds))
            otherwise = ReasonKind.ABOUT_TO_COMPLETE
        case EventStatus.COMPLETED | EventStatus.CANCELED:
            return (_ending(event), *_origins(event, snapshot))
        case _:
            assert_never(event.event_status)
    if not any(reason.holds for reason in own):
        own = (*own, Reason(kind=otherwise))
    return (
        *own,
        *_awaiting(event, snapshot, starting),
        *_overlaps(event, snapshot),
        *_origins(event, snapshot),
    )


def explain_itself(
    event: ScheduledEvent, snapshot: Snapshot, now: datetime, starting: Collection[EventId]
) -> Iterator[Reason]:
    """Say what holds *event*, apart from its host operation, and since when it is overdue.

    *starting* is what `due_starts` says; whoever asks of many events looks that up once.
    """
    if event.event_status is EventStatus.STARTED:
        yield from _started(event, snapshot)
    if event.event_status is not EventStatus.SCHEDULED:
        return
    yield from _server_pause(snapshot)
    if is_withdrawn(event, snapshot):
        yield Reason(
            kind=ReasonKind.MAINTENANCE_ABORTED,
            event_ids=(event.event_id,),
            about=str(event.maintenance_id),
        )
        return
    if start_reason(event, snapshot, now) is None:
        policy = _policy(event, snapshot)
        yield Reason(
            kind=_APPROVAL[policy.approval],
            vms=missing_approvals(event, policy.approval),
            until=event.not_before,
        )
    for other in events_ahead(event, snapshot, starting):
        yield Reason(
            kind=ReasonKind.OTHER_EVENT,
            vms=_shared(event, other),
            event_ids=(other.event_id,),
            since=other.started_at,
        )
    yield from _lingering(event, snapshot)


def _lingering(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[Reason]:
    """Say which tasks still run on the virtual machines of *event*, of events that have ended."""
    tasks = {
        task.task_id: task for vm in event.resources for task in snapshot.lingering_on.get(vm, ())
    }
    for task in tasks.values():
        vms = tuple(vm for vm in event.resources if task in snapshot.lingering_on.get(vm, ()))
        yield _awaited_task(task, vms, snapshot)


def _awaited_task(task: Task, vms: tuple[VmName, ...], snapshot: Snapshot) -> Reason:
    is_unknown = snapshot.awaits_word(task)
    return Reason(
        kind=ReasonKind.OTHER_TASK_UNKNOWN if is_unknown else ReasonKind.OTHER_TASK,
        vms=vms,
        about=say_task(task),
        task_ids=(task.task_id,),
    )


def explain_window(
    events: Sequence[ScheduledEvent], snapshot: Snapshot, now: datetime
) -> Iterator[Reason]:
    """Say that the calendar is closed when *events* could start together, and until when."""
    if events[0].event_status is not EventStatus.SCHEDULED or is_withdrawn(events[0], snapshot):
        return
    ready = max(now if start_reason(each, snapshot, now) else each.not_before for each in events)
    opening = next_start(events[0], snapshot, ready)
    if opening != ready:
        yield Reason(kind=ReasonKind.WINDOW, until=opening)


def _server_pause(snapshot: Snapshot) -> Iterator[Reason]:
    if (pause := snapshot.server_pause) is not None:
        yield Reason(kind=ReasonKind.SERVER_PAUSED, since=pause.since, about=str(pause))


def _together(
    event: ScheduledEvent, snapshot: Snapshot, now: datetime, starting: Collection[EventId]
) -> Iterator[Reason]:
    """Say what *event* waits for together with the other events of its host operation."""
    partners = partners_of(event, snapshot)
    busy = [
        (other, _shared(partner, other))
        for partner in partners
        for other in events_ahead(partner, snapshot, starting)
    ]
    if busy:
        yield Reason(
            kind=ReasonKind.HOST_OPERATION_BUSY,
            vms=tuple(dict.fromkeys(vm for _, shared in busy for vm in shared)),
            event_ids=tuple(dict.fromkeys(other.event_id for other, _ in busy)),
            since=min((other.started_at for other, _ in busy if other.started_at), default=None),
            about=str(event.host),
        )
    waiting = [each for each in partners if start_reason(each, snapshot, now) is None]
    if waiting:
        missing = (missing_approvals(e, _policy(e, snapshot).approval) for e in waiting)
        yield Reason(
            kind=ReasonKind.HOST_OPERATION,
            vms=tuple(chain.from_iterable(missing)),
            event_ids=tuple(each.event_id for each in waiting),
            until=max(each.not_before for each in waiting),
            about=str(event.host),
        )
    yield from explain_window((event, *partners), snapshot, now)


def _awaiting(
    event: ScheduledEvent, snapshot: Snapshot, starting: Collection[EventId]
) -> Iterator[Reason]:
    """Say which other events on its virtual machines wait for it."""
    for other in rivals_of(event, snapshot):
        if other.event_status is EventStatus.SCHEDULED:
            waits = event in events_ahead(other, snapshot, starting)
            vms = _shared(event, other) if waits else ()
        else:
            awaited = impacts_awaited(other, snapshot)
            vms = tuple(vm for vm, ahead in awaited.items() if event in ahead)
        if vms:
            yield Reason(kind=ReasonKind.AWAITED, vms=vms, event_ids=(other.event_id,))


def _deadlines(
    event: ScheduledEvent, snapshot: Snapshot, now: datetime, *, held_by: Iterable[Reason]
) -> Iterator[Reason]:
    policy = _policy(event, snapshot)
    if event.has_reached_not_before(now) or is_approved(event, policy):
        return
    if _LATE.isdisjoint(reason.kind for reason in held_by):
        yield Reason(kind=ReasonKind.NOT_BEFORE, until=event.not_before)
    latest = latest_not_before(event, policy, speed=snapshot.speed)
    if latest > event.not_before:
        yield Reason(kind=ReasonKind.POSTPONABLE, until=latest)


def _started(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[Reason]:
    operation = operation_at_work(event, snapshot)
    # What an operator would have to carry out is done by the work on the host, where it has some.
    is_by_hand = operation is None
    # When the turn of the host is over, so is the event, as soon as nothing of it runs any more.
    is_over = operation is not None and operation.is_over
    reasons = [
        each
        for each in _impacts(event, snapshot)
        if (is_by_hand or each.kind is not ReasonKind.BY_HAND) and not (is_over and each.holds)
    ]
    if any(reason.kind is ReasonKind.NOT_BEGUN for reason in reasons):
        yield from _server_pause(snapshot)
    yield from reasons
    if operation is not None and is_over:
        for task in snapshot.open_in(operation.operation_id):
            yield _awaited_task(task, event.resources, snapshot)
    if event.overdue_at is not None:
        yield Reason(kind=ReasonKind.OVERDUE, since=event.overdue_at)


def explain_operation(
    operation: HostOperation, snapshot: Snapshot, now: datetime
) -> Iterator[Reason]:
    """Say what the events of *operation* wait for, beside their own impacts."""
    facts = facts_of(operation, snapshot)
    missing = tuple(waiting_guests(facts))
    if missing and facts.rule and operation.phase is HostPhase.IMPACT:
        yield Reason(kind=ReasonKind.HOST_GUESTS, vms=missing, about=operation.host)
    pause = snapshot.server_pause
    if pause is not None and (operation.is_at_work or not missing):
        yield Reason(kind=ReasonKind.HOST_PAUSED, since=pause.since, about=operation.host)
    if operation.phase is HostPhase.VERIFY:
        yield Reason(kind=ReasonKind.HOST_VERIFY, until=operation.verify_by, about=operation.host)
    yield from _tasks(due_tasks(operation, facts, now), snapshot)


def _tasks(tasks: Iterable[HostTask], snapshot: Snapshot) -> Iterator[Reason]:
    # Tasks of which the same is known share a sentence, such as the returns of all guests.
    alike: dict[Reason, list[HostTask]] = {}
    for task in tasks:
        said = snapshot.tasks.get(task)
        if said is not None and said.has_no_executor:
            yield Reason(kind=ReasonKind.NO_EXECUTOR, about=said.reason)
            return
        kind, since, until, about = _TASKS.get(task.kind), None, None, _about(task.host, said)
        if said is not None and said.is_lost:
            kind, until = ReasonKind.HOST_UNKNOWN, said.ask_again_at
        elif kind is not None and said is not None and said.away:
            kind, since, until = ReasonKind.HOST_OWNER_AWAY, said.away.since, said.away.pages_at
            about = f"{task.host} is carried out by {said.away.name}"
        if kind is not None and (said is None or not said.is_over):
            reason = Reason(kind=kind, since=since, until=until, about=about)
            alike.setdefault(reason, []).append(task)
    for reason, found in alike.items():
        task_ids = tuple("/".join(key_of(each)) for each in found)
        yield replace(reason, vms=tuple(e.vm for e in found if e.vm), task_ids=task_ids)


def _about(host: HostName, said: Impact | None) -> str:
    return f"{host} ({said.reason})" if said is not None and said.reason else host


def _impacts(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[Reason]:
    # Machines of which the same is known share a sentence.
    alike: dict[tuple[Impact | None, tuple[EventId, ...]], list[VmName]] = {}
    awaited = impacts_awaited(event, snapshot)
    for vm in event.resources:
        ahead = tuple(each.event_id for each in awaited.get(vm, ()))
        alike.setdefault((snapshot.impacts.get((event.event_id, vm)), ahead), []).append(vm)
    yield from (_impact(event, *known, tuple(vms)) for known, vms in alike.items())


def _impact(
    event: ScheduledEvent,
    impact: Impact | None,
    ahead: tuple[EventId, ...],
    vms: tuple[VmName, ...],
) -> Reason:
    if ahead:
        return Reason(kind=ReasonKind.OTHER_IMPACT, vms=vms, event_ids=ahead)
    if impact is None:
        return Reason(kind=ReasonKind.NOT_BEGUN, vms=vms, since=event.started_at)
    if impact.has_no_executor:
        return Reason(kind=ReasonKind.NO_EXECUTOR, vms=vms, about=impact.reason)
    if away := impact.away:
        return Reason(
            kind=ReasonKind.OWNER_AWAY,
            vms=vms,
            since=away.since,
            until=away.pages_at,
            about=away.name,
        )
    return Reason(
        kind=ReasonKind.BY_HAND if impact.is_by_hand else _IMPACT[impact.status],
        vms=vms,
        event_ids=(event.event_id,),
        since=event.started_at,
        until=impact.ask_again_at,
        about=impact.reason,
        task_ids=tuple(f"{event.event_id}/{vm}" for vm in vms) if impact.is_lost else (),
    )


def _overlaps(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[Reason]:
    for other in snapshot.in_flight_in.get(event.scope_id, ()):
        if other.update_domain != event.update_domain:
            yield Reason(
                kind=ReasonKind.OVERLAP,
                vms=other.resources,
                event_ids=(other.event_id,),
                about=str(other.update_domain),
            )


def _origins(event: ScheduledEvent, snapshot: Snapshot) -> Iterator[Reason]:
    if event.maintenance_id is not None:
        maintenance = snapshot.maintenances.get(event.maintenance_id)
        is_paused = maintenance is not None and maintenance.is_paused
        yield Reason(
            kind=ReasonKind.MAINTENANCE_PAUSED if is_paused else ReasonKind.MAINTENANCE,
            about=event.maintenance_id,
        )
    for run in snapshot.scenario_runs.values():
        if event.event_id in run.event_ids:
            yield _scenario(event, run)


def _scenario(event: ScheduledEvent, run: ScenarioRun) -> Reason:
    step = run.next_step
    if isinstance(step, Intervention) and event.event_id in run.events[step.label]:
        return Reason(
            kind=ReasonKind.SCENARIO_STEP,
            until=run.next_step_at,
            about=f"{run.name}, which will {step.trigger}",
        )
    return Reason(kind=ReasonKind.SCENARIO, about=run.name)


def _ending(event: ScheduledEvent) -> Reason:
    kind = ReasonKind.CANCELED if event.outcome is None else _OUTCOME[event.outcome]
    return Reason(kind=kind, since=event.ended_at, about=event.reason)


def _shared(event: ScheduledEvent, other: ScheduledEvent) -> tuple[VmName, ...]:
    return tuple(vm for vm in event.resources if vm in other.resources)


def _policy(event: ScheduledEvent, snapshot: Snapshot) -> Policy:
    return snapshot.topology.scopes[event.scope_id].policy
