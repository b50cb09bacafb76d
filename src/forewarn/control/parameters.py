"""What may be asked in a query. A name that is not known is refused, so that no typo passes."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query with names that the route does not know."""
    route = request.scope["route"]
    known = set(_parameters(route.dependant)) if isinstance(route, APIRoute) else set()
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        problem = f"there is no such parameter; there is {', '.join(sorted(known)) or 'none'}"
        raise RequestValidationError([{"loc": ("query", name), "msg": problem} for name in unknown])


def _parameters(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _parameters(dependency)
