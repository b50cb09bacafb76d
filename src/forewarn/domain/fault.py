"""How a server can be told to misbehave towards one virtual machine: docs/reference/faults.md."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from typing import Final

from forewarn.domain.errors import InvalidError
from forewarn.protocol.vocabulary import EventType

UNKNOWN_TYPE: Final = "Hibernate"
"""The EventType that `unknown-type` shows unless it is given another."""

HTTP_ERRORS: Final = frozenset(
    {*range(400, 419), *range(421, 427), 428, 429, 431, 451, *range(500, 509), 510, 511}
)
"""The statuses of errors that HTTP has."""


class FaultKind(StrEnum):
    """What goes wrong."""

    SLOW = "slow"
    RESET = "reset"
    CLOSE = "close"
    DRIP = "drip"
    STATUS = "status"
    FAILED_POST = "failed-post"
    HTML = "html"
    REDIRECT = "redirect"
    EMPTY_BODY = "empty-body"
    TRUNCATED = "truncated"
    LONG_LENGTH = "long-length"
    SHORT_LENGTH = "short-length"
    BOM = "bom"
    PLAIN_TEXT = "plain-text"
    PUBLISH_DELAY = "publish-delay"
    STALE = "stale"
    INCARNATION_RESET = "incarnation-reset"
    INCARNATION_JUMP = "incarnation-jump"
    STRING_INCARNATION = "string-incarnation"
    VANISH = "vanish"
    SECOND_IMPACT = "second-impact"
    DUPLICATE_EVENTS = "duplicate-events"
    NULL_EVENTS = "null-events"
    NOT_BEFORE_SLIP = "not-before-slip"
    SHORT_NOTICE = "short-notice"
    WRONG_WEEKDAY = "wrong-weekday"
    ISO_DATE = "iso-date"
    EMPTY_NOT_BEFORE = "empty-not-before"
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_STATUS = "unknown-status"
    LOWER_CASE_IDS = "lower-case-ids"
    EXTRA_FIELDS = "extra-fields"
    MISSING_FIELDS = "missing-fields"
    CAMEL_CASE = "camel-case"


class FaultPart(StrEnum):
    """What a fault is a fault of."""

    CONNECTION = "Connection"
    ANSWER = "Answer"
    DOCUMENT = "Document"


_SECONDS: Final = frozenset({"seconds"})
_TIMES: Final = frozenset({"times"})
_NOTHING: Final = frozenset[str]()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTraits:
    """What a virtual machine notices of a kind of fault, what it must say, and what it may say.

    A scenario that is sped up divides *seconds* that are *of_maintenance_time*.
    """

    part: FaultPart
    effect: str
    needed: frozenset[str] = _NOTHING
    optional: frozenset[str] = _TIMES
    of_maintenance_time: bool = False


_connection: Final = partial(FaultTraits, part=FaultPart.CONNECTION)
_answer: Final = partial(FaultTraits, part=FaultPart.ANSWER)
_document: Final = partial(FaultTraits, part=FaultPart.DOCUMENT)

FAULTS: Final[Mapping[FaultKind, FaultTraits]] = {
    FaultKind.SLOW: _connection(effect="Answers arrive late, in real time.", needed=_SECONDS),
    FaultKind.RESET: _connection(effect="The connection is reset without an answer."),
    FaultKind.CLOSE: _connection(
        effect="The server handles the request and closes the connection without an answer."
    ),
    FaultKind.DRIP: _connection(
        effect="The body arrives a few bytes at a time, in real time.", needed=_SECONDS
    ),
    FaultKind.STATUS: _answer(
        effect="Requests get an HTTP error, optionally with Retry-After.",
        needed=frozenset({"status"}),
        optional=frozenset({"retry_after", "times"}),
    ),
    FaultKind.FAILED_POST: _answer(
        effect="POSTs get an HTTP error, or without a status, a reset connection.",
        optional=frozenset({"status", "times"}),
    ),
    FaultKind.HTML: _answer(effect="Requests get 200 with an HTML page, as from a proxy."),
    FaultKind.REDIRECT: _answer(effect="Requests get 302 with the address of a login page."),
    FaultKind.EMPTY_BODY: _answer(effect="Polls get 200 with an empty body and no ETag."),
    FaultKind.TRUNCATED: _answer(effect="Half of the body arrives, then the connection is closed."),
    FaultKind.LONG_LENGTH: _answer(
        effect="Content-Length is larger than the body, and the connection stays open."
    ),
    FaultKind.SHORT_LENGTH: _answer(effect="Content-Length is half the size of the body."),
    FaultKind.BOM: _answer(effect="The body begins with a UTF-8 byte order mark."),
    FaultKind.PLAIN_TEXT: _answer(effect="Content-Type is text/plain."),
    FaultKind.PUBLISH_DELAY: _document(
        effect="New documents appear late, in maintenance time.",
        needed=_SECONDS,
        optional=_NOTHING,
        of_maintenance_time=True,
    ),
    FaultKind.STALE: _document(
        effect="Polls get the document that was current when the fault was set."
    ),
    FaultKind.INCARNATION_RESET: _document(
        effect="DocumentIncarnation and ETag count from 0 again.", optional=_NOTHING
    ),
    FaultKind.INCARNATION_JUMP: _document(
        effect="DocumentIncarnation and ETag no longer fit into 32 bits.", optional=_NOTHING
    ),
    FaultKind.STRING_INCARNATION: _document(effect="DocumentIncarnation is a string."),
    FaultKind.VANISH: _document(effect="Events are missing from the document."),
    FaultKind.SECOND_IMPACT: _document(effect="Events that have Started are Scheduled again."),
    FaultKind.DUPLICATE_EVENTS: _document(effect="Every event appears twice."),
    FaultKind.NULL_EVENTS: _document(effect="Events is null."),
    FaultKind.NOT_BEFORE_SLIP: _document(
        effect="NotBefore is later than the earliest start of the event.",
        needed=_SECONDS,
        of_maintenance_time=True,
    ),
    FaultKind.SHORT_NOTICE: _document(
        effect="NotBefore is earlier than the earliest start of the event.",
        needed=_SECONDS,
        of_maintenance_time=True,
    ),
    FaultKind.WRONG_WEEKDAY: _document(effect="NotBefore has the wrong day of the week."),
    FaultKind.ISO_DATE: _document(effect="NotBefore is in ISO 8601."),
    FaultKind.EMPTY_NOT_BEFORE: _document(
        effect="NotBefore is empty even before the event has Started."
    ),
    FaultKind.UNKNOWN_TYPE: _document(
        effect="Every EventType is a value unknown to clients.",
        optional=frozenset({"event_type", "times"}),
    ),
    FaultKind.UNKNOWN_STATUS: _document(effect="Every EventStatus is a value unknown to clients."),
    FaultKind.LOWER_CASE_IDS: _document(effect="EventIds are in lower case."),
    FaultKind.EXTRA_FIELDS: _document(
        effect="The document and its events have fields unknown to clients."
    ),
    FaultKind.MISSING_FIELDS: _document(
        effect="Events have only EventId, EventStatus, EventType and Resources."
    ),
    FaultKind.CAMEL_CASE: _document(effect="Field names begin with a lower-case letter."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, as far as it is not used up: the next *times* requests, or all until removed.

    *seconds* are of maintenance time where its traits say so, and of real time otherwise.
    """

    kind: FaultKind
    times: int | None = None
    seconds: float | None = None
    status: int | None = None
    retry_after: int | None = None
    event_type: str | None = None

    def __post_init__(self) -> None:
        given = self.parameters()
        known = FAULTS[self.kind]
        for name in sorted(known.needed - given.keys()):
            raise FaultError(f"A fault of kind {self.kind} needs {name}.", name)
        for name in sorted(given.keys() - known.needed - known.optional):
            raise FaultError(f"A fault of kind {self.kind} does not take {name}.", name)
        for name, value in given.items():
            is_right, wanted = _VALUES[name]
            if not is_right(value):
                raise FaultError(f"{name} must be {wanted}, not {value!r}.", name)

    def parameters(self) -> dict[str, float | str]:
        """Return what it says besides its kind."""
        values = {name: getattr(self, name) for name in FAULT_PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}


FAULT_PARAMETERS: Final = tuple(field.name for field in fields(Fault) if field.name != "kind")
"""What a fault of any kind may say; which of it belongs to which kind is in `FAULTS`."""


class FaultError(InvalidError):
    """A fault that says too little, too much, or nothing that can be; *parameter* is where."""

    def __init__(self, problem: str, parameter: str) -> None:
        super().__init__(problem)
        self.parameter = parameter


def _is_whole(value: float | str, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_VALUES: Final[Mapping[str, tuple[Callable[[float | str], bool], str]]] = {
    "times": (lambda value: _is_whole(value, 1, 1_000_000), "a number from 1 to 1000000"),
    "seconds": (
        lambda value: (
            isinstance(value, int | float) and type(value) is not bool and 0 < value <= 3600
        ),
        "more than 0 and at most 3600",
    ),
    "status": (
        lambda value: _is_whole(value, 400, 599) and value in HTTP_ERRORS,
        "an HTTP error such as 404, 410, 429, 500 or 503",
    ),
    "retry_after": (lambda value: _is_whole(value, 0, 86_400), "a number from 0 to 86400"),
    "event_type": (
        lambda value: (
            isinstance(value, str)
            and re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,63}", value) is not None
            and value not in set(EventType)
        ),
        "a word of letters and digits that is not an EventType",
    ),
}
"""What each parameter can be, and how to say so."""
