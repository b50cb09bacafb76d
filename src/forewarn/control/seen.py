"""/virtual-machines/{name}/seen: what a virtual machine could read at a moment gone by."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.operations.seen import see
from forewarn.protocol.versions import NEWEST
from forewarn.wording.moments import parse_past

router = APIRouter(prefix="/virtual-machines", tags=["virtual-machines"], route_class=BodyRoute)

_DOCUMENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The document, byte for byte.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}

At = Annotated[
    str | None,
    Query(
        max_length=64,
        description=(
            "2h (ago), 22:00 (the last, in GMT) or 2026-01-05T08:15:00Z, in maintenance time; "
            "default: now."
        ),
    ),
]
Version = Annotated[str, Query(alias="api-version", max_length=64)]


@router.get("/{name}/seen", response_class=Response, responses=_DOCUMENT)
def show_seen(
    caller: Viewing, name: str, at: At = None, api_version: Version = NEWEST.name
) -> Response:
    """Return the exact document of a virtual machine at a given time."""
    context = caller.context()
    moment = context.now if at is None else parse_past(at, context.now)
    pending = caller.services.showings()  # before the look, or some are in neither
    body = caller.read(
        lambda reading: see(reading, context, name, moment, api_version, pending=pending)
    )
    return Response(body, media_type="application/json; charset=utf-8")
