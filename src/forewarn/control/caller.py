"""Somebody with a token, and what they do with it: one transaction per request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from forewarn.control.services import Services
from forewarn.operations.context import Context
from forewarn.ports.store import Reading, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and of which server."""

    who: str
    services: Services

    def write(self, operation: Callable[[Transaction, Context], T]) -> T:
        """Do *operation* in a transaction, then have the scheduler look at what it left."""
        services, who = self.services, self.who
        # The time is taken inside the transaction, so that it never runs backwards between two.
        result = services.store.write(lambda tx: operation(tx, services.context(who)))
        services.changed()
        return result

    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees in one consistent snapshot."""
        return self.services.store.read(look)


def _caller(request: Request) -> Caller:
    return Caller(who=request.state.who, services=request.app.state.services)


Calling = Annotated[Caller, Depends(_caller)]
"""How a route asks for its caller."""
