from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.event import (
    Outcome,
    ScheduledEvent,
    cancel,
    complete,
    move_not_before,
    request_start,
    start,
)
from forewarn.domain.publication import FIRST_DOCUMENT, publish, republish, show
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventId, EventStatus


def test_new_scope_is_shown_an_empty_document_of_incarnation_zero() -> None:
    assert Document(document_incarnation=0, events=()) == FIRST_DOCUMENT


def test_scheduled_event_is_shown_as_it_is(event: ScheduledEvent) -> None:
    assert show(event) == Event(
        event_id=event.event_id,
        event_status=event.event_status,
        event_type=event.event_type,
        resources=event.resources,
        not_before=event.not_before,
        description=event.description,
        event_source=event.event_source,
        duration_in_seconds=event.duration_in_seconds,
    )


def test_started_event_shows_empty_not_before(event: ScheduledEvent, now: datetime) -> None:
    shown = show(start(event, now=now))

    assert shown.event_status is EventStatus.STARTED
    assert shown.not_before is None


def test_new_event_raises_the_incarnation_by_one(event: ScheduledEvent) -> None:
    document = publish(FIRST_DOCUMENT, [event])

    assert document == Document(document_incarnation=1, events=(show(event),))


def test_many_new_events_raise_the_incarnation_by_one(event: ScheduledEvent) -> None:
    document = publish(FIRST_DOCUMENT, [event, replace(event, event_id=EventId("E2"))])

    assert document.document_incarnation == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda event: move_not_before(event, event.not_before + timedelta(minutes=5)),
        lambda event: start(event, now=event.not_before),
        lambda event: cancel(event, now=event.created_at),
    ],
    ids=["postponed", "started", "canceled"],
)
def test_visible_change_raises_the_incarnation_by_one(
    event: ScheduledEvent, change: Callable[[ScheduledEvent], ScheduledEvent]
) -> None:
    before = publish(FIRST_DOCUMENT, [event])

    after = publish(before, [change(event)])

    assert after.document_incarnation == before.document_incarnation + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event,
        lambda event: request_start(event, vm=event.resources[0], now=event.created_at),
        lambda event: replace(event, update_domain=1, reason="invisible"),
    ],
    ids=["none", "approved", "invisible"],
)
def test_invisible_change_keeps_the_document(
    event: ScheduledEvent, change: Callable[[ScheduledEvent], ScheduledEvent]
) -> None:
    before = publish(FIRST_DOCUMENT, [event])

    assert publish(before, [change(event)]) == before


def test_completed_event_leaves_the_document(event: ScheduledEvent, now: datetime) -> None:
    started = start(event, now=now)
    before = publish(FIRST_DOCUMENT, [started])

    after = publish(before, [complete(started, outcome=Outcome.SUCCEEDED, now=now)])

    assert after == Document(document_incarnation=2, events=())


def test_unpublished_event_is_never_shown(event: ScheduledEvent, now: datetime) -> None:
    unpublished = replace(start(event, now=now), is_published=False)

    assert publish(FIRST_DOCUMENT, [unpublished]) == FIRST_DOCUMENT


def test_oldest_event_is_shown_first(event: ScheduledEvent) -> None:
    younger = replace(event, created_at=event.created_at + timedelta(seconds=1))
    same_age = replace(event, event_id=EventId("E0"))

    document = publish(FIRST_DOCUMENT, [younger, event, same_age])

    assert document.events == (show(same_age), show(event), show(younger))


def test_order_of_reading_does_not_raise_the_incarnation(event: ScheduledEvent) -> None:
    other = replace(event, event_id=EventId("E2"))
    document = publish(FIRST_DOCUMENT, [event, other])

    assert publish(document, [other, event]) == document


def test_republished_document_is_one_incarnation_on() -> None:
    assert republish(FIRST_DOCUMENT) == Document(document_incarnation=1)


@pytest.mark.parametrize(("incarnation", "above", "expected"), [(3, 0, 4), (3, 7, 8), (7, 3, 8)])
def test_republished_document_is_above_both_incarnations(
    event: ScheduledEvent, incarnation: int, above: int, expected: int
) -> None:
    document = Document(document_incarnation=incarnation, events=(show(event),))

    republished = republish(document, above=above)

    assert republished == replace(document, document_incarnation=expected)
