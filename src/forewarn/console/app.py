"""The console as one application: pages by noun, a session before each, nothing from elsewhere."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from forewarn.console.assets import PREFIX, assets_by_path
from forewarn.console.cookies import refuse_forged, session_of
from forewarn.console.headers import SafeHeaders
from forewarn.console.live import show_live
from forewarn.console.nouns import ROUTES
from forewarn.console.problems import (
    UnknownPageError,
    status_of,
    title_of,
)
from forewarn.console.pulse import Pulse
from forewarn.console.rendering import render
from forewarn.console.sign_in import LOGIN, show_sign_in, take_sign_in, take_sign_out
from forewarn.console.site import Site
from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    Fragment,
    Page,
    PageRoute,
    Visit,
    read_form,
)
from forewarn.desk.caller import Caller
from forewarn.desk.refusals import NOBODY, Refusals, kind_of
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.operations.access import redact
from forewarn.protocol.errors import ForewarnError

_log = structlog.get_logger(__name__)

LARGEST_FORM: Final = 2 * 1024 * 1024
"""A file of holidays fits."""
_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}

_Endpoint: TypeAlias = Callable[[Site, Request, bytes], Response]
"""What answers a request, whose body has been read, on a thread."""


def create_console(
    services: Services,
    pulse: Pulse,
    refusals: Refusals,
    names: Iterable[str] = (),
    *,
    own_host: str = "",
) -> Starlette:
    """Return the console on top of *services*, which listens on *own_host*.

    Browsers may call it by *names*, too.
    """
    site = Site(services=services, sessions=Sessions(services), refusals=refusals, pulse=pulse)
    routes: list[BaseRoute] = [
        Route(PREFIX + "{name}", _show_asset),
        Route("/live", partial(show_live, site)),
        Route(LOGIN, partial(_on_thread, site, show_sign_in), methods=["GET"]),
        Route(LOGIN, partial(_on_thread, site, take_sign_in), methods=["POST"]),
        Route("/logout", partial(_on_thread, site, take_sign_out), methods=["POST"]),
        *(_route(site, each) for each in ROUTES),
        Route("/{path:path}", partial(_on_thread, site, partial(_answer, _UNKNOWN))),
    ]
    guard = Middleware(SafeHeaders, names=names, own_host=own_host)
    return Starlette(routes=routes, middleware=[guard])


def _refuse_unknown(_visit: Visit) -> Page:
    raise UnknownPageError


_UNKNOWN: Final = PageRoute(path="", show=_refuse_unknown)


def _route(site: Site, route: ConsoleRoute) -> Route:
    method = "GET" if isinstance(route, PageRoute) else "POST"
    return Route(route.path, partial(_on_thread, site, partial(_answer, route)), methods=[method])


async def _show_asset(request: Request) -> Response:
    asset = assets_by_path().get(request.url.path)
    if asset is None:
        return PlainTextResponse("There is no such file.\n", HTTPStatus.NOT_FOUND)
    return Response(asset.body, headers={**_FOREVER, "Content-Type": asset.media_type})


async def _on_thread(site: Site, endpoint: _Endpoint, request: Request) -> Response:
    """Answer on a thread: reading and rendering take so long that polls would have to wait."""
    body = bytearray()
    if request.method == "POST":
        async for part in request.stream():
            body.extend(part)
            if len(body) > LARGEST_FORM:
                return PlainTextResponse("The form is too large.\n", 413)
    return await site.on_thread(partial(endpoint, site, request, bytes(body)))


def _answer(route: ConsoleRoute, site: Site, request: Request, body: bytes) -> Response:
    secret = session_of(request)
    is_by_itself = request.headers.get("x-live") == "1"  # no sign of anybody being there
    try:
        principal = site.sessions.find(secret, is_use=not is_by_itself) if secret else None
        if principal is None:
            return _ask_to_sign_in(request)
        where = request.client.host if request.client else ""
        visit = Visit(
            caller=Caller(principal=principal, where=where, services=site.services),
            url=_own_url(request),
            parts=request.path_params,
            query=read_form(request.url.query),
            form=read_form(body.decode("utf-8", "replace")),
        )
    except ForewarnError as error:
        # Before it is known who asks, there is no page to say it on.
        return PlainTextResponse(f"{error}\n", status_of(error))
    return _Exchange(site=site, request=request, secret=secret, visit=visit).answer(route)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """One request of somebody who is signed in, and how it is answered."""

    site: Site
    request: Request
    secret: str
    visit: Visit

    def answer(self, route: ConsoleRoute) -> Response:
        """Show the page, or do the action; or say why not."""
        try:
            self.visit.caller.principal.require(route.role)
            if isinstance(route, PageRoute):
                return self._show(route.show)
            refuse_forged(self.request, self.secret)
            result = route.act(self.visit)
            if route.name:
                self.site.pulse.touch()
            return self._tell(result)
        except ForewarnError as error:
            self._note(route, error)
            return self._refuse(status_of(error), str(error))
        except Exception:  # noqa: BLE001 - whatever it is, the visitor is told
            _log.exception("console_request_failed", path=redact(self.request.url.path))
            failure = HTTPStatus.INTERNAL_SERVER_ERROR
            return self._refuse(failure, "The server failed; its log says why.")

    def _show(self, show: Callable[[Visit], Page]) -> Response:
        main = self.site.main(self.visit, show)
        if not self._is_part:
            return HTMLResponse(self.site.render_whole(self.visit, self.secret, main))
        if self.request.headers.get("x-have") == main.digest:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return HTMLResponse(main.body)

    def _tell(self, result: Done | Fragment) -> Response:
        if isinstance(result, Fragment):
            return HTMLResponse(self.site.render_fragment(self.visit, result))
        news = {"done": {"message": result.message, "location": result.location}}
        # As JSON in ASCII, which a header can carry.
        headers = {"HX-Trigger": json.dumps(news)}
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)

    def _refuse(self, status: HTTPStatus, detail: str) -> Response:
        values = {"detail": detail}
        if self.request.method == "POST" or self._is_part:
            return HTMLResponse(render("refusal.html", values), status)
        title = title_of(status)
        page = Page(title=title, template="problem.html", values=values, is_live=False)
        main = self.site.render_main(self.visit, page)
        return HTMLResponse(self.site.render_whole(self.visit, self.secret, main), status)

    def _note(self, route: ConsoleRoute, error: ForewarnError) -> None:
        """Write a refused action into the audit, as the control API does."""
        refusals, status = self.site.refusals, status_of(error)
        refusals.count(kind_of(error))
        if not isinstance(route, ActionRoute) or not route.name or status >= 500:
            return
        caller = self.visit.caller
        refusals.note_and_wait(
            refusals.entry(
                caller.where,
                f"{status.phrase}: {error}",
                who=caller.principal.name,
                action=route.name,
                subject=self.visit.parts.get(route.subject, NOBODY),
            )
        )

    @property
    def _is_part(self) -> bool:
        """Whether a page that is there already asks for what has changed in it."""
        return self.request.headers.get("hx-request") == "true"


def _ask_to_sign_in(request: Request) -> Response:
    is_page = request.method == "GET" and request.headers.get("hx-request") != "true"
    own = _own_url(request) if request.method == "GET" else "/"
    login = LOGIN if own == "/" else f"{LOGIN}?next={quote(own)}"
    if is_page:
        return RedirectResponse(login, HTTPStatus.SEE_OTHER)
    return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": login})


def _own_url(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path
