"""/front: the feed, and what relays ask on behalf of their virtual machines.

It is plain ASGI, because there may be twenty thousand relays, and no part of the OpenAPI document.
docs/reference/feed.md describes it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from time import monotonic
from typing import Annotated, Final, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, AwareDatetime, Field, StrictInt, StrictStr, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from forewarn.connections.limits import Streams
from forewarn.connections.streams import LimitedStream
from forewarn.control.authentication import API_PREFIX
from forewarn.control.bodies import measure
from forewarn.desk.schemas import RequestModel
from forewarn.domain.access import AccessError, Principal
from forewarn.domain.errors import says
from forewarn.domain.names import HostName, VmName
from forewarn.domain.roles import Role
from forewarn.feed.notes import MOST_AT_ONCE, MOST_COUNTED
from forewarn.feed.relay_services import RelayServices
from forewarn.feed.subscriptions import Following
from forewarn.protocol import vocabulary
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId

M = TypeVar("M", bound=RequestModel)

FRONT_PREFIX: Final = f"{API_PREFIX}/front"
_IDENTIFIED_SECONDS: Final = 60.0
"""How long a feed lasts at most after its token has ended."""
_CONTENT_TYPE: Final = "application/x-ndjson"
_MOST_DIGITS: Final = 18

_Name = Annotated[StrictStr, Field(max_length=128)]
_Where = Annotated[StrictStr, Field(max_length=64, pattern=r"^[\x20-\x7e]*$")]
_Event = Annotated[StrictStr, Field(max_length=128), AfterValidator(vocabulary.event_id)]
_Status = Annotated[int, Field(ge=400, le=599)]
_Number = Annotated[StrictInt, Field(ge=0, le=MOST_COUNTED)]


@says("The token {name} is not limited to a host; use a token with the role relay.")
class NoHostError(AccessError):
    """A token without a host."""

    name: str


class RelayStartRequests(RequestModel):
    """StartRequests of a virtual machine that is at *where*."""

    vm: _Name
    event_ids: Annotated[list[_Event], Field(max_length=10_000, fail_fast=True)]
    where: _Where = ""


class RelayPostponement(RequestModel):
    """An event that a virtual machine postpones."""

    vm: _Name
    not_before: AwareDatetime
    where: _Where = ""


class RelayNotes(RequestModel):
    """Who has polled, and the counts since the last notes."""

    polled: Annotated[list[_Name], Field(max_length=MOST_AT_ONCE, fail_fast=True)] = Field(
        default_factory=list
    )
    polls: Annotated[dict[_Name, _Number], Field(max_length=100)] = Field(default_factory=dict)
    posts: _Number = 0
    refusals: dict[_Status, _Number] = Field(default_factory=dict)


def relay_routes() -> tuple[BaseRoute, ...]:
    """Return the routes for relays."""
    return (
        Route(f"{FRONT_PREFIX}/feed", _feed, methods=["GET"]),
        Route(f"{FRONT_PREFIX}/start-requests", _request_starts, methods=["POST"]),
        Route(f"{FRONT_PREFIX}/events/{{event_id}}", _describe_event, methods=["GET"]),
        Route(f"{FRONT_PREFIX}/events/{{event_id}}/postpone", _postpone, methods=["POST"]),
        Route(f"{FRONT_PREFIX}/notes", _take_notes, methods=["POST"]),
    )


async def _feed(request: Request) -> Response:
    services, name, host = _identify(request)
    feed, _, sequence = request.query_params.get("after", "").rpartition(":")
    following = Following(
        host=host,
        feed=feed,
        sequence=int(sequence) if sequence.isdecimal() and len(sequence) <= _MOST_DIGITS else -1,
    )
    lines = services.hub.stream(following)
    return LimitedStream(
        _while_identified(lines, request.state.identify),
        media_type=_CONTENT_TYPE,
        streams=request.app.state.services.feeds,
        token=name,
    )


async def _request_starts(request: Request) -> Response:
    services, name, host = _identify(request)
    order = await read_body(request, RelayStartRequests)
    receipt = await services.verbs(host).request_start(
        VmName(order.vm),
        tuple(EventId(each) for each in order.event_ids),
        where=_where(name, order.where),
    )
    return JSONResponse(asdict(receipt))


async def _describe_event(request: Request) -> Response:
    services, _, host = _identify(request)
    vm = VmName(request.query_params.get("vm", ""))
    return JSONResponse(await services.verbs(host).describe_event(vm, _event_id(request)))


async def _postpone(request: Request) -> Response:
    services, name, host = _identify(request)
    order = await read_body(request, RelayPostponement)
    described = await services.verbs(host).postpone(
        VmName(order.vm),
        _event_id(request),
        order.not_before,
        where=_where(name, order.where),
    )
    return JSONResponse(described)


async def _take_notes(request: Request) -> Response:
    services, _, host = _identify(request)
    notes = await read_body(request, RelayNotes)
    polled = tuple(services.hub.find(notes.polled, host))
    if polled:
        services.polled(polled)
    services.tally.add(notes.polls, notes.posts, notes.refusals)
    return Response(status_code=204)


def identify_relay(request: Request) -> tuple[str, HostName]:
    """Return the name of the token, and the host that it is limited to."""
    principal: Principal = request.state.principal
    principal.require(Role.RELAY)
    if principal.host is None:  # no token of this role is stored without one
        raise NoHostError(principal.name)
    return principal.name, principal.host


def _identify(request: Request) -> tuple[RelayServices, str, HostName]:
    name, host = identify_relay(request)
    services: RelayServices | None = request.app.state.services.relay_services
    if services is None:
        raise HTTPException(404)
    return services, name, host


def _where(name: str, where: str) -> str:
    return f"{where} via relay {name}".strip()


def _event_id(request: Request) -> EventId:
    return vocabulary.event_id(request.path_params["event_id"])


async def read_body(request: Request, model: type[M]) -> M:
    """Return the body of *request* as a *model*, or refuse it."""
    large_bodies: Streams = request.app.state.services.large_bodies
    with large_bodies.place_of_body(request.state.principal.name, request.headers):
        body = await request.body()
    measure(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


async def _while_identified(
    lines: AsyncGenerator[bytes], identify: Callable[[], Awaitable[object]]
) -> AsyncGenerator[bytes]:
    """Yield *lines* until the token has ended, or a little longer."""
    last = monotonic()
    async with aclosing(lines):
        async for part in lines:
            if monotonic() - last > _IDENTIFIED_SECONDS:
                last = monotonic()
                try:
                    await identify()
                except ForewarnError:
                    return
            yield part
