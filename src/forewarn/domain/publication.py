"""What a delivery scope is shown, and the number that tells one showing from the next."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.topology import resource_names
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventStatus

FIRST_DOCUMENT: Final = Document(document_incarnation=0)
"""What a new scope is shown."""


def publish(document: Document, events: Iterable[ScheduledEvent]) -> Document:
    """Return the scope's next document, oldest event first: one incarnation on if it differs."""
    shown = tuple(
        show(event)
        for event in sorted(events, key=lambda event: (event.created_at, event.event_id))
        if event.is_in_flight and event.is_published
    )
    if shown == document.events:
        return document
    return Document(document_incarnation=document.document_incarnation + 1, events=shown)


def republish(document: Document, *, above: int = 0) -> Document:
    """Return the same events under a new incarnation, higher than *above* too.

    For a restored backup, and for a virtual machine that joins: neither may show a number again
    that has been read already.
    """
    incarnation = max(document.document_incarnation, above) + 1
    return replace(document, document_incarnation=incarnation)


def show(event: ScheduledEvent) -> Event:
    """Return *event* as a virtual machine reads it."""
    is_started = event.event_status is EventStatus.STARTED
    return Event(
        event_id=event.event_id,
        event_status=event.event_status,
        event_type=event.event_type,
        resources=resource_names(event.resources, event.scope_id),
        not_before=None if is_started else event.not_before,
        description=event.description,
        event_source=event.event_source,
        duration_in_seconds=event.duration_in_seconds,
    )
