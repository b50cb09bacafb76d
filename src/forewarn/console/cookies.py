"""The cookie that a browser shows for its session, and the token against forged requests."""

import hmac
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from forewarn.console.problems import ForgedRequestError

CSRF_HEADER: Final = "x-csrf-token"


def session_of(request: Request) -> str:
    """Return the secret of the session that *request* shows; nothing if it shows none.

    Other servers on the same host may have set cookies of any form, which are passed over.
    """
    name = _name(request)
    for part in request.headers.get("cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name and value.isascii():
            return value
    return ""


def set_session(request: Request, response: Response, secret: str) -> None:
    """Have the browser show *secret* from now on, to this server only, until it is closed."""
    response.set_cookie(
        _name(request),
        secret,
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def forget_session(request: Request, response: Response) -> None:
    """Have the browser forget its session."""
    response.delete_cookie(
        _name(request), path="/", secure=_is_secure(request), httponly=True, samesite="strict"
    )


def csrf_token(secret: str) -> str:
    """Return what a page of the session *secret* has to send with everything it does.

    The session secret cannot be derived from it.
    """
    return sha256(f"csrf {secret}".encode()).hexdigest()


def refuse_forged(request: Request, secret: str) -> None:
    """Refuse to do what no page of this session has asked for."""
    given = request.headers.get(CSRF_HEADER, "")
    if not given.isascii() or not hmac.compare_digest(given, csrf_token(secret)):
        raise ForgedRequestError


def _name(request: Request) -> str:
    # Browsers send cookies to every port of a host, so two servers there need two names.
    port = request.headers.get("host", "").rpartition(":")[2]
    name = f"forewarn-{port}" if port.isascii() and port.isdigit() else "forewarn"
    return f"__Host-{name}" if _is_secure(request) else name


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"
