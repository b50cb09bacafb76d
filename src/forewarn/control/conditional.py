"""Answers with a strong ETag, and requests that only hold for one of them (RFC 9110, 13).

The tag is made from what is answered, so that it is the same for as long as the answer is.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import Depends, Header
from starlette.responses import Response

from forewarn.protocol.errors import ForewarnError

_WEAK: Final = "W/"
_TAG: Final[dict[str, Any]] = {
    "ETag": {"description": "A strong tag of the answer.", "schema": {"type": "string"}}
}
TAGGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": _TAG},
    304: {"description": "It is what the caller has already.", "headers": _TAG},
}
"""What OpenAPI tells of an answer with a tag."""


class PreconditionFailedError(ForewarnError):
    """What was to be changed is not any more as the caller has seen it."""

    def __init__(self) -> None:
        super().__init__("It has changed since it was read; read it again, then decide.")


# The caller has looked at the headers; these only tell OpenAPI about them.
def _if_match(
    _tag: Annotated[
        str | None,
        Header(alias="If-Match", description="Do it only if this is its ETag; otherwise 412."),
    ] = None,
) -> None: ...


def _if_none_match(
    _tag: Annotated[
        str | None,
        Header(alias="If-None-Match", description="Answer 304 if this is its ETag."),
    ] = None,
) -> None: ...


TAKES_IF_MATCH: Final = Depends(_if_match)
TAKES_IF_NONE_MATCH: Final = Depends(_if_none_match)
"""How a route says that it takes a condition."""


def answer_with_tag(
    body: bytes, if_none_match: str | None, *, shown: bytes | None = None
) -> Response:
    """Return *body* with its tag, or only the tag if the caller has it already.

    What is *shown* instead may have more, which is not worth a tag of its own.
    """
    tag = _tag_of(body)
    if tag in (known.removeprefix(_WEAK) for known in _tags(if_none_match)) or (
        if_none_match == "*"
    ):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(shown or body, media_type="application/json", headers={"ETag": tag})


def require_match(body: bytes, if_match: str) -> None:
    """Refuse unless *if_match* has the tag of *body*, which is how it is now."""
    if if_match.strip() != "*" and _tag_of(body) not in _tags(if_match):
        raise PreconditionFailedError


def _tag_of(body: bytes) -> str:
    return f'"{sha256(body).hexdigest()[:32]}"'


def _tags(header: str | None) -> Iterator[str]:
    return (tag.strip() for tag in (header or "").split(","))
