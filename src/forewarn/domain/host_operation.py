"""The life of a host operation: everything a Maintenance does about one host, as one thing.

The events of its virtual machines start together. Where the host has work of its own, that follows
when every impact is done, then the check that the host is back, then each virtual machine is given
back; only then the events complete. A host without virtual machines goes through the same phases,
with nobody to tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.phrases import say_moment, say_names
from forewarn.domain.server_pause import ServerPause
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType


class HostPhase(StrEnum):
    """How far a host operation is."""

    ANNOUNCED = "announced"
    IMPACT = "impact"
    WORK = "work"
    VERIFY = "verify"
    RETURN = "return"
    OVER = "over"


class OperationOutcome(StrEnum):
    """How a host operation ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    NOTHING_TO_DO = "nothing to do"

    @property
    def is_bad(self) -> bool:
        """Whether the Maintenance holds until somebody retries or skips the host."""
        return self in {OperationOutcome.FAILED, OperationOutcome.CANCELED}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOperation:
    """One attempt of a Maintenance at one host, from its announcement to its outcome.

    It must be verified by *verify_by*, and is checked for the *attempt*-th time at *verify_at*.
    *reason* says why it failed, as soon as that is known.
    """

    operation_id: OperationId
    maintenance_id: MaintenanceId
    event_type: EventType
    host: HostName
    created_at: datetime
    phase: HostPhase = HostPhase.ANNOUNCED
    attempt: int = 1
    verify_at: datetime | None = None
    verify_by: datetime | None = None
    ended_at: datetime | None = None
    outcome: OperationOutcome | None = None
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase is HostPhase.OVER

    @property
    def has_begun(self) -> bool:
        """Whether the impacts on its virtual machines may have begun."""
        return self.phase is not HostPhase.ANNOUNCED

    @property
    def is_at_work(self) -> bool:
        """Whether the host itself is being worked on, or its virtual machines are given back."""
        return self.phase in {HostPhase.WORK, HostPhase.VERIFY, HostPhase.RETURN}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFacts:
    """What the next phase depends on: the operation's events, what was said of them and of tasks.

    *rule* is the work its host has, if any.
    """

    events: Sequence[ScheduledEvent]
    impacts: Mapping[tuple[EventId, VmName], Impact]
    tasks: Mapping[HostTask, Impact]
    rule: HostWorkRule | None


def begin(
    operation: HostOperation, *, events: Sequence[ScheduledEvent], rule: HostWorkRule | None
) -> HostOperation:
    """Return *operation* as it begins: without *events* there is nothing to announce."""
    if events:
        return operation
    if rule is None:
        return end(operation, OperationOutcome.NOTHING_TO_DO, now=operation.created_at)
    return replace(operation, phase=HostPhase.WORK)


def advance(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    """Return *operation* as far as it has come at *now*."""
    match operation.phase:
        case HostPhase.ANNOUNCED:
            return _announced(operation, facts, now)
        case HostPhase.IMPACT:
            return _impact(operation, facts, now)
        case HostPhase.WORK:
            return _work(operation, facts, now)
        case HostPhase.VERIFY:
            return _verify(operation, facts, now)
        case HostPhase.RETURN:
            return _return(operation, facts, now)
        case HostPhase.OVER:
            return operation
        case _:
            assert_never(operation.phase)


def due_tasks(operation: HostOperation, facts: OperationFacts, now: datetime) -> Iterator[HostTask]:
    """Yield the tasks that *operation* waits for at *now*."""
    match operation.phase:
        case HostPhase.WORK:
            yield _task(operation, HostTaskKind.WORK)
        case HostPhase.VERIFY:
            if operation.verify_at is not None and now >= operation.verify_at:
                yield _task(operation, HostTaskKind.VERIFY, attempt=operation.attempt)
        case HostPhase.RETURN:
            for vm in _guests(facts):
                yield _task(operation, HostTaskKind.RETURN, vm=vm)
        case HostPhase.ANNOUNCED | HostPhase.IMPACT | HostPhase.OVER:
            return
        case _:
            assert_never(operation.phase)


def leave_out(operation: HostOperation, pause: ServerPause, now: datetime) -> HostOperation:
    """Return *operation* after *pause*, which ends *now*: a check is due, with as much time left.

    Answers from before the pause no longer count, as nothing was checked meanwhile.
    """
    if operation.phase is not HostPhase.VERIFY or operation.verify_by is None:
        return operation
    return replace(
        operation,
        attempt=operation.attempt + 1,
        verify_at=pause.since,
        verify_by=max(operation.verify_by, pause.since) + (now - pause.since),
    )


def end(
    operation: HostOperation, outcome: OperationOutcome, *, now: datetime, reason: str = ""
) -> HostOperation:
    """Return *operation* with its end."""
    return replace(operation, phase=HostPhase.OVER, outcome=outcome, ended_at=now, reason=reason)


def waiting_guests(facts: OperationFacts) -> Iterator[VmName]:
    """Yield the virtual machines that are not out of the way yet; the work on the host waits.

    An impact that is carried out by hand is the work on the host itself.
    """
    for event in facts.events:
        for vm in event.resources if event.is_in_flight else ():
            impact = facts.impacts.get((event.event_id, vm))
            if impact is None or not (impact.is_by_hand or impact.is_over):
                yield vm


def _announced(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    if any(event.started_at is not None for event in facts.events):
        return replace(operation, phase=HostPhase.IMPACT)
    if any(event.is_in_flight for event in facts.events):
        return operation
    reasons = dict.fromkeys(event.reason for event in facts.events if event.reason)
    return end(operation, OperationOutcome.CANCELED, now=now, reason="; ".join(reasons))


def _impact(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    if facts.rule is None:
        return _end_with_events(operation, facts, now)
    if any(waiting_guests(facts)):
        return operation
    failures = (*_failed_impacts(facts), *_in_service(facts))
    if failures:
        # The host is left alone; whoever is out of the way is given back.
        return _give_back(replace(operation, reason="; ".join(failures)), facts, now)
    return replace(operation, phase=HostPhase.WORK)


def _work(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    impact = facts.tasks.get(_task(operation, HostTaskKind.WORK))
    if impact is None or not impact.is_over:
        return operation
    if impact.status is ImpactStatus.FAILED:
        reason = f"the work on {operation.host} failed: {impact.reason or 'no reason given'}"
        return end(operation, OperationOutcome.FAILED, now=now, reason=reason)
    if facts.rule is not None and facts.rule.has_verify:
        return replace(
            operation,
            phase=HostPhase.VERIFY,
            verify_at=now,
            verify_by=now + facts.rule.verify_within,
        )
    return _give_back(operation, facts, now)


def _verify(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    impact = facts.tasks.get(_task(operation, HostTaskKind.VERIFY, attempt=operation.attempt))
    if impact is not None and impact.status is ImpactStatus.DONE:
        return _give_back(operation, facts, now)
    if impact is None and _is_unheard_of(operation, now):
        return operation
    if operation.verify_by is not None and now >= operation.verify_by:
        said = _last_word(operation, facts)
        reason = f"{operation.host} was not back by {say_moment(operation.verify_by)}{said}"
        return end(operation, OperationOutcome.FAILED, now=now, reason=reason)
    if impact is not None and _is_to_be_checked_again(impact) and facts.rule is not None:
        again_at = now + facts.rule.verify_every
        return replace(operation, attempt=operation.attempt + 1, verify_at=again_at)
    return operation


def _is_unheard_of(operation: HostOperation, now: datetime) -> bool:
    """Tell whether a check was due in time but nobody has asked about it yet.

    So it is after a restart; the host may have come back meanwhile.
    """
    moment, deadline = operation.verify_at, operation.verify_by
    return moment is not None and deadline is not None and moment <= now and moment < deadline


def _last_word(operation: HostOperation, facts: OperationFacts) -> str:
    """Return why the last check failed that has ended: this one, or the one before."""
    for attempt in (operation.attempt, operation.attempt - 1):
        impact = facts.tasks.get(_task(operation, HostTaskKind.VERIFY, attempt=attempt))
        if impact is not None and impact.reason:
            return f": {impact.reason}"
    return ""


def _is_to_be_checked_again(impact: Impact) -> bool:
    # A check only looks, so one of which nothing is heard any more is repeated like a failed one.
    return impact.status is ImpactStatus.FAILED or impact.needs_somebody


def _return(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    said = {
        vm: facts.tasks.get(_task(operation, HostTaskKind.RETURN, vm=vm)) for vm in _guests(facts)
    }
    if any(impact is None or not impact.is_over for impact in said.values()):
        return operation
    failures = [
        f"{vm} was not returned: {impact.reason or 'no reason given'}"
        for vm, impact in said.items()
        if impact is not None and impact.status is ImpactStatus.FAILED
    ]
    return _end(operation, now, [*_earlier_failures(operation, facts), *failures])


def _give_back(operation: HostOperation, facts: OperationFacts, now: datetime) -> HostOperation:
    failures = _earlier_failures(operation, facts)
    if facts.rule is None:
        lost = (
            f"the executor file no longer defines the work on {operation.host}, so it cannot be "
            "verified or returned"
        )
        return _end(operation, now, [*failures, lost])
    if facts.rule.has_return and any(_guests(facts)):
        return replace(operation, phase=HostPhase.RETURN)
    return _end(operation, now, failures)


def _earlier_failures(operation: HostOperation, facts: OperationFacts) -> list[str]:
    """Return what failed before the end: it is remembered, or somebody has said so since."""
    return [operation.reason] if operation.reason else list(_failed_impacts(facts))


def _end(operation: HostOperation, now: datetime, failures: Sequence[str]) -> HostOperation:
    outcome = OperationOutcome.FAILED if failures else OperationOutcome.SUCCEEDED
    return end(operation, outcome, now=now, reason="; ".join(failures))


def _end_with_events(
    operation: HostOperation, facts: OperationFacts, now: datetime
) -> HostOperation:
    """End *operation* with the last of its events, if the host has no work of its own."""
    if any(event.is_in_flight for event in facts.events):
        return operation
    failures = [event.reason or "failed" for event in facts.events if _has_failed(event)]
    if not failures and any(_is_canceled(event) for event in facts.events):
        return end(operation, OperationOutcome.CANCELED, now=now)
    return _end(operation, now, failures)


def _failed_impacts(facts: OperationFacts) -> Iterator[str]:
    for event in facts.events:
        if _has_failed(event):
            yield event.reason or "failed"
        elif event.is_in_flight:
            yield from failed_impacts(event, facts.impacts)


def _in_service(facts: OperationFacts) -> Iterator[str]:
    """Yield who was told that nothing happens, or that it is over, and so must not lose the host.

    An event ends before the work only if the executor file had no work for the host meanwhile.
    """
    for event in facts.events:
        named = say_names(event.resources)
        if _is_canceled(event):
            yield f"{named} stays on the host because {event.event_id} was canceled"
        elif event.outcome is Outcome.SUCCEEDED:
            yield f"{named} is in service again because {event.event_id} has ended"


def failed_impacts(
    event: ScheduledEvent, impacts: Mapping[tuple[EventId, VmName], Impact]
) -> Iterator[str]:
    """Yield what failed about *event*, in words."""
    for vm in event.resources:
        impact = impacts.get((event.event_id, vm))
        if impact is not None and impact.status is ImpactStatus.FAILED:
            yield f"{vm}: {impact.reason or 'failed'}"


def _guests(facts: OperationFacts) -> Iterator[VmName]:
    return (vm for event in facts.events if not _is_canceled(event) for vm in event.resources)


def _has_failed(event: ScheduledEvent) -> bool:
    return event.outcome is Outcome.FAILED


def _is_canceled(event: ScheduledEvent) -> bool:
    return event.event_status is EventStatus.CANCELED


def task_called(name: str, operation: HostOperation) -> HostTask:
    """Return the task of *operation* that has this name."""
    first, _, which = name.partition("-")
    kind = HostTaskKind(first)
    attempt = int(which) if kind is HostTaskKind.VERIFY else 1
    vm = VmName(which) if kind is HostTaskKind.RETURN else None
    return _task(operation, kind, attempt=attempt, vm=vm)


def _task(
    operation: HostOperation, kind: HostTaskKind, *, attempt: int = 1, vm: VmName | None = None
) -> HostTask:
    return HostTask(
        operation_id=operation.operation_id,
        maintenance_id=operation.maintenance_id,
        event_type=operation.event_type,
        host=operation.host,
        kind=kind,
        attempt=attempt,
        vm=vm,
    )
