"""Answers that faults give in place of the right one, and what they do to the right one. Pure."""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final, TypeAlias

from forewarn.domain.fault import Fault, FaultKind
from forewarn.metadata.asgi import CLOSE, Header, MetadataAnswer, answer_bytes
from forewarn.protocol.errors import error_body
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
