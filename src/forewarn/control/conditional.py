"""Answers with a strong ETag, and requests that only hold for one of them (RFC 9110, 13).

The tag is made from what is answered, so that it is the same for as long as the answer is.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Header
from starlette.responses import Response

from forewarn.desk.caller import Caller, split_tags, tag_of
from forewarn.ports.store import Reading

_WEAK: Final = "W/"
_TAG: Final[dict[str, Any]] = {
    "ETag": {"description": "A strong tag of the answer.", "schema": {"type": "string"}}
}
TAGGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": _TAG},
    304: {"description": "It is what the caller has already.", "headers": _TAG},
}
"""What OpenAPI tells of an answer with a tag."""


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


def show(caller: Caller, look: Callable[[Reading], bytes]) -> Response:
    """Answer with what *look* sees, unless the caller has it already."""
    return answer_with_tag(caller.read(look), caller.if_none_match)


def answer_with_tag(
    body: bytes, if_none_match: str | None, *, shown: bytes | None = None
) -> Response:
    """Return *body* with its tag, or only the tag if the caller has it already.

    What is *shown* instead may have more, which is not worth a tag of its own.
    """
    tag = tag_of(body)
    if tag in (known.removeprefix(_WEAK) for known in split_tags(if_none_match)) or (
        if_none_match == "*"
    ):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(shown or body, media_type="application/json", headers={"ETag": tag})
