"""The control API as one application: routes by noun, a token before each, problems for answers."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

import forewarn
from forewarn.control import (
    audit,
    calendar,
    clock,
    discovery,
    events,
    faults,
    fleet,
    gates,
    health,
    hosts,
    maintenances,
    notifications,
    places,
    requests,
    scenarios,
    schedules,
    seen,
    server,
    sign_in_links,
    tasks,
    tokens,
    virtual_machines,
    watching,
)
from forewarn.control.arm import add_arm_route
from forewarn.control.authentication import API_PREFIX, OPENAPI_PATH, Authentication, OriginCheck
from forewarn.control.front import relay_routes
from forewarn.control.host_offers import host_offer_routes
from forewarn.control.problems import handle_problems
from forewarn.control.refusal_audit import RefusalAudit
from forewarn.control.routes import refuse_unknown_parameters
from forewarn.desk.refusals import Refusals
from forewarn.desk.schemas import ProblemDocument
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions

_NOUNS: Final = (
    fleet,
    virtual_machines,
    places,
    hosts,
    seen,
    watching,  # before an event that could be called so
    events,
    maintenances,
    schedules,
    gates,
    discovery,
    scenarios,
    clock,
    server,
    notifications,
    calendar,
    audit,
    faults,
    requests,
    tasks,
    tokens,
    sign_in_links,
)
_PROBLEM: Final[dict[str, Any]] = {
    "description": "Refused; the body gives the reason.",
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    },
}


def create_app(services: Services, names: Iterable[str] = (), *, own_host: str = "") -> FastAPI:
    """Return the control API on top of *services*, which listens on *own_host*.

    Browsers may call it by *names*, too.
    """
    app = FastAPI(
        title="forewarn",
        version=forewarn.__version__,
        summary="Scheduled Events, self-hosted: the control API.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.services = services
    app.state.turn_of_large_body = asyncio.Lock()
    app.state.openapi = b""
    app.state.turn_of_openapi = asyncio.Lock()
    app.add_route(OPENAPI_PATH, _show_openapi, include_in_schema=False)
    app.router.routes.extend(_routes())
    app.router.routes.extend(relay_routes())
    app.router.routes.extend(host_offer_routes())
    arm_route = add_arm_route(app)
    app.state.refusals = Refusals(services)
    app.state.sessions = Sessions(services)
    app.add_middleware(
        Authentication,
        authenticate=services.authenticate,
        refusals=app.state.refusals,
    )
    app.add_middleware(OriginCheck, names=names, own_host=own_host)
    # Around them, because a caller without a token is refused too.
    app.add_middleware(RefusalAudit, refusals=app.state.refusals, routes=(*api_routes(), arm_route))
    handle_problems(app)
    return app


async def _show_openapi(request: Request) -> Response:
    app = request.app
    # Once, because it is long, and who asks for it needs no token. On a thread, because it takes so
    # long that others would have to wait.
    async with app.state.turn_of_openapi:
        if not app.state.openapi:
            app.state.openapi = await run_in_threadpool(lambda: JSONResponse(app.openapi()).body)
    return Response(app.state.openapi, media_type="application/json")


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return what every app routes; made once, because it takes most of the time of a start."""
    router = APIRouter(generate_unique_id_function=_operation_id)
    router.include_router(health.router)
    router.include_router(health.metrics, responses={401: _PROBLEM, 403: _PROBLEM})
    for noun in _NOUNS:
        router.include_router(
            noun.router,
            prefix=API_PREFIX,
            dependencies=[Depends(refuse_unknown_parameters)],
            responses={"4XX": {**_PROBLEM, "model": ProblemDocument}, 503: _PROBLEM},
        )
    return tuple(router.routes)


def api_routes() -> Iterator[APIRoute]:
    """Yield every route of the API, by its path below the prefix."""
    for noun in _NOUNS:
        yield from (route for route in noun.router.routes if isinstance(route, APIRoute))


def _operation_id(route: APIRoute) -> str:
    """Return the verb and its noun, which most endpoints leave to the tag of their router."""
    verb = route.endpoint.__name__  # the name is what the audit calls it
    return verb if "_" in verb else f"{verb}_{str(route.tags[0]).removesuffix('s')}"
