"""Somebody with a token, and what they do with it: one transaction per request.

A route says with its type of caller which role it needs. That is what is checked, before anything
else is looked at, and what OpenAPI tells.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar

from fastapi import Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from pydantic import BaseModel
from starlette.responses import Response

from forewarn.control.conditional import answer_with_tag, require_match
from forewarn.control.confined import confine_reading, confine_transaction
from forewarn.control.rehearsal import rehearse
from forewarn.control.services import Services
from forewarn.domain.access import Principal
from forewarn.domain.roles import MAY, Role
from forewarn.operations.context import Context
from forewarn.operations.repeats import RequestKey, do_once
from forewarn.ports.entries import Actor
from forewarn.ports.store import Reading, Transaction

T = TypeVar("T")
V = TypeVar("V", bound=BaseModel)

# The middleware has looked at the token; this only tells OpenAPI about it.
_BEARER: Final = HTTPBearer(
    auto_error=False,
    description="The admin token, or one made by `forewarn token create`. Roles: "
    + "; ".join(f"{role} may {what}" for role, what in MAY.items())
    + ". Each may also do what those before it may.",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, from where, and of which server."""

    principal: Principal
    where: str
    services: Services
    if_match: str | None = None
    if_none_match: str | None = None
    is_dry_run: bool = False

    def write(
        self,
        operation: Callable[[Transaction, Context], T],
        *,
        current: Callable[[Reading], bytes] | None = None,
    ) -> T:
        """Do *operation* in a transaction, then have the scheduler look at what it left.

        It is refused if *current*, which is what it changes, is not what the caller asks it to be.
        In a dry run it is undone, and nobody hears of it.
        """

        def work(tx: Transaction) -> T:
            # The time is taken inside the transaction, so that it never runs backwards between two.
            context = replace(
                self.services.context(self.principal.name), where=self.where, actor=Actor.OPERATOR
            )
            confined = confine_transaction(tx, self.principal)
            self._require_match(confined, current)
            return operation(confined, context)

        if self.is_dry_run:
            return rehearse(self.services.store, work)
        result = self.services.store.write(work)
        self.services.changed()
        return result

    def write_once(
        self,
        key: RequestKey | None,
        view: type[V],
        operation: Callable[[Transaction, Context], V],
        *,
        current: Callable[[Reading], bytes] | None = None,
    ) -> V:
        """Do as `write` does; but what was done under *key* before is only answered again."""
        if key is None:
            return self.write(operation, current=current)

        def work(tx: Transaction, context: Context) -> str:
            def do() -> str:
                self._require_match(tx, current)
                return operation(tx, context).model_dump_json()

            return do_once(tx, context, key, do)

        return view.model_validate_json(self.write(work))

    def read(
        self, look: Callable[[Reading], T], *, current: Callable[[Reading], bytes] | None = None
    ) -> T:
        """Return what *look* sees in one consistent snapshot; with *current* as in `write`."""

        def see(reading: Reading) -> T:
            confined = confine_reading(reading, self.principal)
            self._require_match(confined, current)
            return look(confined)

        return self.services.store.read(see)

    def show(self, look: Callable[[Reading], bytes]) -> Response:
        """Answer with what *look* sees, unless the caller has it already."""
        return answer_with_tag(self.read(look), self.if_none_match)

    def _require_match(self, reading: Reading, current: Callable[[Reading], bytes] | None) -> None:
        if current is not None and self.if_match is not None:
            require_match(current(reading), self.if_match)


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
