"""Answers that faults give in place of the right one, and what they do to the right one. Pure.

Several faults alter one document in the order of `ALTERATIONS`: first what is said, then how it is
written, at last what leaves hardly a document. `DAMAGES` are done to the bytes after that.
"""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from forewarn.domain.fault import UNKNOWN_TYPE, Fault, FaultKind
from forewarn.metadata.asgi import CLOSE, Header, MetadataAnswer, answer_bytes
from forewarn.protocol.dates import read_date, write_date
from forewarn.protocol.errors import error_body
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventStatus
from forewarn.wording.statuses import name_of_status

Damage: TypeAlias = Callable[[MetadataAnswer, Fault], MetadataAnswer]

PAGE: Final = (
    b"<!DOCTYPE html>\n<html><head><title>Access denied</title></head>"
    b"<body><h1>Access denied</h1><p>Sign in to continue.</p></body></html>\n"
)
"""What a proxy says that should never have been asked."""
PORTAL: Final = b"http://proxy.invalid/login"
"""Where `redirect` points to; no such name can ever exist."""
EXCESS: Final = 64
"""How many bytes `long-length` promises too many."""

_HTML: Final[Header] = (b"Content-Type", b"text/html; charset=utf-8")


def _refuse(fault: Fault) -> MetadataAnswer:
    status = HTTPStatus(fault.status or 500)
    answer = answer_bytes(error_body(name_of_status(status).capitalize()), status=status)
    if fault.retry_after is None:
        return answer
    return _change(answer, (b"Retry-After", str(fault.retry_after).encode("ascii")))


REPLACEMENTS: Final[Mapping[FaultKind, Callable[[Fault], MetadataAnswer]]] = {
    FaultKind.STATUS: _refuse,
    FaultKind.HTML: lambda _: answer_bytes(PAGE, content_type=_HTML),
    FaultKind.REDIRECT: lambda _: _change(MetadataAnswer(status=302), (b"Location", PORTAL)),
}
"""What is answered before the request is looked at."""


def can_be_damaged(answer: MetadataAnswer, kind: FaultKind) -> bool:
    """Tell whether a fault of *kind* would show in *answer*."""
    return bool(answer.body) if kind in _OF_BODIES else b"Content-Length" in dict(answer.headers)


def _change(answer: MetadataAnswer, *headers: Header) -> MetadataAnswer:
    names = {name.lower() for name, _ in headers}  # a recorded one may be in any case
    kept = (each for each in answer.headers if each[0].lower() not in names)
    return replace(answer, headers=(*kept, *headers))


def _announce(answer: MetadataAnswer, length: int) -> MetadataAnswer:
    return _change(answer, (b"Content-Length", str(length).encode("ascii")))


def _mark(answer: MetadataAnswer, _: Fault) -> MetadataAnswer:
    body = codecs.BOM_UTF8 + answer.body
    return _announce(replace(answer, body=body), len(body))


def _truncate(answer: MetadataAnswer, _: Fault) -> MetadataAnswer:
    # An answer without a body, as to a POST, is one whose body has not arrived at all.
    whole = _announce(answer, len(answer.body) or EXCESS)
    return _change(replace(whole, body=answer.body[: len(answer.body) // 2]), CLOSE)


DAMAGES: Final[Mapping[FaultKind, Damage]] = {
    FaultKind.PLAIN_TEXT: lambda answer, _: _change(answer, (b"Content-Type", b"text/plain")),
    FaultKind.BOM: _mark,
    FaultKind.SHORT_LENGTH: lambda answer, _: _announce(answer, len(answer.body) // 2),
    FaultKind.LONG_LENGTH: lambda answer, _: _announce(answer, len(answer.body) + EXCESS),
    FaultKind.TRUNCATED: _truncate,
    FaultKind.DRIP: lambda answer, fault: replace(answer, seconds=fault.seconds or 0),
}
"""What becomes of an answer on its way, in this order if there are several faults."""

_OF_BODIES: Final = DAMAGES.keys() - {FaultKind.LONG_LENGTH, FaultKind.TRUNCATED}


WrittenObject: TypeAlias = Mapping[str, Any]
"""A document, or one of its events, as JSON has it."""
DocumentAlteration: TypeAlias = Callable[[WrittenObject, Fault], WrittenObject]

UNKNOWN_STATUS: Final = "Deferred"
EXTRA: Final = {"ImpactScore": 5, "Region": {"Name": "nowhere", "Zones": []}}
"""Fields that no api-version has."""
KEPT: Final = ("EventId", "EventStatus", "EventType", "Resources")
"""What an event is nothing without."""

_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def alter_document(content: WrittenObject, faults: Mapping[FaultKind, Fault]) -> WrittenObject:
    """Return *content* as *faults* alter it."""
    for kind, alter in ALTERATIONS.items():
        if kind in faults:
            content = alter(content, faults[kind])
    return content


def _each(alter: DocumentAlteration) -> DocumentAlteration:
    return lambda content, fault: {
        **content,
        "Events": [alter(event, fault) for event in content["Events"]],
    }


def _each_date(write: Callable[[datetime, str, float], str]) -> DocumentAlteration:
    """Return what has *write* rewrite every NotBefore that is a date, from what it was."""

    def alter(event: WrittenObject, fault: Fault) -> WrittenObject:
        text = event.get("NotBefore", "")
        moment = read_date(text)
        if moment is None:
            return event
        return {**event, "NotBefore": write(moment, text, fault.seconds or 0)}

    return _each(alter)


def _write_alike(moment: datetime, text: str) -> str:
    is_iso = text[:1].isdigit()
    return write_date(moment, DateForm.ISO_8601 if is_iso else DateForm.RFC_1123)


def _mistake_weekday(moment: datetime, text: str, _: float) -> str:
    tomorrow = _WEEKDAYS[(moment.weekday() + 1) % 7]
    return text.replace(_WEEKDAYS[moment.weekday()], tomorrow, 1)


def _schedule_again(event: WrittenObject, _: Fault) -> WrittenObject:
    if event["EventStatus"] != EventStatus.STARTED:
        return event
    return {**event, "EventStatus": EventStatus.SCHEDULED}


def _lower_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_lower_names(each) for each in value]
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: _lower_names(each) for name, each in value.items()}
    return value


ALTERATIONS: Final[Mapping[FaultKind, DocumentAlteration]] = {
    FaultKind.VANISH: lambda content, _: {**content, "Events": []},
    FaultKind.SECOND_IMPACT: _each(_schedule_again),
    FaultKind.NOT_BEFORE_SLIP: _each_date(
        lambda moment, text, seconds: _write_alike(moment + timedelta(seconds=seconds), text)
    ),
    FaultKind.SHORT_NOTICE: _each_date(
        lambda moment, text, seconds: _write_alike(moment - timedelta(seconds=seconds), text)
    ),
    FaultKind.WRONG_WEEKDAY: _each_date(_mistake_weekday),
    FaultKind.ISO_DATE: _each_date(lambda moment, _, __: write_date(moment, DateForm.ISO_8601)),
    FaultKind.EMPTY_NOT_BEFORE: _each(lambda event, _: {**event, "NotBefore": ""}),
    FaultKind.UNKNOWN_TYPE: _each(
        lambda event, fault: {**event, "EventType": fault.event_type or UNKNOWN_TYPE}
    ),
    FaultKind.UNKNOWN_STATUS: _each(lambda event, _: {**event, "EventStatus": UNKNOWN_STATUS}),
    FaultKind.LOWER_CASE_IDS: _each(
        lambda event, _: {**event, "EventId": event["EventId"].lower()}
    ),
    FaultKind.MISSING_FIELDS: _each(lambda event, _: {name: event[name] for name in KEPT}),
    FaultKind.EXTRA_FIELDS: lambda content, _: {
        **content,
        "Events": [{**event, **EXTRA} for event in content["Events"]],
        **EXTRA,
    },
    FaultKind.DUPLICATE_EVENTS: lambda content, _: {**content, "Events": content["Events"] * 2},
    FaultKind.STRING_INCARNATION: lambda content, _: {
        **content,
        "DocumentIncarnation": str(content["DocumentIncarnation"]),
    },
    FaultKind.NULL_EVENTS: lambda content, _: {**content, "Events": None},
    FaultKind.CAMEL_CASE: lambda content, _: _lower_names(content),
}
"""What each fault of this kind does to a document."""
