"""One event, whatever anybody does to it in whatever order."""

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forewarn.domain.amending import build_topology
from forewarn.domain.errors import IllegalTransitionError, PostponeRefusedError
from forewarn.domain.event import (
    TRANSITIONS,
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    Trigger,
    approve,
    cancel,
    complete,
    request_start,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.explanation import explain
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy, postpone
from forewarn.domain.publication import FIRST_DOCUMENT, publish
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine
from forewarn.protocol.document import encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

VMS = (VmName("web-0"), VmName("web-1"))
POLICY = Policy(approval=ApprovalPolicy.ALL, postpone_until=timedelta(minutes=30))
DRAFT = Draft(
    event_type=EventType.REBOOT,
    event_source=EventSource.PLATFORM,
    share=Share(scope_id=ScopeId("availability-set/web"), update_domain=0, resources=VMS),
)


TOPOLOGY = build_topology(
    scopes=[DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web", policy=POLICY)],
    virtual_machines=[
        VirtualMachine(name=vm, scope_id=ScopeId("availability-set/web")) for vm in VMS
    ],
)


def may_start(event: ScheduledEvent, now: datetime) -> bool:
    """State the policy `all` a second time, in other words."""
    names = {approval.name for approval in event.approvals}
    return now >= event.not_before or "alice" in names or names >= set(VMS)


class EventLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 5, 8, tzinfo=UTC)
        self.event_id = EventId("602D9444-D2CD-49C7-8624-8643E7171297")
        self.event: ScheduledEvent | None = None
        self.document = FIRST_DOCUMENT

    @precondition(lambda self: self.event is None)
    @rule(unannounced=st.booleans(), published=st.booleans())
    def create(self, *, unannounced: bool, published: bool) -> None:
        if unannounced:
            event = start_unannounced(
                DRAFT, event_id=self.event_id, now=self.now, is_published=published
            )
        else:
            event = schedule(
                DRAFT, event_id=self.event_id, now=self.now, notice=timedelta(minutes=15)
            )
        self.change_to(event)

    @rule(seconds=st.floats(0, 3600))
    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.event)
    @rule(vm=st.sampled_from(VMS))
    def vm_requests_start(self, vm: VmName) -> None:
        event = self.known()

        self.change_to(request_start(event, vm=vm, now=self.now))

    @precondition(lambda self: self.event)
    @rule(trigger=st.sampled_from(Trigger), minutes=st.integers(-10, 60))
    def pull(self, trigger: Trigger, minutes: int) -> None:
        event = self.known()
        allowed = (event.event_status, trigger) in TRANSITIONS
        try:
            after = self.after(event, trigger, minutes)
        except IllegalTransitionError:
            assert not allowed
        except PostponeRefusedError:
            assert trigger is Trigger.POSTPONE
        else:
            assert allowed
            assert after.event_status is TRANSITIONS[event.event_status, trigger]
            assert not (trigger is Trigger.POSTPONE and after.approvals)
            self.change_to(after)

    def after(self, event: ScheduledEvent, trigger: Trigger, minutes: int) -> ScheduledEvent:
        match trigger:
            case Trigger.APPROVE:
                word = Approval(approver=Approver.OPERATOR, name="alice", approved_at=self.now)
                return approve(event, word)
            case Trigger.POSTPONE:
                later = event.not_before + timedelta(minutes=minutes)
                return postpone(event, later, policy=POLICY, now=self.now)
            case Trigger.START:
                return start(event, now=self.now)
            case Trigger.COMPLETE:
                return complete(event, outcome=Outcome.SUCCEEDED, now=self.now)
            case Trigger.CANCEL:
                return cancel(event, now=self.now)

    def known(self) -> ScheduledEvent:
        assert self.event
        return self.event

    def change_to(self, event: ScheduledEvent) -> None:
        before = self.document
        bytes_before = encode_document(before, NEWEST)
        self.event = event
        self.document = publish(before, [event])
        grown = self.document.document_incarnation - before.document_incarnation
        assert grown == (self.document.events != before.events)
        if not grown:
            assert encode_document(self.document, NEWEST) == bytes_before

    @invariant()
    def event_keeps_its_id_and_its_resources(self) -> None:
        if self.event:
            assert self.event.event_id == self.event_id
            assert self.event.resources == VMS

    @invariant()
    def not_before_never_leaves_its_bounds(self) -> None:
        if self.event:
            latest = self.event.first_not_before + POLICY.postpone_until
            assert self.event.first_not_before <= self.event.not_before <= latest
            assert self.event.not_before.microsecond == 0

    @invariant()
    def who_is_said_to_have_not_approved_has_not(self) -> None:
        if self.event:
            snapshot = Snapshot(topology=TOPOLOGY, events={self.event_id: self.event})
            reasons = explain(self.event, snapshot, self.now)
            waiting = {vm for reason in reasons for vm in reason.vms}
            if self.event.event_status is EventStatus.SCHEDULED:
                assert waiting.isdisjoint(approval.name for approval in self.event.approvals)
                assert bool(waiting) is not may_start(self.event, self.now)

    @invariant()
    def only_published_events_in_flight_are_shown(self) -> None:
        shown = bool(self.event and self.event.is_in_flight and self.event.is_published)
        assert bool(self.document.events) is shown


TestEventLife = EventLife.TestCase
TestEventLife.settings = settings(max_examples=settings().max_examples * 3)
