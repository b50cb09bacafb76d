"""What a failed test shows: the documents, and everything that has happened."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.operations.events import find_event
from forewarn.operations.inventory import find_vm
from forewarn.ports.journal import JournalEntry
from forewarn.ports.store import Reading
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventId

ALL: Final = 1_000_000
"""A limit that no test reaches."""
_LAST: Final = 5
"""How many requests of each virtual machine are shown."""


def describe_everything(reading: Reading, now: datetime) -> str:
    """Return every document that has something in it, and the life of every event."""
    lines = [f"It is {_time(now)}, in virtual time."]
    for scope_id, document in reading.documents().items():
        if document.events:
            lines += _document_lines(scope_id, document)
    events = reading.events(limit=ALL)
    for event in events:
        lines += _ledger_lines(reading, event.event_id)
    if not events:
        lines.append("No events yet.")
    return "\n".join(lines)


def describe_event(reading: Reading, event_id: EventId, now: datetime) -> str:
    """Return the document of an event's scope, and its life."""
    event = find_event(reading, event_id)
    document = reading.document(event.scope_id)
    lines = [f"It is {_time(now)}, in virtual time."]
    lines += _document_lines(event.scope_id, document)
    lines += _ledger_lines(reading, event_id)
    return "\n".join(lines)


def describe_scope(reading: Reading, vm: str) -> str:
    """Return the document that *vm* reads."""
    scope_id = find_vm(reading.topology(), vm).scope_id
    return "\n".join(_document_lines(scope_id, reading.document(scope_id)))


def request_lines(requests: Iterable[JournalEntry]) -> Iterator[str]:
    """Yield the last requests of each virtual machine, and of unknown callers."""
    by_vm: dict[str | None, list[JournalEntry]] = {}
    for entry in requests:
        by_vm.setdefault(entry.vm, []).append(entry)
    for vm, entries in by_vm.items():
        some = "" if len(entries) <= _LAST else f", the last {_LAST} of {len(entries)}"
        yield f"Requests of {vm or 'unknown callers'}{some}:"
        yield from (f"  {entry}" for entry in entries[-_LAST:])


def title_of(event: Event | ScheduledEvent) -> str:
    """Return what happens to whom: Reboot of web-0."""
    return f"{event.event_type} of {', '.join(event.resources)}"


def _document_lines(scope_id: str, document: Document) -> Iterator[str]:
    yield f"Document of {scope_id}, incarnation {document.document_incarnation}:"
    for event in document.events:
        yield f"  {event.event_id}  {event.event_status} {_summary(event)}"
    if not document.events:
        yield "  (no events)"


def _summary(event: Event) -> str:
    when = f", not before {_time(event.not_before)}" if event.not_before else ""
    return f"{title_of(event)}{when}"


def _ledger_lines(reading: Reading, event_id: EventId) -> Iterator[str]:
    event = find_event(reading, event_id)
    yield f"Ledger of {event_id}, {title_of(event)}:"
    for entry in reading.ledger(event_id):
        detail = f" ({entry.detail})" if entry.detail else ""
        yield f"  {_time(entry.at)}  {entry.what} by {entry.who}{detail}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
