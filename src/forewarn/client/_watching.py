"""What changes in a document from poll to poll.

Rules of this file: events are compared by their content and found by their EventId. Incarnations
are never compared, because a server may begin to count anew. Trouble ends no watch. A status that
we do not know is no change: nobody should drain or approve for what nobody understands. An event is
gone when two documents in a row lack it, unless the server says what has become of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Final

from forewarn.client._conversations import Conversations, Poll
from forewarn.client._errors import UnavailableError
from forewarn.client._messages import Conversation, Pause
from forewarn.client._retrying import Spell, persist
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventId, EventStatus

POLL_SECONDS: Final = 1.0

_POLL_JITTER: Final = 0.1
_ETAG_SECONDS: Final = 10.0
_LONG_WAIT: Final = 60
_SHORT_WAIT: Final = 1
_PLAIN_SECONDS: Final = 60.0
"""How long a server that does not know our questions is not asked them."""

_ASK_SECONDS: Final = 5.0
"""How long one that is in trouble is asked what has become of an event."""


class ChangeKind(StrEnum):
    """What has become of an event."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    CANCELED = "canceled"
    GONE = "gone"
    """It left the document, and the server cannot say why: Azure never can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event that is new, moved or gone, in its last known form.

    `document_incarnation` is that of the document which showed the change.
    """

    kind: ChangeKind
    event: Event
    document_incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """How one poll of a `watch` went, and how many seconds it took, those of waiting included.

    `trouble` says in words why it brought no answer, and is None if it did.
    """

    seconds: float
    document_incarnation: int
    trouble: str | None = None


_ENDS: Final[Mapping[str, ChangeKind]] = {
    EventStatus.COMPLETED: ChangeKind.COMPLETED,
    EventStatus.CANCELED: ChangeKind.CANCELED,
}
_KINDS: Final[Mapping[str, ChangeKind]] = {
    EventStatus.SCHEDULED: ChangeKind.SCHEDULED,
    EventStatus.STARTED: ChangeKind.STARTED,
    **_ENDS,
}
"""What an event is told as, by the status that a document shows."""

_ENDED: Final = frozenset(_ENDS.values())
_SILENCED_BY: Final[Mapping[ChangeKind, frozenset[ChangeKind]]] = {
    ChangeKind.SCHEDULED: frozenset(),
    ChangeKind.STARTED: frozenset({ChangeKind.STARTED}),
    ChangeKind.COMPLETED: _ENDED,
    ChangeKind.CANCELED: _ENDED,
}
"""Whoever was told one of these last is not told this, whatever else of the event has changed."""


class Watch:
    """Follows one document.

    Polls begin a second apart, but one that brought something by waiting for it is followed by the
    next at once, and so is one without an ETag by one with it: only that can wait.

    The events *known* count as told, with the status they have. Each poll is told to *observe*.
    """

    def __init__(
        self,
        conversations: Conversations,
        known: Iterable[Event] = (),
        observe: Callable[[Polled], None] | None = None,
    ) -> None:
        self._conversations = conversations
        self._conduct = conversations.conduct
        self._spell = Spell(self._conduct.random)
        self._known: Mapping[EventId, Event] = {event.event_id: event for event in known}
        self._told = {
            event_id: Change(kind=kind, event=event, document_incarnation=0)
            for event_id, event in self._known.items()
            if (kind := _KINDS.get(event.event_status)) is not None
        }
        self._observe = observe or (lambda _: None)
        self._incarnation = 0
        self._news: deque[Change] = deque()
        self._departed: deque[Event] = deque()
        self._missed: set[EventId] = set()
        self._etag: str | None = None
        self._etag_expires = -inf
        self._is_waited_for = False
        self._next_poll = -inf
        self._is_plain_until = -inf

    def next_change(self) -> Conversation[Change]:
        """Poll until something has changed."""
        while True:
            if self._news:
                return self._news.popleft()
            if self._departed:
                yield from self._say_farewell()
            else:
                yield from self._look()

    def all_changes(self) -> Conversation[tuple[Change, ...]]:
        """Read the document, and return all that has changed."""
        yield from self._look_once()
        if self._missed:
            yield Pause(POLL_SECONDS)
            yield from self._look_once()
        return tuple(self._news)

    def _look_once(self) -> Conversation[None]:
        self._compare((yield from self._conversations.document()))
        while self._departed:
            yield from self._say_farewell()

    def _look(self) -> Conversation[None]:
        left = self._next_poll - self._conduct.monotonic()
        if left > 0:
            yield Pause(left)
        jitter = self._conduct.random.uniform(1 - _POLL_JITTER, 1 + _POLL_JITTER)
        began = self._conduct.monotonic()
        self._next_poll = began + POLL_SECONDS * jitter
        try:
            polled = yield from self._poll()
        except UnavailableError as error:
            self._etag, self._is_waited_for = None, False
            self._report(began, error.trouble)
            yield Pause(self._spell.suffer(error))
            return
        self._spell.end()
        if polled.document is not None:
            self._compare(polled.document)
        self._report(began)
        if self._is_waited_for and (self._news or self._departed):
            self._next_poll = -inf

    def _poll(self) -> Conversation[Poll]:
        # A server that began to count anew may be at the same number with other content, and what
        # it announces there may be due in half a minute.
        if self._etag is None or self._conduct.monotonic() >= self._etag_expires:
            polled = yield from self._conversations.poll({})
            self._next_poll = -inf if polled.etag else self._next_poll
        else:
            # Only a server that was seen to wait is let wait for long: it may go silent as long.
            wait = _LONG_WAIT if self._is_waited_for else _SHORT_WAIT
            headers = {"If-None-Match": self._etag, "Prefer": f"wait={wait}"}
            polled = yield from self._conversations.poll(headers, wait)
            self._is_waited_for = polled.was_parked
        if polled.document is not None:
            self._etag = polled.etag
            self._etag_expires = self._conduct.monotonic() + _ETAG_SECONDS
        return polled

    def _report(self, began: float, trouble: str | None = None) -> None:
        self._observe(
            Polled(
                seconds=self._conduct.monotonic() - began,
                document_incarnation=self._incarnation,
                trouble=trouble,
            )
        )

    def _compare(self, document: Document) -> None:
        before, self._known = self._known, {event.event_id: event for event in document.events}
        self._incarnation = document.document_incarnation
        self._missed -= self._known.keys()
        for event_id, event in self._known.items():
            kind = _KINDS.get(event.event_status)
            if kind is not None and _is_news(self._told.get(event_id), kind, event):
                self._told[event_id] = self._change(kind, event)
                self._news.append(self._told[event_id])
        for event_id, event in before.items():
            if event_id not in self._known:
                self._take_leave(event)

    def _take_leave(self, event: Event) -> None:
        told = self._told.get(event.event_id)
        if told is not None and told.kind not in _ENDED:
            self._departed.append(event)
        else:
            self._told.pop(event.event_id, None)

    def _say_farewell(self) -> Conversation[None]:
        """Tell the end of the first event that has left, if it is known or was looked for twice."""
        event = self._departed[0]
        kind = yield from self._find_end(event)
        self._departed.popleft()
        if kind is ChangeKind.GONE and event.event_id not in self._missed:
            self._look_again_for(event)
        else:
            self._missed.discard(event.event_id)
            del self._told[event.event_id]
            self._news.append(self._change(kind, event))

    def _look_again_for(self, event: Event) -> None:
        self._missed.add(event.event_id)
        self._known = {**self._known, event.event_id: event}
        self._etag = None  # or the server might wait, and say nothing about it
        self._next_poll = self._conduct.monotonic() + POLL_SECONDS

    def _find_end(self, event: Event) -> Conversation[ChangeKind]:
        if self._conduct.monotonic() < self._is_plain_until:
            return ChangeKind.GONE
        ask = partial(self._conversations.describe, event.event_id)
        try:
            description = yield from persist(ask, replace(self._conduct, patience=_ASK_SECONDS))
        except UnavailableError:
            return ChangeKind.GONE
        if description is None:
            self._is_plain_until = self._conduct.monotonic() + _PLAIN_SECONDS
            return ChangeKind.GONE
        return _ENDS.get(str(description.get("event_status")), ChangeKind.GONE)

    def _change(self, kind: ChangeKind, event: Event) -> Change:
        return Change(kind=kind, event=event, document_incarnation=self._incarnation)


def _is_news(told: Change | None, kind: ChangeKind, event: Event) -> bool:
    return told is None or (told.event != event and told.kind not in _SILENCED_BY[kind])
