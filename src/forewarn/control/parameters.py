"""What may be asked besides a body. What is not known is refused, so that no typo passes."""

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from forewarn.control.fastapi_parts import header_names, query_names
from forewarn.control.idempotency import IDEMPOTENCY_KEY, IdempotencyKeyNotTakenError


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query with names that the route does not know, and a key that it would ignore."""
    route = request.scope["route"]
    known = query_names(route)
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        problem = f"unknown parameter; known: {', '.join(sorted(known)) or 'none'}"
        raise RequestValidationError([{"loc": ("query", name), "msg": problem} for name in unknown])
    # All other methods may be repeated anyway.
    is_lost = request.method == "POST" and IDEMPOTENCY_KEY not in header_names(route)
    if is_lost and IDEMPOTENCY_KEY in request.headers:
        raise IdempotencyKeyNotTakenError(route.name)
