"""The control API as one application: routes by noun, a token before each, problems for answers."""

from typing import Any, Final

from fastapi import APIRouter, FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

import forewarn
from forewarn.control import (
    audit,
    clock,
    events,
    explanations,
    faults,
    fleet,
    health,
    maintenances,
    scenarios,
    seen,
    virtual_machines,
    watching,
)
from forewarn.control.arm import add_arm_route
from forewarn.control.authentication import API_PREFIX, Authentication
from forewarn.control.problems import handle_problems
from forewarn.control.schemas import ProblemDocument
from forewarn.control.services import Services

_NOUNS: Final = (
    fleet,
    virtual_machines,
    seen,
    watching,  # before an event that could be called so
    events,
    explanations,
    maintenances,
    scenarios,
    clock,
    audit,
    faults,
)
_PROBLEM: Final[dict[str, Any]] = {
    "description": "Refused, with the reason.",
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    },
}


def create_app(services: Services) -> FastAPI:
    """Return the control API on top of *services*."""
    app = FastAPI(
        title="forewarn",
        version=forewarn.__version__,
        summary="Scheduled Events, self-hosted: the control API.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.services = services
    app.include_router(health.router)
    app.include_router(_api())
    add_arm_route(app)
    app.add_middleware(Authentication, authenticate=services.authenticate)
    handle_problems(app)
    return app


def _api() -> APIRouter:
    api = APIRouter(
        prefix=API_PREFIX,
        # The middleware has looked at the token; this only tells OpenAPI about it.
        dependencies=[Security(HTTPBearer(auto_error=False, description="The admin token."))],
        responses={"4XX": {**_PROBLEM, "model": ProblemDocument}, 503: _PROBLEM},
    )
    for noun in _NOUNS:
        api.include_router(noun.router)
    return api


def _operation_id(route: APIRoute) -> str:
    return route.name
