"""The console as one application: pages by noun, a session before each, nothing from elsewhere."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from forewarn.connections.limits import StreamLimitError
from forewarn.connections.streams import wait_idly
from forewarn.console.assets import PREFIX, assets_by_path
from forewarn.console.cookies import refuse_forged, session_of
from forewarn.console.headers import SafeHeaders
from forewarn.console.live import refuse_stream, show_live
from forewarn.console.problems import (
    UnknownPageError,
    status_of,
    title_of,
)
from forewarn.console.pulse import Pulse
from forewarn.console.rendering import render
from forewarn.console.routes import ROUTES
from forewarn.console.sign_in import LOGIN, show_sign_in, take_sign_in, take_sign_out
from forewarn.console.site import Site
from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    Form,
    FormError,
    Fragment,
    Page,
    PageRoute,
    Visit,
    read_form,
)
from forewarn.desk.caller import Caller
from forewarn.desk.refusals import EXCESS_SECONDS, NOBODY, Refusals, kind_of
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.operations.access import redact
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.statuses import name_of_status

_log = structlog.get_logger(__name__)

LARGEST_FORM: Final = 1024 * 1024
"""A file of holidays fits."""
_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}

LONGEST_QUERY: Final = 2000
"""An address that somebody has typed or clicked together is shorter."""


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
        Route(LOGIN, partial(_sign_in, site), methods=["POST"]),
        Route("/logout", partial(_on_thread, site, take_sign_out), methods=["POST"]),
        *(_route(site, each) for each in ROUTES),
        Route("/{path:path}", partial(_answer, _UNKNOWN, site)),
    ]
    guard = Middleware(SafeHeaders, names=names, own_host=own_host)
    return Starlette(
        routes=routes, middleware=[guard], exception_handlers={StreamLimitError: refuse_stream}
    )


def _refuse_unknown(_visit: Visit) -> Page:
    raise UnknownPageError


_UNKNOWN: Final = PageRoute(path="", show=_refuse_unknown)


def _route(site: Site, route: ConsoleRoute) -> Route:
    method = "GET" if isinstance(route, PageRoute) else "POST"
    return Route(route.path, partial(_answer, route, site), methods=[method])


async def _show_asset(request: Request) -> Response:
    asset = assets_by_path().get(request.url.path)
    if asset is None:
        return PlainTextResponse("File not found.\n", HTTPStatus.NOT_FOUND)
    return Response(asset.body, headers={**_FOREVER, "Content-Type": asset.media_type})


async def _on_thread(
    site: Site, endpoint: Callable[[Site, Request], Response], request: Request
) -> Response:
    """Have *endpoint* answer on a thread, where it may wait for the store."""
    return await site.on_thread(partial(endpoint, site, request))


async def _sign_in(site: Site, request: Request) -> Response:
    """Begin a session; after many wrong tokens and codes, answer the next wrong one late."""
    response = await _on_thread(site, take_sign_in, request)
    if response.status_code == HTTPStatus.FORBIDDEN and site.refusals.is_guessing(request.client):
        await wait_idly(request.scope, EXCESS_SECONDS)
    return response


async def _answer(route: ConsoleRoute, site: Site, request: Request) -> Response:
    """Answer somebody who is signed in; from others nothing but the head is read."""
    secret = session_of(request)
    is_by_itself = request.headers.get("x-live") == "1"  # no sign of anybody being there
    try:
        principal = await site.find_visitor(secret, is_use=not is_by_itself)
        if principal is None:
            return _ask_to_sign_in(request)
        where = request.client.host if request.client else ""
        visit = Visit(
            caller=Caller(principal=principal, where=where, services=site.services),
            url=_own_url(request),
            path_values=request.path_params,
            query=_read_query(request),
        )
    except ForewarnError as error:
        # Before it is known who asks, there is no page to say it on.
        return PlainTextResponse(f"{error}\n", status_of(error))
    exchange = _Exchange(site=site, request=request, secret=secret, visit=visit, route=route)
    try:
        return await exchange.answer()
    except ClientDisconnect:
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # which nobody reads
    except Exception as error:  # noqa: BLE001 - whatever it is, the visitor is told
        return await site.on_thread(partial(exchange.refuse, error))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """One request of somebody who is signed in, and how it is answered."""

    site: Site
    request: Request
    secret: str
    visit: Visit
    route: ConsoleRoute

    async def answer(self) -> Response:
        """Show the page, or do the action."""
        self.visit.caller.principal.require(self.route.role)
        if isinstance(self.route, PageRoute):
            return await self._show(self.route.show)
        refuse_forged(self.request, self.secret)
        large_bodies = self.site.services.large_bodies
        name = self.visit.caller.principal.name
        with large_bodies.place_of_body(name, self.request.headers):
            text = await _read_body(self.request)
        form = await self.site.on_thread(partial(read_form, text))
        visit = replace(self.visit, form=form)
        act = partial(self._act, self.route, visit)
        return await self.site.on_thread(act, is_slow=self.route.is_slow)

    async def _show(self, show: Callable[[Visit], Page]) -> Response:
        main = await self.site.main(self.visit, show)
        if not self._is_part:
            whole = partial(self.site.render_whole, self.visit, self.secret, main)
            return HTMLResponse(await self.site.on_thread(whole))
        if self.request.headers.get("x-have") == main.digest:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return HTMLResponse(main.body)

    def _act(self, route: ActionRoute, visit: Visit) -> Response:
        result = route.act(visit)
        if route.name:
            self.site.pulse.touch()
        return self._tell(result)

    def _tell(self, result: Done | Fragment) -> Response:
        if isinstance(result, Fragment):
            return HTMLResponse(self.site.render_fragment(self.visit, result))
        news = {"done": {"message": result.message, "location": result.location}}
        # As JSON in ASCII, which a header can carry.
        headers = {"HX-Trigger": json.dumps(news)}
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)

    def refuse(self, error: Exception) -> Response:
        """Say why not, on the page or in the form that asked for it."""
        failure = HTTPStatus.INTERNAL_SERVER_ERROR
        status = status_of(error) if isinstance(error, ForewarnError) else failure
        if not isinstance(error, ForewarnError) or status is failure:
            _log.error("console_request_failed", path=redact(self.request.url.path), exc_info=error)
            return self._refuse(failure, "Internal server error. See the server's log.")
        self._note(self.route, error)
        return self._refuse(status, str(error))

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
                f"{name_of_status(status)}: {error}",
                who=caller.principal.name,
                action=route.name,
                subject=self.visit.path_values.get(route.subject, NOBODY),
                is_valid=True,
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


async def _read_body(request: Request) -> str:
    body = bytearray()
    async for part in request.stream():
        body.extend(part)
        if len(body) > LARGEST_FORM:
            raise FormError("The form is too large; the maximum is 1 MiB.")
    return body.decode("utf-8", "replace")


def _read_query(request: Request) -> Form:
    query = request.url.query
    if len(query) > LONGEST_QUERY:
        raise FormError("The address is too long.")
    return read_form(query)


def _own_url(request: Request) -> str:
    # Two slashes at its beginning would make it the address of another server.
    path, query = "/" + request.url.path.lstrip("/\\"), request.url.query
    return f"{path}?{query}" if query else path
