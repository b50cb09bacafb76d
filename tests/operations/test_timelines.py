"""What lies between two moments."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from tests.operations.test_foresight import begin

from forewarn.operations import timelines
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, cancel_event, create_events
from forewarn.operations.timelines import Timeline, TimelineOrder, read_timeline
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType

Later = Callable[[datetime], Context]
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def create(store: Store, context: Context, vm: str = "solo") -> EventId:
    order = EventOrder(event_type=EventType.REBOOT, resources=(vm,))
    (event,) = store.write(lambda tx: create_events(tx, context, order))
    return event.event_id


def look(
    store: Store,
    context: Context,
    since: datetime,
    kind: EventType | None = None,
    scope: str = "",
) -> Timeline:
    wanted = TimelineOrder(since=since, until=since + HOUR, event_type=kind, scope=scope)
    return store.read(lambda reading: read_timeline(reading, context, wanted))


def ids(timeline: Timeline) -> list[EventId]:
    return [event.event_id for event in timeline.events]


def test_timeline_has_what_overlaps_with_it(fleet: Store, operator: Context, later: Later) -> None:
    gone, waits = create(fleet, operator), create(fleet, operator, "web-0")
    ended = operator.now + 90 * MINUTE
    fleet.write(lambda tx: cancel_event(tx, later(ended), gone))

    assert ids(look(fleet, operator, operator.now - HOUR)) == []
    assert ids(look(fleet, operator, operator.now)) == [gone, waits]
    assert ids(look(fleet, operator, operator.now + HOUR)) == [gone, waits]
    assert ids(look(fleet, operator, operator.now + 2 * HOUR)) == [waits]


def test_timeline_can_be_limited_to_a_type(fleet: Store, operator: Context) -> None:
    reboot = create(fleet, operator)

    assert ids(look(fleet, operator, operator.now, EventType.REBOOT)) == [reboot]
    assert ids(look(fleet, operator, operator.now, EventType.FREEZE)) == []


def test_store_is_asked_for_scopes_that_are_known(fleet: Store, operator: Context) -> None:
    solo, web = create(fleet, operator), create(fleet, operator, "web-0")
    fleet.write(lambda tx: [cancel_event(tx, operator, event) for event in (solo, web)])

    assert ids(look(fleet, operator, operator.now, scope="SOL")) == [solo]
    assert ids(look(fleet, operator, operator.now, scope="gone")) == [solo, web]


def test_steps_to_come_are_foreseen_where_they_are_likely(fleet: Store, operator: Context) -> None:
    begin(fleet, operator)
    now = operator.now

    assert len(look(fleet, operator, now).foreseen) == 2
    assert len(look(fleet, operator, now + 30 * MINUTE).foreseen) == 1
    assert look(fleet, operator, now, EventType.FREEZE).foreseen == ()
    assert look(fleet, operator, now - 3 * HOUR).foreseen == (), "the past is over"
    assert look(fleet, operator, now + 3 * HOUR).foreseen == ()
    assert len(look(fleet, operator, now).maintenances) == 1


def test_old_events_are_left_out_if_there_are_too_many(
    fleet: Store, operator: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "MOST_EVENTS", 1)
    gone = create(fleet, operator)
    assert not look(fleet, operator, operator.now).is_cut

    fleet.write(lambda tx: cancel_event(tx, operator, gone))

    assert look(fleet, operator, operator.now).is_cut
