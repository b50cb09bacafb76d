"""What all pages share: who visits, what surrounds a page, and what was rendered a moment ago."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Final, TypeVar

from markupsafe import Markup

import forewarn
from forewarn.console.assets import assets_version
from forewarn.console.cookies import csrf_token
from forewarn.console.pulse import Pulse
from forewarn.console.rendered_pages import RenderedMain, RenderedPages
from forewarn.console.rendering import render
from forewarn.console.visit import Fragment, Page, Visit
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.domain.access import Principal
from forewarn.domain.roles import Role
from forewarn.operations.pausing import find_pause
from forewarn.outbound.client import Daemons

T = TypeVar("T")

THREADS: Final = 3
"""How many requests are worked on at once.

Each competes with polls for the interpreter: of 50 consoles at once, 40 did with Starlette's pool.
"""
_VISITORS: Final = 1000
"""How many visitors are remembered."""
_SECONDS: Final = 5
"""How old a page may be in what only time changes, and polls: what is no change of the store."""


@dataclass(frozen=True, slots=True)
class Section:
    """A page that can be reached from every other, for those who have *role*."""

    title: str
    path: str
    role: Role = Role.VIEWER


SECTIONS: Final = (
    Section("Now", "/"),
    Section("Fleet", "/fleet"),
    Section("Timeline", "/timeline"),
    Section("Maintenances", "/maintenances"),
    Section("Notifications", "/notifications"),
    Section("Audit", "/audit", Role.ADMIN),
    Section("Tokens", "/tokens", Role.ADMIN),
    Section("Health", "/health"),
)
VIRTUAL_TIME: Final = Section("Virtual time", "/virtual-time")
_PARENTS: Final[Mapping[str, str]] = {"/events": "/timeline", "/virtual-machines": "/fleet"}
"""The section to highlight for pages outside the menu."""


class Visitors:
    """Who was signed in a moment ago: what pages do by themselves costs no look at the store.

    Used on one event loop.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()

    def find(self, secret: str) -> Principal | None:
        """Return who was signed in with *secret* seconds ago."""
        at, principal = self._known.get(secret, (-inf, None))
        return principal if monotonic() - at < _SECONDS else None

    def note(self, secret: str, principal: Principal | None) -> None:
        """Remember who is signed in with *secret*, or that nobody is."""
        self._known.pop(secret, None)
        if principal is not None:
            self._known[secret] = monotonic(), principal
        if len(self._known) > _VISITORS:
            self._known.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The console of one server."""

    services: Services
    sessions: Sessions
    refusals: Refusals
    pulse: Pulse
    rendered: RenderedPages = field(default_factory=RenderedPages)
    visitors: Visitors = field(default_factory=Visitors)
    threads: Executor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "console"))
    daemons: Executor = field(default_factory=Daemons)

    async def on_thread(self, work: Callable[[], T], *, is_slow: bool = False) -> T:
        """Return what *work* does, which takes long, off the event loop.

        What *is_slow* would keep a thread from all pages for minutes, and the server from its end.
        """
        threads = self.daemons if is_slow else self.threads
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def find_visitor(self, secret: str, *, is_use: bool) -> Principal | None:
        """Return who is signed in with *secret*; unless it *is_use*, who was seconds ago."""
        if not secret:
            return None
        known = None if is_use else self.visitors.find(secret)
        if known is None:
            known = await self.on_thread(partial(self.sessions.find, secret, is_use=is_use))
            self.visitors.note(secret, known)
        return known

    async def main(self, visit: Visit, show: Callable[[Visit], Page]) -> RenderedMain:
        """Return the part of the page that changes; the same for all with these rights."""
        principal = visit.caller.principal
        key = visit.url, principal.role, principal.scopes
        show_page = partial(self.on_thread, partial(self._show, visit, show))
        return await self.rendered.find(key, self._stamp, show_page)

    def _stamp(self) -> Hashable:
        return self.pulse.version, self._virtual_now(), int(monotonic() / _SECONDS)

    def _show(self, visit: Visit, show: Callable[[Visit], Page]) -> RenderedMain:
        return self.render_main(visit, show(visit))

    def render_main(self, visit: Visit, page: Page) -> RenderedMain:
        """Return *page* within `main`, which asks for itself anew."""
        values = {**self._common(visit), "title": page.title, **page.values}
        inside = render(page.template, values)
        told = f"{page.title} {values['pause']} {self._virtual_now()} {inside}"
        digest = sha256(told.encode()).hexdigest()[:16]
        around = {"digest": digest, "inside": _as_markup(inside), "is_live": page.is_live}
        return RenderedMain(digest, render("main.html", {**values, **around}).encode())

    def render_fragment(self, visit: Visit, fragment: Fragment) -> str:
        """Return *fragment* as HTML."""
        return render(fragment.template, {**self._common(visit), **fragment.values})

    def render_whole(self, visit: Visit, secret: str, main: RenderedMain) -> str:
        """Return the page with what surrounds it."""
        path = visit.url.partition("?")[0]
        top = "/" + path.split("/")[1]
        values = {
            "now": self.services.clock.now(),
            "is_virtual": self._virtual_now() is not None,
            "main": _as_markup(main.body.decode()),
            "sections": [each for each in self._sections() if visit.may(each.role)],
            "section": _PARENTS.get(top, top),
            "principal": visit.caller.principal,
            "csrf": csrf_token(secret),
            "version": forewarn.__version__,
            "assets_version": assets_version(),
        }
        return render("shell.html", values)

    def _virtual_now(self) -> datetime | None:
        clock = self.services.clock
        return clock.now() if clock.kind == "virtual" else None

    def _common(self, visit: Visit) -> dict[str, object]:
        return {
            "url": visit.url,
            "now": self.services.clock.now(),
            "is_virtual": self._virtual_now() is not None,
            "may_operate": visit.may(Role.OPERATOR),
            "may_administer": visit.may(Role.ADMIN),
            "pause": visit.read(find_pause),
        }

    def _sections(self) -> tuple[Section, ...]:
        return SECTIONS if self._virtual_now() is None else (*SECTIONS, VIRTUAL_TIME)


def _as_markup(rendered: str) -> Markup:
    return Markup(rendered)  # noqa: S704 - Jinja has escaped what had to be
