"""What every store promises of the outbox."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.contracts.conftest import OpenStore

from forewarn.domain.notification import Notification, NotificationStatus, Phase
from forewarn.ports.changes import StoreChange
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId

NOW = datetime(2026, 1, 5, 8, 0, 0, 123456, tzinfo=UTC)


def message(number: int, event: str = "E1", target: str = "ops") -> Notification:
    return Notification(
        notification_id=f"n{number}",
        subject=EventId(event),
        phase=Phase.STARTED,
        target=target,
        data={"resources": ["web-0"], "description": "Größe 東京", "duration_in_seconds": None},
        created_at=NOW,
        maintenance_time=NOW + timedelta(days=1),
        next_attempt_at=NOW,
    )


def put(store: Store, *messages: Notification) -> None:
    def work_of(each: Notification) -> None:
        store.write(lambda tx: tx.put_notification(each))

    for each in messages:
        work_of(each)


def heads(store: Store, target: str = "ops") -> list[str]:
    found = store.read(lambda reading: reading.next_notifications(target))
    return [each.notification_id for each in found]


def test_message_comes_back_as_it_was_after_a_restart(open_store: OpenStore) -> None:
    sent = replace(
        message(1),
        status=NotificationStatus.FAILED,
        attempts=3,
        ended_at=NOW + timedelta(microseconds=1),
        problem="503",
    )
    store = open_store()
    put(store, sent)
    store.close()

    again = open_store()
    assert again.read(lambda reading: reading.notification("n1")) == sent
    assert again.read(lambda reading: reading.notification("n2")) is None
    again.close()


def test_first_waiting_message_of_each_event_is_next(store: Store) -> None:
    put(store, message(1), message(2), message(3, event="E2"), message(4, target="others"))
    assert heads(store) == ["n1", "n3"]
    assert heads(store, "others") == ["n4"]

    put(store, replace(message(1), next_attempt_at=NOW + timedelta(seconds=1)))
    assert heads(store) == ["n3", "n1"], "a message in back-off holds up its own event only"

    put(store, replace(message(1), status=NotificationStatus.DELIVERED, ended_at=NOW))
    assert heads(store) == ["n2", "n3"]


def test_messages_are_found_by_status_newest_last(store: Store) -> None:
    failed = replace(message(2), status=NotificationStatus.FAILED, ended_at=NOW)
    put(store, message(1), failed, message(3))

    def ids(status: NotificationStatus | None, limit: int) -> list[str]:
        found = store.read(lambda reading: reading.notifications(status=status, limit=limit))
        return [each.notification_id for each in found]

    assert ids(None, 10) == ["n1", "n2", "n3"]
    assert ids(None, 2) == ["n2", "n3"]
    assert ids(NotificationStatus.FAILED, 10) == ["n2"]
    assert store.read(lambda reading: reading.targets_waited_for()) == ("ops",)


def test_listeners_hear_of_the_outbox(store: Store) -> None:
    heard: list[StoreChange] = []

    def hear(change: StoreChange) -> None:
        heard.append(change)

    store.listen(hear)

    store.write(lambda tx: tx.put_setting("clock", "real"))
    put(store, message(1))

    assert heard == [StoreChange(has_outbox_grown=True)]


def test_figures_tell_what_waits_and_since_when(store: Store) -> None:
    assert (store.figures().notifications, store.figures().waiting_since) == ({}, None)

    younger = replace(message(1), created_at=NOW + timedelta(minutes=1))
    failed = replace(message(3), status=NotificationStatus.FAILED, created_at=NOW, ended_at=NOW)
    put(store, younger, replace(message(2), created_at=NOW + timedelta(minutes=2)), failed)

    figures = store.figures()
    assert figures.notifications == {NotificationStatus.WAITING: 2, NotificationStatus.FAILED: 1}
    assert figures.waiting_since == younger.created_at


def test_messages_about_an_event_do_not_wait_for_those_about_its_maintenance(store: Store) -> None:
    about_maintenance = replace(message(1, "m1"), phase=Phase.HELD)

    put(store, about_maintenance, message(2), replace(message(3, "m1"), phase=Phase.RESUMED))

    heads = store.read(lambda reading: reading.next_notifications("ops"))
    assert [each.notification_id for each in heads] == ["n1", "n2"]
    assert [(each.event_id, each.maintenance_id) for each in heads] == [(None, "m1"), ("E1", None)]
