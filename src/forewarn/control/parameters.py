"""What may be asked besides a body. What is not known is refused, so that no typo passes."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from forewarn.control.idempotency import IDEMPOTENCY_KEY, IdempotencyKeyNotTakenError


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query with names that the route does not know, and a key that it would ignore."""
    route = request.scope["route"]
    dependants = list(_dependants(route.dependant)) if isinstance(route, APIRoute) else []
    known = {field.alias for each in dependants for field in each.query_params}
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        problem = f"unknown parameter; known: {', '.join(sorted(known)) or 'none'}"
        raise RequestValidationError([{"loc": ("query", name), "msg": problem} for name in unknown])
    headers = {field.alias for each in dependants for field in each.header_params}
    # All other methods may be repeated anyway.
    is_lost = request.method == "POST" and IDEMPOTENCY_KEY not in headers
    if is_lost and IDEMPOTENCY_KEY in request.headers:
        raise IdempotencyKeyNotTakenError(route.name)


def _dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for dependency in dependant.dependencies:
        yield from _dependants(dependency)
