"""What routes take and answer besides their bodies: conditions, keys of repetition, dry runs.

Answers have a strong ETag, and requests may hold for one of them only (RFC 9110, 13). The tag is
made from what is answered, so that it is the same for as long as the answer is.

In a dry run a change is made, answered, and undone before anybody has seen it. Nothing is written
of it. That somebody was refused is: without it, dry runs would be a way to try unseen.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, Final, TypedDict

from fastapi import Depends, Header, Query, Request, params
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.responses import Response

from forewarn.control.fastapi_parts import header_names, query_names
from forewarn.desk.caller import Caller, Shown, encode, split_tags, tag_of
from forewarn.domain.access import Principal
from forewarn.domain.errors import InvalidError
from forewarn.operations.repeats import RequestKey
from forewarn.ports.store import Reading

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_WEAK: Final = "W/"
_LINK: Final[dict[str, Any]] = {
    "Link": {
        "description": 'The next page, rel="next" (RFC 8288); missing on the last.',
        "schema": {"type": "string"},
    }
}
_TAG: Final[dict[str, Any]] = {
    "ETag": {"description": "Strong entity tag of the response.", "schema": {"type": "string"}}
}


class IdempotencyKeyNotTakenError(InvalidError):
    """A key on a request that would be done again all the same."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"{verb!r} does not accept an Idempotency-Key; omit it. Before you repeat the "
            "request, check whether it was done."
        )


# The caller has looked at the headers; these only tell OpenAPI about them.
def _if_match(
    _tag: Annotated[
        str | None,
        Header(alias="If-Match", description="Change it only if this is its ETag; otherwise 412."),
    ] = None,
) -> None: ...


def _if_none_match(
    _tag: Annotated[
        str | None,
        Header(alias="If-None-Match", description="Respond with 304 if this is its ETag."),
    ] = None,
) -> None: ...


def _note_dry_run(
    request: Request,
    response: Response,
    *,
    dry_run: Annotated[bool, Query(description="Only return the result; change nothing.")] = False,
) -> None:
    request.state.is_dry_run = dry_run
    if dry_run:
        response.status_code = HTTPStatus.OK  # nothing is created


async def _request_key(
    request: Request,
    key: Annotated[
        str | None,
        Header(
            alias=IDEMPOTENCY_KEY,
            min_length=1,
            max_length=255,
            pattern="^[!-~]+$",
            description=(
                "Any text chosen by the caller. For 24 hours, a request repeated with the same "
                "key is done once and gets the first response again."
            ),
        ),
    ] = None,
) -> RequestKey | None:
    if key is None:
        return None
    # A name may be given to another token later, with other rights.
    principal: Principal = request.state.principal
    caller = (principal.role, *principal.scopes)
    asked = f"{caller} {request.url.path}?{request.url.query}\n".encode()
    return RequestKey(key=key, fingerprint=sha256(asked + await request.body()).hexdigest())


Key = Annotated[RequestKey | None, Depends(_request_key)]
"""How a route says that it may be repeated, and gets the key."""
CAN_BE_DRY: Final[Sequence[params.Depends]] = (Depends(_note_dry_run),)
"""The dependencies of a route that can be rehearsed."""
TAKES_IF_MATCH: Final[params.Depends] = Depends(_if_match)
CHANGES: Final[Sequence[params.Depends]] = (TAKES_IF_MATCH, *CAN_BE_DRY)
"""The dependencies of a route that changes what has a tag, and can be rehearsed."""


class _Route(TypedDict, total=False):
    """What FastAPI is told of a route."""

    response_model: object
    status_code: int
    dependencies: Sequence[params.Depends]
    responses: dict[int | str, dict[str, Any]]


def shows(view: object) -> _Route:
    """Return how a route is declared that answers with *view* and its tag, by `answer_seen`."""
    known = {"description": "Not modified: the caller already has it.", "headers": _TAG}
    return {
        "response_model": view,
        "dependencies": [Depends(_if_none_match)],
        "responses": {HTTPStatus.OK: {"headers": _TAG}, HTTPStatus.NOT_MODIFIED: known},
    }


def lists(view: type[BaseModel]) -> _Route:
    """Return how a route is declared that answers with *view* in pages."""
    return {"response_model": view, "responses": {HTTPStatus.OK: {"headers": _LINK}}}


def creates(view: type[BaseModel], dependencies: Sequence[params.Depends] = CAN_BE_DRY) -> _Route:
    """Return how a route is declared that creates *view*, and can be rehearsed."""
    would = {"model": view, "description": "With dry_run: what would be created."}
    return {
        "status_code": HTTPStatus.CREATED,
        "dependencies": dependencies,
        "responses": {HTTPStatus.OK: would},
    }


def answer_seen(caller: Caller, look: Callable[[Reading], Shown]) -> Response:
    """Answer with what *look* sees, unless the caller has it already."""
    return answer_with_tag(caller.read(look), caller.if_none_match)


def answer_with_tag(
    tagged: Shown, if_none_match: str | None, *, shown: Shown | None = None
) -> Response:
    """Return *tagged* with its tag, or only the tag if the caller has it already.

    What is *shown* instead may have more, which is not worth a tag of its own.
    """
    body = encode(tagged)
    tag = tag_of(body)
    if tag in (known.removeprefix(_WEAK) for known in split_tags(if_none_match)) or (
        if_none_match == "*"
    ):
        return Response(status_code=304, headers={"ETag": tag})
    answer = body if shown is None else encode(shown)
    return Response(answer, media_type="application/json", headers={"ETag": tag})


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query with names that the route does not know, and a key that it would ignore."""
    route = request.scope["route"]
    known = query_names(route)
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        problem = f"unknown parameter; known: {', '.join(sorted(known)) or 'none'}"
        raise RequestValidationError([{"loc": ("query", name), "msg": problem} for name in unknown])
    # All other methods may be repeated anyway.
    is_lost = request.method == "POST" and IDEMPOTENCY_KEY not in header_names(route)
    if is_lost and IDEMPOTENCY_KEY in request.headers:
        raise IdempotencyKeyNotTakenError(route.name)
