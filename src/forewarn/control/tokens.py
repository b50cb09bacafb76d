"""/tokens: who may use this API."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering
from forewarn.desk.schemas import Moment, Text, View
from forewarn.desk.shapes import fill, mirrors
from forewarn.desk.tokens import give_token
from forewarn.domain.access import Token
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, revoke_token

router = APIRouter(prefix="/tokens", tags=["tokens"], route_class=BodyRoute)


class TokenRequest(BaseModel):
    """Create a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text
    role: Role
    scopes: Annotated[list[Text], Field(max_length=1000)] = []
    host: Text | None = None
    expires: Moment | None = None


@mirrors(Token, "name role scopes host created_at expires_at revoked_at last_used_at")
class TokenView(View):
    """One token, without its secret."""


class NewTokenView(TokenView):
    """A token and its secret, which is shown only once."""

    secret: str


class TokensView(View):
    """Every token, in the order of their creation."""

    tokens: tuple[TokenView, ...]


@router.get("")
def list_tokens(caller: Administering) -> TokensView:
    """Return every token, including revoked and expired ones."""
    return TokensView.model_validate({"tokens": caller.read(lambda reading: reading.tokens())})


@router.post("", status_code=201, name="token create")
def create(caller: Administering, request: TokenRequest) -> NewTokenView:
    """Create a token; the secret is only shown in this response."""
    order = TokenOrder(
        name=request.name, role=request.role, scopes=tuple(request.scopes), host=request.host
    )
    token, secret = give_token(caller, order, request.expires)
    return fill(NewTokenView, token, secret=secret)


@router.delete("/{name}", name="token revoke")
def revoke(caller: Administering, name: str) -> TokenView:
    """Revoke a token."""
    revoked = caller.write(lambda tx, context: revoke_token(tx, context, name))
    return TokenView.model_validate(revoked)
