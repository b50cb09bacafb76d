"""The document a virtual machine reads: one encoder per api-version, one lenient decoder for all.

Rules of this file: the server writes exactly the fields of the version that was asked for, in the
observed order, compact; the client side reads whatever a metadata server may send
(compatibility.md#documents).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

from forewarn.protocol.dates import read_date, write_date
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.protocol.identity import Identity, names, spell
from forewarn.protocol.versions import ApiVersion
from forewarn.protocol.vocabulary import (
    EventId,
    EventSource,
    EventStatus,
    EventType,
    ResourceType,
    event_id,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One item of `Events`, as a virtual machine reads it.

    Words this release does not know stay plain strings. `not_before` is None where the document
    gives no date, as once the event has started; `event_source` where the api-version has none;
    `duration_in_seconds` when it is not known.
    """

    event_id: EventId
    event_status: EventStatus | str
    event_type: EventType | str
    resource_type: ResourceType | str = ResourceType.VIRTUAL_MACHINE
    resources: tuple[str, ...]
    not_before: datetime | None = None
    description: str = ""
    event_source: EventSource | str | None = None
    duration_in_seconds: int | None = None

    def affects(self, me: Identity | str) -> bool:
        """Tell whether *me* is among the resources, by whichever of its names."""
        known = names(me)
        return any(spell(resource) in known for resource in self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What one delivery scope is told: everything that is about to happen to it."""

    document_incarnation: int
    events: tuple[Event, ...] = ()


def encode_document(document: Document, version: ApiVersion) -> bytes:
    """Return *document* as *version* shows it, events of newer types left out."""
    body = write_document(document, version)
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def write_document(document: Document, version: ApiVersion) -> dict[str, Any]:
    """Return the JSON object that shows *document*, with the fields of *version*."""
    events = [
        write_event(event, version)
        for event in document.events
        if event.event_type in version.event_types
    ]
    return {"DocumentIncarnation": document.document_incarnation, "Events": events}


def write_event(event: Event, version: ApiVersion) -> dict[str, object]:
    """Return *event* as an item of `Events` with the fields of *version*."""
    return {name: _WRITERS[name](event, version) for name in version.fields}


def read_event(item: Mapping[str, Any]) -> Event:
    """Return the event in an item of `Events` that has an EventId."""
    duration = _read_whole_number(item.get("DurationInSeconds"))
    source = _read_text(item.get("EventSource"))
    return Event(
        event_id=event_id(item["EventId"]),
        event_status=_read_word(EventStatus, _read_text(item.get("EventStatus"))),
        event_type=_read_word(EventType, _read_text(item.get("EventType"))),
        resource_type=_read_word(ResourceType, _read_text(item.get("ResourceType"))),
        resources=_read_names(item.get("Resources")),
        not_before=read_date(item.get("NotBefore")),
        description=_read_text(item.get("Description")),
        event_source=_read_word(EventSource, source) if source else None,
        duration_in_seconds=None if duration is None or duration < 0 else duration,
    )


def decode_document(body: bytes) -> Document | None:
    """Return the document in *body*, or None when it is empty (compatibility.md#empty-bodies)."""
    if not body.strip():
        return None
    return read_document(_read_json_object(body))


def read_document(content: Mapping[str, Any]) -> Document:
    """Return the document that the JSON object *content* shows."""
    incarnation = _read_whole_number(content.get("DocumentIncarnation"))
    if incarnation is None:
        raise MalformedDocumentError("DocumentIncarnation is missing or not a whole number.")
    events = content.get("Events")
    if not isinstance(events, list):
        raise MalformedDocumentError("Events is missing or not an array.")
    return Document(
        document_incarnation=incarnation,
        events=tuple(read_event(event) for event in events if _has_event_id(event)),
    )


def _write_not_before(event: Event, version: ApiVersion) -> str:
    if event.event_status == EventStatus.STARTED or event.not_before is None:
        return ""
    return write_date(event.not_before, version.not_before)


_WRITERS: Final[Mapping[str, Callable[[Event, ApiVersion], object]]] = {
    "EventId": lambda event, _: event.event_id,
    "EventStatus": lambda event, _: event.event_status,
    "EventType": lambda event, _: event.event_type,
    "ResourceType": lambda event, _: event.resource_type,
    "Resources": lambda event, _: list(event.resources),
    "NotBefore": _write_not_before,
    "Description": lambda event, _: event.description,
    "EventSource": lambda event, _: event.event_source or EventSource.PLATFORM,
    "DurationInSeconds": lambda event, _: (
        -1 if event.duration_in_seconds is None else event.duration_in_seconds
    ),
}


def _read_json_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedDocumentError(f"The document is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise MalformedDocumentError("The document is not a JSON object.")
    return content


def _has_event_id(event: object) -> bool:
    # An event nobody can name cannot be approved or followed; it must not hide the others.
    return isinstance(event, dict) and isinstance(event.get("EventId"), str)


_Word = TypeVar("_Word", bound=StrEnum)


def _read_word(words: type[_Word], text: str) -> _Word | str:
    try:
        return words(text)
    except ValueError:
        return text


def _read_names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _read_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _read_whole_number(value: object) -> int | None:
    # bool is an int to Python; the 2017 samples type the incarnation as a string.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,40}", value):
        return int(value)
    return None
