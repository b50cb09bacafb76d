"""The outbox is written with the change itself, and told from outside."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.names import VmName
from forewarn.domain.notification import (
    Delivery,
    Notification,
    NotificationStatus,
    Phase,
    Retrying,
    Target,
)
from forewarn.operations.approvals import request_starts
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_event,
    create_events,
    postpone_event,
    start_event,
)
from forewarn.operations.notifications import (
    KEPT,
    NotificationNotFailedError,
    UnknownNotificationError,
    UnknownTargetError,
    example_notification,
    find_notifications,
    give_up_orphans,
    prepare_test,
    prune_outbox,
    record_attempt,
    retry_notification,
)
from forewarn.operations.recording import POSTPONEMENTS_TOGETHER
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventType

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
OPS = Target(name="ops")
WEB = Target(name="web-team", scopes=("web",), phases=(Phase.SCHEDULED, Phase.FAILED))


@pytest.fixture
def told(operator: Context) -> Context:
    return replace(operator, rules=Rules(targets=(OPS, WEB)))


def create(store: Store, context: Context, vm: str) -> ScheduledEvent:
    order = EventOrder(event_type=EventType.REBOOT, resources=(vm,))
    (event,) = store.write(lambda tx: create_events(tx, context, order))
    return event


def outbox(store: Store) -> list[Notification]:
    return list(store.read(lambda reading: reading.notifications()))


def phases(store: Store, target: str = "ops") -> list[str]:
    return [message.phase for message in outbox(store) if message.target == target]


def fail(store: Store, context: Context, message: Notification) -> Notification:
    gone = Delivery(is_delivered=False, answer="410", is_final=True)
    return store.write(
        lambda tx: record_attempt(
            tx, message, gone, now=context.at, retrying=Retrying(), chance=0.5
        )
    )


def test_nothing_is_written_for_nobody(fleet: Store, operator: Context) -> None:
    create(fleet, operator, "web-0")

    assert outbox(fleet) == []


def test_postponements_in_a_row_are_told_first_and_last(fleet: Store, told: Context) -> None:
    other, event = create(fleet, told, "web-1"), create(fleet, told, "web-0")
    fleet.write(lambda tx: approve_event(tx, told, other.event_id))
    for message in outbox(fleet):
        fail(fleet, told, message)

    def postpone(minutes: int, context: Context) -> None:
        to = event.not_before + timedelta(minutes=minutes)
        fleet.write(lambda tx: postpone_event(tx, context, event.event_id, to))

    def told_of() -> list[str]:
        return [
            str(message.data["not_before"])[14:16]
            for message in outbox(fleet)
            if message.phase is Phase.POSTPONED
        ]

    minute = event.not_before.minute
    postpone(1, told)
    first = told_of()
    fail(fleet, told, outbox(fleet)[-1])
    create(fleet, told, "solo")
    for minutes in (2, 3, 4):
        postpone(minutes, told)
    after = told_of()
    postpone(5, replace(told, at=told.at + POSTPONEMENTS_TOGETHER))

    assert first == [f"{minute + 1:02}"]
    assert after == [f"{minute + 1:02}", f"{minute + 4:02}"]
    assert told_of() == [*after, f"{minute + 5:02}"]


def test_postponement_during_the_delivery_of_the_last_one_is_told_as_well(
    fleet: Store, told: Context
) -> None:
    event = create(fleet, told, "web-0")

    def postpone(minutes: int) -> Notification:
        to = event.not_before + timedelta(minutes=minutes)
        fleet.write(lambda tx: postpone_event(tx, told, event.event_id, to))
        return outbox(fleet)[-1]

    for message in outbox(fleet):
        fail(fleet, told, message)
    fail(fleet, told, postpone(1))
    being_delivered = postpone(2)
    last = postpone(3)
    assert last.notification_id == being_delivered.notification_id

    fleet.write(
        lambda tx: record_attempt(
            tx,
            being_delivered,
            Delivery(is_delivered=True, answer="204"),
            now=told.at,
            retrying=Retrying(),
            chance=0.5,
        )
    )

    assert outbox(fleet)[-1] == last
    assert last.status is NotificationStatus.WAITING


def test_each_change_is_written_for_each_target_that_wants_it(fleet: Store, told: Context) -> None:
    event = create(fleet, told, "web-0")
    later = event.not_before + timedelta(minutes=5)
    fleet.write(lambda tx: postpone_event(tx, told, event.event_id, later))
    fleet.write(lambda tx: approve_event(tx, told, event.event_id))
    fleet.write(lambda tx: approve_event(tx, told, event.event_id))
    fleet.write(lambda tx: request_starts(tx, told, VmName("web-0"), (event.event_id,)))
    fleet.write(lambda tx: start_event(tx, told, event.event_id))
    fleet.write(lambda tx: complete_event(tx, told, event.event_id, Outcome.FAILED, "no power"))

    assert phases(fleet) == ["scheduled", "postponed", "approved", "started", "failed"]
    assert phases(fleet, "web-team") == ["scheduled", "failed"]
    last = outbox(fleet)[-1]
    assert (last.data["event_status"], last.data["reason"]) == ("Completed", "no power")
    assert (last.data["who"], last.data["detail"]) == ("alice", "no power")
    assert len({message.notification_id for message in outbox(fleet)}) == 7


def test_refused_change_is_not_told(fleet: Store, told: Context) -> None:
    event = create(fleet, told, "solo")

    def cancel_and_fail(tx: Transaction) -> None:
        cancel_event(tx, told, event.event_id)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fleet.write(cancel_and_fail)

    assert phases(fleet) == ["scheduled"]


def test_event_of_a_scope_that_is_gone_is_told(fleet: Store, told: Context) -> None:
    event = create(fleet, told, "solo")
    fleet.write(lambda tx: tx.put_topology(replace(tx.topology(), virtual_machines={}, scopes={})))

    fleet.write(lambda tx: cancel_event(tx, told, event.event_id))

    assert phases(fleet) == ["scheduled", "canceled"]


def test_message_given_up_is_tried_again(fleet: Store, told: Context) -> None:
    create(fleet, told, "solo")
    (message,) = outbox(fleet)
    with pytest.raises(NotificationNotFailedError, match="is waiting"):
        fleet.write(lambda tx: retry_notification(tx, told, message.notification_id))
    fail(fleet, told, message)
    assert fleet.read(lambda reading: reading.next_notifications("ops")) == ()

    fleet.write(lambda tx: retry_notification(tx, told, message.notification_id))

    (again,) = fleet.read(lambda reading: reading.next_notifications("ops"))
    assert replace(again, problem="") == message
    audit = fleet.read(lambda reading: reading.audit())
    assert (audit[-1].action, audit[-1].subject) == ("notification retry", message.notification_id)


def test_message_for_a_target_that_is_gone_is_not_tried_again(
    fleet: Store, told: Context, operator: Context
) -> None:
    create(fleet, told, "solo")
    failed = fail(fleet, told, outbox(fleet)[0])

    with pytest.raises(UnknownTargetError, match="'ops'"):
        fleet.write(lambda tx: retry_notification(tx, operator, failed.notification_id))

    assert outbox(fleet) == [failed]


def test_messages_are_found_page_by_page(fleet: Store, told: Context) -> None:
    for _ in range(3):
        create(fleet, told, "solo")
    ids = [message.notification_id for message in outbox(fleet)]

    def page(older_than: str | None) -> list[str]:
        waiting = NotificationStatus.WAITING
        found = fleet.read(
            lambda at: find_notifications(at, status=waiting, older_than=older_than, limit=2)
        )
        return [message.notification_id for message in found]

    assert [page(None), page(ids[1])] == [ids[1:], ids[:1]]
    with pytest.raises(UnknownNotificationError):
        page("nothing")


def test_unknown_message_is_refused(fleet: Store, told: Context) -> None:
    with pytest.raises(UnknownNotificationError):
        fleet.write(lambda tx: retry_notification(tx, told, "nothing"))


def test_example_is_audited_and_leaves_nothing_in_the_outbox(fleet: Store, told: Context) -> None:
    example = fleet.write(lambda tx: prepare_test(tx, told, "web-team"))

    assert (example.target, example.phase) == ("web-team", Phase.SCHEDULED)
    assert "nothing will happen" in str(example.data["description"])
    assert outbox(fleet) == []
    assert fleet.read(lambda reading: reading.audit())[-1].action == "notification test"
    with pytest.raises(UnknownTargetError, match="'nobody'"):
        fleet.write(lambda tx: prepare_test(tx, told, "nobody"))


def test_example_is_of_a_phase_that_the_target_wants(fleet: Store, operator: Context) -> None:
    late = Target(name="late", phases=(Phase.OVERDUE, Phase.FAILED))
    told = replace(operator, rules=Rules(targets=(late,)))

    example = fleet.write(lambda tx: prepare_test(tx, told, "late"))

    assert (example.phase, example.data["event_status"]) == (Phase.OVERDUE, "Started")


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (Phase.SCHEDULED, {"event_status": "Scheduled", "started_at": None}),
        (Phase.APPROVED, {"event_status": "Scheduled", "approved_by": ["example"]}),
        (Phase.POSTPONED, {"not_before": (NOW + timedelta(minutes=30)).isoformat()}),
        (Phase.STARTED, {"event_status": "Started", "started_at": NOW.isoformat()}),
        (Phase.OVERDUE, {"event_status": "Started", "overdue_at": NOW.isoformat()}),
        (Phase.FINISHED, {"event_status": "Completed", "outcome": "succeeded"}),
        (Phase.FAILED, {"outcome": "failed", "reason": "This is an example."}),
        (Phase.CANCELED, {"event_status": "Canceled", "ended_at": NOW.isoformat()}),
    ],
)
def test_example_looks_like_an_event_of_its_phase(phase: Phase, shown: dict[str, object]) -> None:
    example = example_notification(
        "ops", notification_id="n1", who="alice", now=NOW, at=NOW, phase=phase
    )

    assert example.phase is phase
    assert {key: example.data[key] for key in shown} == shown


def test_messages_for_targets_that_are_gone_are_given_up(fleet: Store, told: Context) -> None:
    event = create(fleet, told, "web-0")
    fleet.write(lambda tx: cancel_event(tx, told, event.event_id))

    number = fleet.write(lambda tx: give_up_orphans(tx, {"web-team"}, now=told.at))

    assert number == 2
    assert [(message.target, message.status) for message in outbox(fleet)] == [
        ("ops", "failed"),
        ("web-team", "waiting"),
        ("ops", "failed"),
    ]


def test_what_has_ended_long_ago_is_forgotten(fleet: Store, told: Context) -> None:
    create(fleet, told, "web-0")
    create(fleet, told, "solo")
    failed, delivered, waiting = outbox(fleet)
    fail(fleet, told, failed)
    done = Delivery(is_delivered=True, answer="204")
    fleet.write(
        lambda tx: record_attempt(tx, delivered, done, now=told.at, retrying=Retrying(), chance=0.5)
    )
    week, quarter = KEPT[NotificationStatus.DELIVERED], KEPT[NotificationStatus.FAILED]

    assert fleet.write(lambda tx: prune_outbox(tx, now=told.at + week)) == 0
    assert fleet.write(lambda tx: prune_outbox(tx, now=told.at + 2 * week)) == 1
    assert fleet.write(lambda tx: prune_outbox(tx, now=told.at + 2 * quarter)) == 1
    assert outbox(fleet) == [waiting]
