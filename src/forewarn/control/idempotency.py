"""The header Idempotency-Key, which lets a request be repeated without being done twice."""

from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Header, Request

from forewarn.domain.access import Principal
from forewarn.domain.errors import InvalidError
from forewarn.operations.repeats import RequestKey

IDEMPOTENCY_KEY: Final = "Idempotency-Key"


class IdempotencyKeyNotTakenError(InvalidError):
    """A key on a request that would be done again all the same."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            f"{verb!r} takes no Idempotency-Key, so leave it out; "
            "before it is repeated, look whether it was done."
        )


async def _request_key(
    request: Request,
    key: Annotated[
        str | None,
        Header(
            alias=IDEMPOTENCY_KEY,
            min_length=1,
            max_length=255,
            pattern="^[!-~]+$",
            description="Any text of the caller's own. The same request with the same key is done "
            "once, and answered as the first time, for 24 hours.",
        ),
    ] = None,
) -> RequestKey | None:
    if key is None:
        return None
    # A name may be given to another token later, with other rights.
    principal: Principal = request.state.principal
    caller = (principal.role, *principal.scopes)
    asked = f"{caller} {request.url.path}?{request.url.query}\n".encode()
    return RequestKey(key=key, fingerprint=sha256(asked + await request.body()).hexdigest())


Key = Annotated[RequestKey | None, Depends(_request_key)]
"""How a route says that it may be repeated, and gets the key."""
