"""What virtual machines can do for their events, and others who name them as Azure does."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from forewarn.domain.errors import NotFoundError, UnknownEventError
from forewarn.domain.event import Approver, Happening, ScheduledEvent, request_start
from forewarn.domain.names import VmName, name_key
from forewarn.domain.policy import check_step, latest_not_before
from forewarn.domain.topology import ScopeKind, Topology, VirtualMachine
from forewarn.operations.context import Context
from forewarn.operations.events import approve_event, find_event, postpone_event
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId, EventStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResource:
    """A virtual machine, or a set of them, by its place in a subscription."""

    kind: ScopeKind
    name: str
    subscription_id: str
    resource_group: str


class UnknownResourceError(NotFoundError):
    """Nothing of this kind and name is in this subscription and resource group."""

    def __init__(self, resource: ArmResource) -> None:
        super().__init__(
            f"Unknown {resource.kind.noun} {resource.name!r} in resource group "
            f"{resource.resource_group!r} of subscription {resource.subscription_id!r}."
        )
        self.name = resource.name


def request_starts(
    tx: Transaction, context: Context, vm: VmName, event_ids: tuple[EventId, ...]
) -> None:
    """Take the StartRequests of *vm*: all of them, or none if one was never of its scope."""
    events = [event_in_scope(tx, vm, event_id) for event_id in event_ids]
    approved = [
        after
        for event in events
        if (after := request_start(event, vm=vm, now=context.now)) != event
    ]
    record_events(tx, context, [Deed(event=event, what=Happening.APPROVED) for event in approved])
    for event in approved:
        record_audit(tx, context, "event approve", event.event_id)


def postpone_from_vm(
    tx: Transaction, context: Context, vm: VmName, event_id: EventId, not_before: datetime
) -> ScheduledEvent:
    """Postpone on behalf of *vm*, if its scope allows."""
    event = event_in_scope(tx, vm, event_id)
    scope = tx.topology().scopes[event.scope_id]  # that of the caller, so it is there
    check_step(
        event,
        not_before,
        latest=latest_not_before(event, scope.policy, speed=context.rules.speed),
        times=sum(entry.what is Happening.POSTPONED for entry in tx.ledger(event_id)),
        speed=context.rules.speed,
    )
    return postpone_event(tx, context, event_id, not_before)


def event_in_scope(reading: Reading, vm: VmName, event_id: EventId) -> ScheduledEvent:
    """Return an event that *vm* can see or could once see, or refuse."""
    event = reading.event(event_id)
    caller = reading.topology().virtual_machines.get(vm)
    is_known = event is not None and caller is not None and event.scope_id == caller.scope_id
    if event is None or not is_known or not event.is_published:
        raise UnknownEventError(event_id)
    return event


def acknowledge(
    tx: Transaction, context: Context, resource: ArmResource, event_id: EventId
) -> None:
    """Approve an event on behalf of a virtual machine, or of all of a set.

    For a virtual machine it is as if it had sent a StartRequest itself: its vote, and without
    effect if it comes too late. For a set it is the word of an operator, who speaks for everybody.
    """
    members = tuple(_members(tx.topology(), resource))
    if not members:
        raise UnknownResourceError(resource)
    if resource.kind is ScopeKind.VIRTUAL_MACHINE:
        (vm,) = members
        request_starts(tx, context, vm.name, (event_id,))
        return
    event = find_event(tx, event_id)
    if event.scope_id not in {vm.scope_id for vm in members} or not event.is_published:
        raise UnknownEventError(event_id)
    if event.event_status is EventStatus.SCHEDULED and not _is_approved_by(context.who, event):
        approve_event(tx, context, event_id)


def _members(topology: Topology, resource: ArmResource) -> Iterable[VirtualMachine]:
    key = name_key(resource.name)
    for vm in topology.virtual_machines.values():
        if resource.kind is ScopeKind.VIRTUAL_MACHINE:
            is_meant = name_key(vm.name) == key
        else:
            scope = topology.scopes[vm.scope_id]
            is_meant = scope.kind is resource.kind and name_key(scope.name) == key
        if is_meant and _is_there(vm, resource):
            yield vm


def _is_there(vm: VirtualMachine, resource: ArmResource) -> bool:
    # Who does not say where it is, is wherever it is looked for.
    return all(
        not known or name_key(known) == name_key(wanted)
        for known, wanted in (
            (vm.subscription_id, resource.subscription_id),
            (vm.resource_group, resource.resource_group),
        )
    )


def _is_approved_by(who: str, event: ScheduledEvent) -> bool:
    return (Approver.OPERATOR, who) in {(each.approver, each.name) for each in event.approvals}
