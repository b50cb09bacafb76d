"""Everything that can be done to events from outside the virtual machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from forewarn.domain.errors import ConflictError, UnknownEventError
from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    Happening,
    Outcome,
    ScheduledEvent,
    approve,
    cancel,
    complete,
    schedule,
    start,
    start_unannounced,
    usual_description,
)
from forewarn.domain.host_facts import operation_at_work
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.notice import is_enabled, minimum_notice
from forewarn.domain.phrases import say_names
from forewarn.domain.policy import (
    Beginning,
    Policy,
    admit_user_operation,
    how_to_begin,
    postpone,
    usual_notice,
)
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import MANUAL, Task, withdraw
from forewarn.domain.topology import split_by_update_domain
from forewarn.operations.context import Context
from forewarn.operations.inventory import find_vm, find_vms
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.operations.snapshots import look
from forewarn.operations.tasks import end_by_hand
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

_USER_VERBS = {EventType.REBOOT: "restart", EventType.REDEPLOY: "redeploy"}


class SharedOperationError(ConflictError):
    """One event of a host operation, which cannot be canceled alone."""

    def __init__(self, event: ScheduledEvent, others: Sequence[ScheduledEvent]) -> None:
        self.event_id = event.event_id
        self.event_ids = tuple(other.event_id for other in others)
        named = say_names([f"{other.event_id} ({', '.join(other.resources)})" for other in others])
        advice = "Cancel them all with `operation: true`."
        if any(other.event_status is EventStatus.STARTED for other in others):
            advice = "Some have started, so they can no longer be canceled together."
        super().__init__(
            f"{event.event_id} is announced for {event.host} together with {named}; events of "
            f"one host operation cannot be canceled one by one. {advice}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOrder:
    """What an operator asks to be announced."""

    event_type: EventType
    resources: tuple[str, ...]
    not_before: datetime | timedelta | None = None
    duration_in_seconds: int | None = None
    description: str | None = None
    started: bool = False


def find_event(reading: Reading, event_id: EventId) -> ScheduledEvent:
    """Return the event, or refuse."""
    event = reading.event(event_id)
    if event is None:
        raise UnknownEventError(event_id)
    return event


def create_events(
    tx: Transaction, context: Context, order: EventOrder
) -> tuple[ScheduledEvent, ...]:
    """Announce *order*, in as many events as it takes to name one update domain in each."""
    topology = tx.topology()
    names = [vm.name for vm in find_vms(topology, order.resources)]
    usual = usual_description(order.event_type, EventSource.PLATFORM)
    events = tuple(
        _create(
            tx,
            context,
            order,
            Draft(
                event_type=order.event_type,
                event_source=EventSource.PLATFORM,
                share=share,
                description=usual if order.description is None else order.description,
                duration_in_seconds=order.duration_in_seconds,
            ),
        )
        for share in split_by_update_domain(topology, names)
    )
    what = Happening.STARTED if order.started else Happening.SCHEDULED
    record_events(tx, context, [Deed(event=event, what=what) for event in events])
    for event in events:
        record_audit(tx, context, "event create", event.event_id)
    return events


def operate(tx: Transaction, context: Context, name: str, event_type: EventType) -> ScheduledEvent:
    """Restart or redeploy a virtual machine as its owner: Reboot or Redeploy, EventSource User."""
    topology = tx.topology()
    vm = find_vm(topology, name)
    limit = context.rules.user_initiated_limit
    admit_user_operation(vm.name, tx.user_operations_in_flight(), limit=limit)
    (share,) = split_by_update_domain(topology, [vm.name])
    draft = Draft(
        event_type=event_type,
        event_source=EventSource.USER,
        share=share,
        description=usual_description(event_type, EventSource.USER),
    )
    policy = topology.scopes[vm.scope_id].policy
    how = how_to_begin(
        draft,
        policy=policy,
        mode=context.rules.notice,
        enabled=is_enabled(tx.last_polled_at(vm.scope_id), context.now),
    )
    event = _begin(context, draft, how, policy)
    record_events(tx, context, [Deed(event=event, what=Happening(event.event_status.lower()))])
    record_audit(tx, context, f"vm {_USER_VERBS[event_type]}", vm.name)
    return event


def approve_event(tx: Transaction, context: Context, event_id: EventId) -> ScheduledEvent:
    """Approve for everybody."""
    word = Approval(approver=Approver.OPERATOR, name=context.who, approved_at=context.now)
    return _change(tx, context, event_id, "approve", lambda event: approve(event, word))


def postpone_event(
    tx: Transaction, context: Context, event_id: EventId, not_before: datetime
) -> ScheduledEvent:
    """Move the event to a later *not_before*, as far as its scope's policy allows."""
    # An event of long ago may have outlived its scope; it cannot be postponed either way.
    scope = tx.topology().scopes.get(find_event(tx, event_id).scope_id)
    policy = scope.policy if scope else Policy()
    move = partial(
        postpone,
        not_before=not_before,
        policy=policy,
        now=context.now,
        speed=context.rules.speed,
    )
    return _change(tx, context, event_id, "postpone", move)


def start_event(tx: Transaction, context: Context, event_id: EventId) -> ScheduledEvent:
    """Start now, past policy, NotBefore and host operation."""
    return _change(tx, context, event_id, "start", lambda event: start(event, now=context.now))


def complete_event(
    tx: Transaction,
    context: Context,
    event_id: EventId,
    outcome: Outcome = Outcome.SUCCEEDED,
    reason: str = "",
) -> ScheduledEvent:
    """Take it that the impacts of a Started event are done by hand, and end the event.

    If its host has work of its own, or a check or return to come, the event stays Started until
    the turn of the host is over. Impacts that are running keep their machines busy until they end.
    """
    event = find_event(tx, event_id)
    snapshot = look(tx, context)
    changed = _complete(tx, context, event, snapshot, outcome, reason)
    if changed != event:
        record_events(tx, context, [Deed(event=changed, what=Happening.COMPLETED)])
    return changed


def complete_all_events(tx: Transaction, context: Context) -> tuple[ScheduledEvent, ...]:
    """Complete every Started event, each as `complete_event` does."""
    snapshot = look(tx, context)
    started = [
        event for event in tx.events_in_flight() if event.event_status is EventStatus.STARTED
    ]
    changed = tuple(
        _complete(tx, context, event, snapshot, Outcome.SUCCEEDED, "") for event in started
    )
    ended = [event for event in changed if not event.is_in_flight]
    record_events(tx, context, [Deed(event=event, what=Happening.COMPLETED) for event in ended])
    return changed


def _complete(
    tx: Transaction,
    context: Context,
    event: ScheduledEvent,
    snapshot: Snapshot,
    outcome: Outcome,
    reason: str,
) -> ScheduledEvent:
    """Return *event* after its impacts were done by hand; it is not written down yet."""
    # Refused unless it is Started.
    completed = complete(event, outcome=outcome, reason=reason, now=context.now)
    operation = operation_at_work(event, snapshot)
    # What an operator has ended may still run on the host.
    stays = operation is not None and (
        operation.outcome is None or operation.operation_id in snapshot.open_of
    )
    rows = snapshot.rows
    known = [rows[event.event_id, vm] for vm in event.resources if (event.event_id, vm) in rows]
    said = reason or f"done by hand, said {context.who}"
    end_by_hand(tx, context, known, is_done=outcome is Outcome.SUCCEEDED, reason=said)
    if stays:
        for vm in event.resources:
            if (event.event_id, vm) not in rows:
                tx.put_task(_not_needed(event, vm, context, snapshot, outcome, said))
    detail = "impact done by hand" if stays else ""
    record_audit(tx, context, "event complete", event.event_id, detail=detail)
    return event if stays else completed


def _not_needed(
    event: ScheduledEvent,
    vm: VmName,
    context: Context,
    snapshot: Snapshot,
    outcome: Outcome,
    said: str,
) -> Task:
    """Return the impact on *vm*, which is not reserved yet, as a task that is withdrawn."""
    reserved = Task(
        subject=event.event_id,
        name=vm,
        vm=vm,
        host=event.host,
        runner=MANUAL,
        node=context.rules.node,
        epoch=snapshot.ownership.epoch if snapshot.ownership else 0,
        said=Impact(status=ImpactStatus.NOT_BEGUN),
        reserved_at=context.at,
    )
    is_done = outcome is Outcome.SUCCEEDED
    return withdraw(reserved, is_done=is_done, reason=said, now=context.at)


def cancel_event(
    tx: Transaction,
    context: Context,
    event_id: EventId,
    reason: str = "",
    *,
    operation: bool = False,
) -> ScheduledEvent:
    """Withdraw a Scheduled event, with all others of its host operation if that is wanted."""
    event = find_event(tx, event_id)
    others = _others_of_operation(tx, event)
    first = cancel(event, reason=reason, now=context.now)
    if others and not operation:
        raise SharedOperationError(event, others)
    canceled = [first, *(cancel(each, reason=reason, now=context.now) for each in others)]
    record_events(tx, context, [Deed(event=each, what=Happening.CANCELED) for each in canceled])
    for each in canceled:
        record_audit(tx, context, "event cancel", each.event_id)
    return canceled[0]


def _others_of_operation(reading: Reading, event: ScheduledEvent) -> tuple[ScheduledEvent, ...]:
    if event.operation_id is None:
        return ()
    events = reading.operation_events(event.operation_id)
    return tuple(other for other in events if other.event_id != event.event_id)


_PAST = {
    "approve": Happening.APPROVED,
    "postpone": Happening.POSTPONED,
    "start": Happening.STARTED,
    "complete": Happening.COMPLETED,
}


def _change(
    tx: Transaction,
    context: Context,
    event_id: EventId,
    verb: str,
    change: Callable[[ScheduledEvent], ScheduledEvent],
) -> ScheduledEvent:
    changed = change(find_event(tx, event_id))
    record_events(tx, context, [Deed(event=changed, what=_PAST[verb])])
    record_audit(tx, context, f"event {verb}", event_id)
    return changed


def _create(tx: Transaction, context: Context, order: EventOrder, draft: Draft) -> ScheduledEvent:
    if order.started:
        return start_unannounced(draft, event_id=context.new_id(), now=context.now)
    policy = tx.topology().scopes[draft.share.scope_id].policy
    wanted = order.not_before
    return schedule(
        draft,
        event_id=context.new_id(),
        now=context.now,
        notice=(
            usual_notice(draft.event_type, policy, speed=context.rules.speed)
            if wanted is None
            else _minimum_notice(context, draft, policy)
        ),
        not_before=context.now + wanted if isinstance(wanted, timedelta) else wanted,
    )


def _begin(context: Context, draft: Draft, how: Beginning, policy: Policy) -> ScheduledEvent:
    event_id, now = context.new_id(), context.now
    match how:
        case Beginning.SCHEDULED:
            notice = _minimum_notice(context, draft, policy)
            return schedule(draft, event_id=event_id, now=now, notice=notice)
        case Beginning.STARTED:
            return start_unannounced(draft, event_id=event_id, now=now)
        case Beginning.UNPUBLISHED:
            return start_unannounced(draft, event_id=event_id, now=now, is_published=False)
        case _:
            assert_never(how)


def _minimum_notice(context: Context, draft: Draft, policy: Policy) -> timedelta:
    return minimum_notice(
        draft.event_type,
        terminate_notice=policy.terminate_notice,
        speed=context.rules.speed,
    )
