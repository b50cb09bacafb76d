"""The courier, on a real store: it neither loses nor reorders nor repeats for no reason."""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest
from structlog.testing import capture_logs

from forewarn.clocks import SystemClock
from forewarn.domain.notification import Delivery, Notification, NotificationStatus, Retrying
from forewarn.notifications.outbox import Courier
from forewarn.ports.store import Store
from forewarn.storage.sqlite import open_sqlite

SECONDS = 45
DELIVERED = Delivery(is_delivered=True, answer="204")
REFUSED = Delivery(is_delivered=False, answer="503")


class Answers:
    """A way that answers as it is told, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.answer: Callable[[Notification], Delivery] = lambda _: DELIVERED

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        assert now.tzinfo is not None
        self.given.append(notification.notification_id)
        return self.answer(notification)

    def close(self) -> None: ...


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "forewarn.db"


@pytest.fixture
def store(database: Path) -> Iterator[Store]:
    opened = open_sqlite(database)
    yield opened
    opened.close()


@pytest.fixture
def way() -> Answers:
    return Answers()


@pytest.fixture
def courier(store: Store, way: Answers) -> Courier:
    epoch = store.write(lambda tx: tx.next_epoch())
    made = Courier(
        "ops",
        way,
        store=store,
        wall=SystemClock(),
        retrying=Retrying(first=timedelta(milliseconds=1), attempts=3),
        chance=lambda: 0.5,
        epoch=epoch,
    )
    store.listen(made.note)
    return made


@contextmanager
def running(courier: Courier) -> Iterator[None]:
    thread = threading.Thread(target=courier.rounds.run)
    thread.start()
    try:
        yield
    finally:
        courier.rounds.stop()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the courier does not stop"


def put(store: Store, message: Notification, number: int, event: str = "E1") -> None:
    new = replace(message, notification_id=f"n{number}", subject=event)
    store.write(lambda tx: tx.put_notification(new))


def wait_until(is_so: Callable[[], bool], reason: str) -> None:
    deadline = monotonic() + SECONDS
    while not is_so():
        assert monotonic() < deadline, reason
        sleep(0.005)


def is_settled(store: Store) -> bool:
    waiting = NotificationStatus.WAITING
    return not store.read(lambda reading: reading.notifications(status=waiting))


def test_messages_of_an_event_go_in_order_and_others_pass(
    store: Store, courier: Courier, way: Answers, message: Notification
) -> None:
    refused = iter([REFUSED, REFUSED])
    way.answer = lambda each: next(refused, DELIVERED) if each.event_id == "E1" else DELIVERED
    put(store, message, 1)
    put(store, message, 2)
    put(store, message, 3, event="E2")

    with running(courier):
        wait_until(lambda: is_settled(store), "messages still wait")

    assert [each for each in way.given if each != "n3"] == ["n1", "n1", "n1", "n2"]
    assert way.given.count("n3") == 1
    assert way.given.index("n3") < way.given.index("n2")


def test_new_message_wakes_the_courier(
    store: Store, courier: Courier, way: Answers, message: Notification
) -> None:
    with running(courier):
        sleep(0.1)
        put(store, message, 1)
        wait_until(lambda: is_settled(store), "the courier sleeps")

    assert way.given == ["n1"]


def test_message_is_given_up_and_logged_and_the_next_goes(
    store: Store, courier: Courier, way: Answers, message: Notification
) -> None:
    way.answer = lambda each: REFUSED if each.notification_id == "n1" else DELIVERED
    put(store, message, 1)
    put(store, message, 2)

    with capture_logs() as logs, running(courier):
        wait_until(lambda: is_settled(store), "messages still wait")

    assert way.given == ["n1", "n1", "n1", "n2"]
    assert [line["event"] for line in logs] == [
        "notification_not_delivered",
        "notification_given_up",
    ]


def test_way_that_breaks_is_one_more_failed_attempt(
    store: Store, courier: Courier, way: Answers, message: Notification
) -> None:
    def broken(_: Notification) -> Delivery:
        raise RuntimeError("hush")

    way.answer = broken
    put(store, message, 1)

    with capture_logs() as logs, running(courier):
        wait_until(lambda: is_settled(store), "messages still wait")

    assert [line["event"] for line in logs].count("notifier_failed") == 1
    (failed,) = store.read(lambda reading: reading.notifications())
    assert (failed.attempts, failed.status) == (3, NotificationStatus.FAILED)
    assert failed.problem == "The server failed to send the message: RuntimeError."


def test_full_disk_does_not_repeat_a_message_over_and_over(
    store: Store, courier: Courier, way: Answers, message: Notification, database: Path
) -> None:
    put(store, message, 1)
    put(store, message, 2)

    def fill(_: Notification) -> Delivery:
        log = database.with_name("forewarn.db-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
        way.answer = lambda _: DELIVERED
        return DELIVERED

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    way.answer = fill
    with capture_logs() as logs, running(courier):
        try:
            wait_until(
                lambda: any(line["event"] == "courier_waits_for_store" for line in logs),
                "the disk is not full",
            )
            sleep(1.2)
            assert way.given == ["n1"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        wait_until(lambda: is_settled(store), "messages still wait")

    assert way.given == ["n1", "n2"]


def test_courier_without_the_lease_ends(
    store: Store, courier: Courier, way: Answers, message: Notification
) -> None:
    def stop(_: Notification) -> Delivery:
        courier.rounds.stop()  # or it would wait for the next message
        return DELIVERED

    way.answer = stop
    store.write(lambda tx: tx.next_epoch())
    put(store, message, 1)

    courier.rounds.run()

    assert way.given == []
