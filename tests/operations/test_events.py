from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from forewarn.domain.errors import (
    IllegalTransitionError,
    NoticeTooShortError,
    PostponeRefusedError,
    UnknownEventError,
    UnknownVirtualMachineError,
    UserOperationInFlightError,
    UserOperationLimitError,
)
from forewarn.domain.event import Approver, Happening, Outcome, ScheduledEvent
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.notice import NoticeMode
from forewarn.domain.policy import MOST_POSTPONEMENTS
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.approvals import event_in_scope, postpone_from_vm, request_starts
from forewarn.operations.context import Context, Rules
from forewarn.operations.enabling import record_polls
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_all_events,
    complete_event,
    create_events,
    operate,
    postpone_event,
    start_event,
)
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.operations.recording import Deed, record_events
from forewarn.operations.views import describe_event
from forewarn.ports.store import Store
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

WEB = ScopeId("availability-set/web")
MISSING = EventId("00000000-0000-0000-0000-000000000000")


def create(store: Store, operator: Context, *names: str, **order: Any) -> list[ScheduledEvent]:
    wanted = replace(EventOrder(event_type=EventType.REBOOT, resources=names), **order)
    return list(store.write(lambda tx: create_events(tx, operator, wanted)))


def document(store: Store, scope_id: ScopeId = WEB) -> Document:
    return store.read(lambda reading: reading.document(scope_id))


def ledger(store: Store, event_id: EventId) -> list[tuple[str, str]]:
    entries = store.read(lambda reading: reading.ledger(event_id))
    return [(entry.what, entry.who) for entry in entries]


def test_order_over_two_update_domains_and_scopes_is_split(fleet: Store, operator: Context) -> None:
    events = create(fleet, operator, "solo", "web-1", "web-0")

    assert [event.resources for event in events] == [("web-0",), ("web-1",), ("solo",)]
    assert document(fleet).document_incarnation == 1
    assert len(document(fleet).events) == 2
    assert ledger(fleet, events[0].event_id) == [("scheduled", "alice")]


def test_each_change_of_an_event_is_in_the_audit(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")

    for change in (approve_event, start_event, complete_event):
        fleet.write(partial(change, context=operator, event_id=event.event_id))

    lines = fleet.read(lambda reading: reading.audit())
    assert [(line.action, line.who) for line in lines if line.subject == event.event_id] == [
        ("event create", "alice"),
        ("event approve", "alice"),
        ("event start", "alice"),
        ("event complete", "alice"),
    ]


def test_order_for_an_unknown_machine_changes_nothing(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownVirtualMachineError):
        create(fleet, operator, "web-0", "web-9")

    assert document(fleet).document_incarnation == 0
    assert not fleet.read(lambda reading: reading.events())


@pytest.mark.parametrize(
    "wanted", [timedelta(minutes=14), datetime.fromisoformat("2026-01-05T08:14Z")]
)
def test_notice_below_the_minimum_is_refused(
    fleet: Store, operator: Context, wanted: datetime | timedelta
) -> None:
    with pytest.raises(NoticeTooShortError):
        create(fleet, operator, "web-0", not_before=wanted)


def test_wanted_not_before_is_kept(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0", not_before=timedelta(minutes=20))

    assert event.not_before == operator.now + timedelta(minutes=20)


def test_notice_of_a_terminate_is_that_of_its_scale_set(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "batch-0", event_type=EventType.TERMINATE)

    assert event.not_before == operator.now + timedelta(minutes=7)


def test_failure_goes_straight_to_started(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0", started=True)

    assert event.event_status is EventStatus.STARTED
    assert ledger(fleet, event.event_id) == [("started", "alice")]


@pytest.mark.parametrize(
    ("event_type", "verb"), [(EventType.REBOOT, "restarted"), (EventType.REDEPLOY, "redeployed")]
)
def test_user_operation_says_what_azure_says(
    fleet: Store, operator: Context, event_type: EventType, verb: str
) -> None:
    event = fleet.write(lambda tx: operate(tx, operator, "web-0", event_type))

    assert event.event_source is EventSource.USER
    assert event.description == (
        f"Virtual machine is going to be {verb} as requested by authorized user."
    )


@pytest.mark.parametrize(
    ("event_type", "description"),
    [
        (EventType.FREEZE, "Host server is undergoing maintenance."),
        (EventType.REBOOT, "Host server is undergoing maintenance."),
        (EventType.REDEPLOY, "Virtual machine has encountered a failure."),
        (EventType.PREEMPT, ""),
        (EventType.TERMINATE, ""),
    ],
)
def test_event_says_what_azure_says_unless_it_is_described(
    fleet: Store, operator: Context, event_type: EventType, description: str
) -> None:
    (silent,) = create(fleet, operator, "web-0", event_type=event_type)
    (described,) = create(fleet, operator, "web-0", event_type=event_type, description="Disk")
    (blank,) = create(fleet, operator, "web-0", event_type=event_type, description="")

    assert (silent.description, described.description, blank.description) == (
        description,
        "Disk",
        "",
    )


def test_user_operations_are_limited(fleet: Store, operator: Context) -> None:
    two = replace(operator, rules=Rules(user_initiated_limit=2))
    for name in ("web-0", "web-1"):
        fleet.write(partial(operate, context=two, name=name, event_type=EventType.REBOOT))

    with pytest.raises(UserOperationInFlightError):
        fleet.write(lambda tx: operate(tx, two, "web-0", EventType.REDEPLOY))
    with pytest.raises(UserOperationLimitError):
        fleet.write(lambda tx: operate(tx, two, "solo", EventType.REBOOT))


def test_scope_that_nobody_polls_is_restarted_at_once_when_enabled_is_asked_for(
    fleet: Store, operator: Context
) -> None:
    asks = replace(operator, rules=Rules(notice=NoticeMode.WHEN_ENABLED))
    fleet.write(lambda tx: record_polls(tx, {WEB: operator.now}))

    polled = fleet.write(lambda tx: operate(tx, asks, "web-0", EventType.REBOOT))
    unpolled = fleet.write(lambda tx: operate(tx, asks, "solo", EventType.REBOOT))

    assert polled.event_status is EventStatus.SCHEDULED
    assert (unpolled.event_status, unpolled.is_published) == (EventStatus.STARTED, False)
    assert document(fleet, unpolled.scope_id).document_incarnation == 0


def test_user_operation_that_needs_no_approval_is_shown_as_started(
    fleet: Store, operator: Context
) -> None:
    text = '[[virtual_machine]]\nname = "solo"\nauto_approve_user = true\n'
    fleet.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(text)))

    event = fleet.write(lambda tx: operate(tx, operator, "solo", EventType.REBOOT))

    shown = document(fleet, event.scope_id)
    assert [shown_event.event_status for shown_event in shown.events] == [EventStatus.STARTED]


def test_polls_are_renewed_seldom(fleet: Store, operator: Context) -> None:
    for seconds in (0, 59, 61):
        at = operator.now + timedelta(seconds=seconds)
        fleet.write(partial(record_polls, polls={WEB: at}))
        known = fleet.read(lambda reading: reading.last_polled_at(WEB))
        assert known == (at if seconds != 59 else operator.now)


def test_operator_leads_an_event_through_its_life(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")
    id_ = event.event_id

    approved = fleet.write(lambda tx: approve_event(tx, operator, id_))
    fleet.write(lambda tx: start_event(tx, operator, id_))
    ended = fleet.write(lambda tx: complete_event(tx, operator, id_, Outcome.FAILED, "no power"))

    assert approved.approvals[0].approver is Approver.OPERATOR
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "no power")
    assert [what for what, _ in ledger(fleet, id_)] == [
        "scheduled",
        "approved",
        "started",
        "completed",
    ]
    assert document(fleet) == Document(document_incarnation=3)


def test_canceled_event_is_gone_and_cannot_be_completed(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")
    fleet.write(lambda tx: cancel_event(tx, operator, event.event_id, "not needed"))

    with pytest.raises(IllegalTransitionError):
        fleet.write(lambda tx: complete_event(tx, operator, event.event_id))

    assert not document(fleet).events


def test_all_started_events_are_completed(fleet: Store, operator: Context) -> None:
    create(fleet, operator, "web-0", started=True)
    (waiting,) = create(fleet, operator, "web-1")

    ended = fleet.write(lambda tx: complete_all_events(tx, operator))

    assert len(ended) == 1
    assert [shown.event_id for shown in document(fleet).events] == [waiting.event_id]


def test_event_is_postponed_as_far_as_its_scope_allows(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")
    (alone,) = create(fleet, operator, "solo")
    wanted = event.not_before + timedelta(minutes=30)

    moved = fleet.write(lambda tx: postpone_event(tx, operator, event.event_id, wanted))

    assert moved.not_before == wanted
    with pytest.raises(PostponeRefusedError, match="does not allow"):
        fleet.write(lambda tx: postpone_event(tx, operator, alone.event_id, wanted))
    with pytest.raises(UnknownEventError):
        fleet.write(lambda tx: postpone_event(tx, operator, MISSING, wanted))


def test_event_that_outlived_its_scope_cannot_be_postponed(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "solo")
    fleet.write(lambda tx: cancel_event(tx, operator, event.event_id))
    fleet.write(lambda tx: remove_vm(tx, operator, "solo"))

    with pytest.raises(IllegalTransitionError):
        fleet.write(lambda tx: postpone_event(tx, operator, event.event_id, event.not_before))


def test_start_request_approves_once_and_leaves_the_document(
    fleet: Store, operator: Context
) -> None:
    (event,) = create(fleet, operator, "web-0")
    vm = VmName("web-1")
    before = document(fleet)

    for _ in range(2):
        fleet.write(lambda tx: request_starts(tx, replace(operator, who=vm), vm, (event.event_id,)))

    assert ledger(fleet, event.event_id) == [("scheduled", "alice"), ("approved", "web-1")]
    assert document(fleet) == before


def test_one_unknown_event_spoils_all_start_requests(fleet: Store, operator: Context) -> None:
    (known,) = create(fleet, operator, "web-0")
    (foreign,) = create(fleet, operator, "solo")

    for unknown in (foreign.event_id, MISSING):
        ids = (known.event_id, unknown)
        with pytest.raises(UnknownEventError):
            fleet.write(
                partial(request_starts, context=operator, vm=VmName("web-0"), event_ids=ids)
            )

    assert ledger(fleet, known.event_id) == [("scheduled", "alice")]


def test_machine_that_is_gone_knows_no_event(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")

    with pytest.raises(UnknownEventError):
        fleet.read(lambda reading: event_in_scope(reading, VmName("gone"), event.event_id))


def test_machine_postpones_for_its_scope(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    (event,) = create(fleet, operator, "web-0")
    wanted = event.not_before + timedelta(minutes=5)
    soon = later(operator.now + timedelta(minutes=1))

    moved = fleet.write(
        lambda tx: postpone_from_vm(tx, soon, VmName("web-1"), event.event_id, wanted)
    )

    assert describe_event(moved, ())["not_before"] == wanted.isoformat()


def test_machine_postpones_in_steps_and_not_for_ever(fleet: Store, operator: Context) -> None:
    (event,) = create(fleet, operator, "web-0")

    def postpone(seconds: int) -> ScheduledEvent:
        wanted = event.not_before + timedelta(seconds=seconds)
        vm = VmName("web-0")
        return fleet.write(lambda tx: postpone_from_vm(tx, operator, vm, event.event_id, wanted))

    with pytest.raises(PostponeRefusedError, match="the earliest new time is"):
        postpone(59)
    assert postpone(60).not_before == event.not_before + timedelta(minutes=1)
    moved = Deed(event=event, what=Happening.POSTPONED)
    for _ in range(MOST_POSTPONEMENTS):
        fleet.write(lambda tx: record_events(tx, operator, [moved]))
    with pytest.raises(
        PostponeRefusedError, match="it has been postponed 301 times, which is the maximum"
    ):
        postpone(600)
