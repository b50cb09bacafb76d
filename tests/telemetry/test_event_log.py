"""The log lines about events, read from the ledger of a real store."""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.waiting import wait_until

from forewarn.domain.event import Outcome
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    complete_event,
    create_events,
    start_event,
)
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Reading, Store, StoreUnavailableError, Transaction
from forewarn.protocol.vocabulary import EventId, EventType, event_id
from forewarn.storage.sqlite import open_sqlite
from forewarn.telemetry.event_log import EventLog

TIMEOUT = 45
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
FLEET = """
[[virtual_machine]]
name = "solo"
"""


@pytest.fixture
def operator() -> Context:
    numbers = count(1)
    return Context(who="alice", now=NOW, at=NOW, new_id=lambda: event_id(f"{next(numbers):032x}"))


@pytest.fixture
def store(tmp_path: Path, operator: Context) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    opened.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(FLEET)))
    yield opened
    opened.close()


@contextmanager
def logged(
    store: Store, leads: Callable[[], bool] = lambda: True
) -> Iterator[list[MutableMapping[str, Any]]]:
    """Log what happens to events; complete when this ends."""
    event_log = EventLog(store, leads=leads)
    store.listen(event_log.note)
    thread = threading.Thread(target=event_log.rounds.run)
    with capture_logs() as lines:
        thread.start()
        yield lines
        event_log.rounds.stop()
        thread.join(TIMEOUT)
    assert not thread.is_alive(), "the event log did not end"


def announce(store: Store, operator: Context) -> EventId:
    order = EventOrder(event_type=EventType.REBOOT, resources=("solo",))
    (event,) = store.write(lambda tx: create_events(tx, operator, order))
    return event.event_id


def test_each_change_of_an_event_is_one_line(store: Store, operator: Context) -> None:
    with logged(store) as lines:
        event = announce(store, operator)
        store.write(lambda tx: approve_event(tx, operator, event))
        store.write(lambda tx: start_event(tx, operator, event))
        store.write(lambda tx: complete_event(tx, operator, event))

    assert [(line["what"], line["outcome"]) for line in lines] == [
        ("scheduled", None),
        ("approved", None),
        ("started", None),
        ("completed", "succeeded"),
    ]
    assert lines[0] == {
        "event": "event_changed",
        "log_level": "info",
        "what": "scheduled",
        "sequence": 1,
        "event_id": event,
        "event_type": "Reboot",
        "scope_id": "virtual-machine/solo",
        "resources": ["solo"],
        "host": None,
        "maintenance_id": None,
        "outcome": None,
        "who": "alice",
        "detail": "",
        "at": "2026-01-05T08:00:00+00:00",
    }
    assert len({frozenset(line) for line in lines}) == 1


def test_failure_is_a_warning(store: Store, operator: Context) -> None:
    with logged(store) as lines:
        event = announce(store, operator)
        store.write(lambda tx: start_event(tx, operator, event))
        store.write(lambda tx: complete_event(tx, operator, event, Outcome.FAILED, "no power"))

    assert [(line["log_level"], line["detail"]) for line in lines[1:]] == [
        ("info", ""),
        ("warning", "no power"),
    ]


def test_what_is_not_committed_is_not_logged(store: Store, operator: Context) -> None:
    def fail(tx: Transaction) -> None:
        create_events(tx, operator, EventOrder(event_type=EventType.FREEZE, resources=("solo",)))
        raise RuntimeError

    with logged(store) as lines:
        with pytest.raises(RuntimeError):
            store.write(fail)
        announce(store, operator)

    assert [line["event_type"] for line in lines] == ["Reboot"]


def test_what_was_committed_before_the_start_is_not_logged_again(
    store: Store, operator: Context
) -> None:
    event = announce(store, operator)

    with logged(store) as lines:
        store.write(lambda tx: start_event(tx, operator, event))

    assert [line["what"] for line in lines] == ["started"]


def test_many_changes_at_once_are_all_logged_in_order(store: Store, operator: Context) -> None:
    moments = [replace(operator, now=NOW.replace(minute=minute)) for minute in range(60)]

    def announce_often(tx: Transaction) -> None:
        for context in moments * 5:
            create_events(tx, context, EventOrder(event_type=EventType.FREEZE, resources=("solo",)))

    with logged(store) as lines:
        store.write(announce_often)

    assert [line["at"] for line in lines] == [context.now.isoformat() for context in moments * 5]


def test_store_that_cannot_be_read_does_not_keep_the_server_from_stopping(
    store: Store, operator: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_log = EventLog(store)
    announce(store, operator)

    def refuse(look: Callable[[Reading], object]) -> None:
        raise StoreUnavailableError(f"{look} cannot be read now.")

    monkeypatch.setattr(store, "read", refuse)
    with capture_logs() as lines:
        event_log.rounds.stop()
        event_log.rounds.run()

    assert [line["event"] for line in lines] == ["event_log_waits_for_store"]


def test_replica_that_follows_logs_nothing(store: Store, operator: Context) -> None:
    with logged(store, leads=lambda: False) as lines:
        announce(store, operator)

    assert lines == []


def test_new_leader_logs_what_the_last_may_have_left(store: Store, operator: Context) -> None:
    leading = threading.Event()

    with logged(store, leads=leading.is_set) as lines:
        announce(store, operator)
        leading.set()
        wait_until(lambda: lines, "the new leader to log")

    assert [line["what"] for line in lines] == ["scheduled"]


def test_leader_that_stops_logs_what_it_did_before_it_resigned(
    store: Store, operator: Context
) -> None:
    leading = threading.Event()
    leading.set()

    with logged(store, leads=leading.is_set) as lines:
        first = announce(store, operator)
        wait_until(lambda: lines, "the leader to log")
        leading.clear()
        store.write(lambda tx: start_event(tx, operator, first))

    assert [line["what"] for line in lines] == ["scheduled", "started"]


def test_what_another_had_time_to_log_is_forgotten(
    store: Store, operator: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.telemetry.event_log._HELD_SECONDS", -1.0)
    leading = threading.Event()
    event_log = EventLog(store, leads=leading.is_set)
    announce(store, operator)

    with capture_logs() as lines:
        event_log._catch_up()  # noqa: SLF001
        leading.set()
        event_log._catch_up()  # noqa: SLF001

    assert lines == []
