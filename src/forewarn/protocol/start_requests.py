"""The body of a POST: which events may start (compatibility.md#post)."""

import json
from collections.abc import Iterable

from forewarn.protocol.errors import MalformedStartRequestsError
from forewarn.protocol.vocabulary import EventId, event_id


def encode_start_requests(event_ids: Iterable[EventId]) -> bytes:
    """Return the body that requests the start of *event_ids*."""
    requests = [{"EventId": identifier} for identifier in event_ids]
    return json.dumps({"StartRequests": requests}, separators=(",", ":")).encode("ascii")


def decode_start_requests(body: bytes) -> tuple[EventId, ...]:
    """Return the events whose start *body* requests, each once, in order.

    DocumentIncarnation never matters, whether stale, missing or a string.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedStartRequestsError(f"The body is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise MalformedStartRequestsError("The body is not a JSON object.")
    requests = content.get("StartRequests")
    if not isinstance(requests, list):
        raise MalformedStartRequestsError("StartRequests is missing or not an array.")
    return tuple(dict.fromkeys(_read_event_id(request) for request in requests))


def _read_event_id(request: object) -> EventId:
    text = request.get("EventId") if isinstance(request, dict) else None
    if not isinstance(text, str) or not text.isascii():
        raise MalformedStartRequestsError(
            "A StartRequest has no EventId, or one that is not a GUID."
        )
    return event_id(text)
