"""/login and /logout: a token or a link that works once becomes a session of this browser."""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from forewarn.console.cookies import (
    forget_session,
    refuse_forged,
    session_of,
    set_session,
)
from forewarn.console.problems import ForgedRequestError, status_of
from forewarn.console.rendering import render
from forewarn.console.site import Site
from forewarn.console.visit import Form, read_form
from forewarn.domain.access import AccessError
from forewarn.ports.store import StoreError
from forewarn.protocol.errors import ForewarnError

LOGIN: Final = "/login"
ACTION: Final = "console sign in"


def show_sign_in(_site: Site, request: Request, _body: bytes) -> Response:
    """Ask for a token."""
    return _form(_wanted(read_form(request.url.query)))


def take_sign_in(site: Site, request: Request, body: bytes) -> Response:
    """Begin a session, or say why not."""
    form = read_form(body.decode("utf-8", "replace"))
    where = request.client.host if request.client else ""
    wanted = _wanted(form)
    try:
        secret = _begin(site, form, where)
    except (AccessError, StoreError) as error:
        if isinstance(error, AccessError):
            site.refusals.count("sign-in")
            who = getattr(error, "name", "-")
            site.refusals.note_and_wait(
                site.refusals.entry(where, str(error), who=who, action=ACTION)
            )
        return _form(wanted, error)
    response = RedirectResponse(wanted, HTTPStatus.SEE_OTHER)
    set_session(request, response, secret)
    return response


def take_sign_out(site: Site, request: Request, _body: bytes) -> Response:
    """End the session of this browser."""
    secret = session_of(request)
    try:
        refuse_forged(request, secret)
        site.sessions.end(secret, request.client.host if request.client else "")
    except (ForgedRequestError, StoreError) as error:
        return PlainTextResponse(f"{error}\n", status_of(error))
    response = Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": LOGIN})
    forget_session(request, response)
    return response


def _begin(site: Site, form: Form, where: str) -> str:
    code = form.text("code")
    return (
        site.sessions.redeem(code, where)
        if code
        else site.sessions.sign_in(form.text("token"), where)
    )


def _form(wanted: str, error: ForewarnError | None = None) -> Response:
    status = HTTPStatus.OK if error is None else status_of(error)
    values = {"wanted": wanted, "error": "" if error is None else str(error)}
    return HTMLResponse(render("login.html", values), status)


def _wanted(form: Form) -> str:
    """Return where to go afterwards: a page of ours, whatever the address says."""
    wanted = form.text("next", "/")
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\", LOGIN))
    return wanted if is_ours and wanted.isprintable() and wanted.isascii() else "/"
