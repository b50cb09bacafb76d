"""What virtual machines asked and were answered, as a server for tests keeps it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from forewarn.domain.names import VmName
from forewarn.protocol.errors import MalformedStartRequestsError
from forewarn.protocol.start_requests import decode_start_requests
from forewarn.protocol.vocabulary import SCHEDULED_EVENTS_PATH, EventId


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JournalEntry:
    """One request and its answer. *at* is real time; *seconds* is how long the answer took.

    *vm* is None if the caller is not a virtual machine of the fleet. *method* and *path* are empty
    if the request could not be read. There is no *status* while it is being answered, and none if
    the connection ended first; *is_reset* if a fault ended it. *body* is what was sent, as far as
    the endpoint takes it, and *answer* the body of the answer.
    """

    sequence: int
    vm: VmName | None
    at: datetime
    maintenance_time: datetime
    method: str
    path: str
    body: bytes = b""
    status: int | None = None
    answer: bytes = b""
    seconds: float | None = None
    is_reset: bool = False

    @property
    def is_poll(self) -> bool:
        """Whether it asks for the document."""
        return self.method == "GET" and self._is_about_document

    @property
    def has_read(self) -> bool:
        """Whether it is a poll that was answered: with the document, or that it is the same."""
        return self.is_poll and self.status in {200, 304}

    @property
    def is_start_request(self) -> bool:
        """Whether it means to approve events."""
        return self.method == "POST" and self._is_about_document

    @property
    def _is_about_document(self) -> bool:
        return self.path.partition("?")[0].lower().rstrip("/").endswith(SCHEDULED_EVENTS_PATH)

    def shows(self, event_id: EventId) -> bool:
        """Tell whether the answer is a document with that event."""
        is_document = self.is_poll and self.status == 200
        return is_document and event_id.lower().encode() in self.answer.lower()

    @property
    def approved(self) -> tuple[EventId, ...]:
        """The events that it approved, if it was accepted."""
        if self.is_start_request and self.status == 200:
            with suppress(MalformedStartRequestsError):  # a fault may have answered it
                return decode_start_requests(self.body)
        return ()

    @property
    def document_incarnation(self) -> int | None:
        """The DocumentIncarnation that a poll was shown; a 304 shows none."""
        number = _read_object(self.answer).get("DocumentIncarnation") if self.is_poll else None
        return number if isinstance(number, int) else None

    @property
    def error(self) -> str:
        """The sentence that it was refused with, if it was."""
        refused = self.status is not None and self.status >= 400
        return str(_read_object(self.answer).get("error", "")) if refused else ""

    @property
    def outcome(self) -> str:
        """What became of it, in a few words."""
        if self.status is not None:
            return f"{self.status} {self.error}".rstrip()
        if self.is_reset:
            return "reset"
        return "being answered" if self.seconds is None else "not answered"

    @property
    def request(self) -> str:
        """What was asked, in a few words."""
        return f"{self.method} {self.path}" if self.method else "unreadable bytes"

    def __str__(self) -> str:
        taken = "" if self.seconds is None else f" in {self.seconds:.3f} s"
        return f"{self.at:%H:%M:%S} {self.request}: {self.outcome}{taken}"

    def __repr__(self) -> str:
        return f"<{self.vm or 'unknown caller'} {self}>"


class Journal(Protocol):
    """The requests there were, as the metadata endpoint tells of them; from any thread."""

    def begin(self, vm: VmName | None, method: str, path: str) -> JournalEntry:
        """Write down that a request has come, and return its entry."""

    def end(self, entry: JournalEntry) -> None:
        """Put *entry*, which now says how it ended, in place of the one that has begun."""


def _read_object(body: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:  # what a fault has spoiled
        return {}
    return content if isinstance(content, dict) else {}
