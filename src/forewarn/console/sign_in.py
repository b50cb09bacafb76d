"""/login and /logout: a token or a link that works once becomes a session of this browser.

The token or the code comes in a header, as in the control API. So nobody who is not signed in yet
has a body read, and a page of somebody else cannot sign a browser in.
"""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from forewarn.console.cookies import (
    forget_session,
    refuse_forged,
    session_of,
    set_session,
)
from forewarn.console.problems import ForgedRequestError, status_of
from forewarn.console.rendering import render
from forewarn.console.site import Site
from forewarn.console.visit import FormError, read_form
from forewarn.desk.services import BusyError
from forewarn.domain.access import AccessError, RoleTooLowError, SignedInAsAnotherError
from forewarn.ports.store import StoreError

LOGIN: Final = "/login"
ACTION: Final = "console sign in"
CODE_HEADER: Final = "x-sign-in-code"


def show_sign_in(_site: Site, request: Request) -> Response:
    """Ask for a token."""
    try:
        wanted = read_form(request.url.query).text("next", "/")
    except FormError:
        wanted = "/"
    return HTMLResponse(render("login.html", {"wanted": own_page(wanted)}))


def take_sign_in(site: Site, request: Request) -> Response:
    """Begin a session, or say why not."""
    where = request.client.host if request.client else ""
    try:
        secret = _begin(site, request, where)
    except (AccessError, BusyError, StoreError) as error:
        if isinstance(error, AccessError):
            site.refusals.count("sign-in")
            who = getattr(error, "name", "-")
            is_valid = isinstance(error, RoleTooLowError | SignedInAsAnotherError)
            site.refusals.note_and_wait(
                site.refusals.entry(where, str(error), who=who, action=ACTION, is_valid=is_valid)
            )
        return PlainTextResponse(str(error), status_of(error))
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    set_session(request, response, secret)
    return response


def take_sign_out(site: Site, request: Request) -> Response:
    """End the session of this browser, which forgets it in any case."""
    secret = session_of(request)
    where = request.client.host if request.client else ""
    response = Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": LOGIN})
    try:
        refuse_forged(request, secret)
        site.sessions.end(secret, where)
    except ForgedRequestError as error:
        return PlainTextResponse(f"{error}\n", status_of(error))
    except StoreError as error:
        response = PlainTextResponse(f"{error}\n", status_of(error), headers=response.headers)
    forget_session(request, response)
    return response


def own_page(wanted: str) -> str:
    """Return where to go afterwards: a page of ours, whatever the address says."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\", LOGIN))
    return wanted if is_ours and wanted.isprintable() and wanted.isascii() else "/"


def _begin(site: Site, request: Request, where: str) -> str:
    if code := request.headers.get(CODE_HEADER):
        return site.sessions.redeem(code, where, held=session_of(request))
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return site.sessions.sign_in(token.strip() if scheme.lower() == "bearer" else "", where)
