"""The caller of a route, from its request.

A route says with its type of caller which role it needs. That is what is checked, before anything
else is looked at, and what OpenAPI tells.
"""

from typing import Annotated, Final

from fastapi import Request, Security
from fastapi.security import HTTPBearer, SecurityScopes

from forewarn.desk.caller import Caller
from forewarn.domain.access import Principal
from forewarn.domain.roles import MAY, Role

# The middleware has looked at the token; this only tells OpenAPI about it.
_BEARER: Final = HTTPBearer(
    auto_error=False,
    description="The admin token, or one created by `forewarn token create`. Roles: "
    + "; ".join(f"{role} may {what}" for role, what in MAY.items())
    + ". An operator may also do what a viewer may, and an admin what both may.",
)


def _caller(
    request: Request,
    needed: SecurityScopes,
    _bearer: Annotated[object, Security(_BEARER)],
) -> Caller:
    principal: Principal = request.state.principal
    for role in needed.scopes:
        principal.require(Role(role))
    where = request.client.host if request.client else ""
    return Caller(
        principal=principal,
        where=where,
        services=request.app.state.services,
        if_match=request.headers.get("if-match"),
        if_none_match=request.headers.get("if-none-match"),
        is_dry_run=getattr(request.state, "is_dry_run", False),
    )


Viewing = Annotated[Caller, Security(_caller, scopes=[Role.VIEWER])]
Operating = Annotated[Caller, Security(_caller, scopes=[Role.OPERATOR])]
Administering = Annotated[Caller, Security(_caller, scopes=[Role.ADMIN])]
"""How a route asks for its caller, and says the least role it takes."""
