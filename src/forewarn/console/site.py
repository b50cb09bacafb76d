"""What all pages share: who visits, what surrounds a page, and what was rendered a moment ago."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Final

from markupsafe import Markup

import forewarn
from forewarn.console.assets import assets_version
from forewarn.console.cookies import csrf_token
from forewarn.console.pulse import Pulse
from forewarn.console.rendering import render
from forewarn.console.visit import Fragment, Page, Visit
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.desk.sessions import Sessions
from forewarn.domain.roles import Role
from forewarn.operations.pausing import find_pause

_KEPT: Final = 64
"""How many pages are kept: those that are looked at."""


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
    Section("Notice report", "/notice"),
    Section("Notifications", "/notifications"),
    Section("Audit", "/audit", Role.ADMIN),
    Section("Tokens", "/tokens", Role.ADMIN),
    Section("Health", "/health"),
)
VIRTUAL_TIME: Final = Section("Virtual time", "/virtual-time")
_PARENTS: Final[Mapping[str, str]] = {"/events": "/timeline", "/virtual-machines": "/fleet"}
"""The section of pages that are below none."""


class RenderedPages:
    """Pages as they were a moment ago: many browsers that show the same cost one rendering."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._kept: OrderedDict[Hashable, tuple[Hashable, Future[str]]] = OrderedDict()

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], str]) -> str:
        """Return what was made for *key* under the same *stamp*, or *make* it, once."""
        with self._changing:
            known = self._kept.get(key)
            is_known = known is not None and known[0] == stamp
            page: Future[str] = known[1] if known is not None and is_known else Future()
            if not is_known:
                self._kept[key] = stamp, page
                self._kept.move_to_end(key)
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        if not is_known:
            try:
                page.set_result(make())
            except BaseException as error:  # whoever else waits for it gets it, too
                page.set_exception(error)
                raise
        return page.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The console of one server."""

    services: Services
    sessions: Sessions
    refusals: Refusals
    pulse: Pulse
    rendered: RenderedPages = field(default_factory=RenderedPages)

    def main(self, visit: Visit, show: Callable[[Visit], Page | Fragment]) -> str:
        """Return the part of the page that changes; the same for all with these rights."""
        principal = visit.caller.principal
        key = visit.url, principal.role, principal.scopes
        now = self.services.clock.now() if self.services.clock.kind == "virtual" else None
        # What only time changes is a second old at most.
        stamp = self.pulse.version, now, int(monotonic())
        return self.rendered.get(key, stamp, lambda: self.fill(visit, show(visit)))

    def fill(self, visit: Visit, shown: Page | Fragment) -> str:
        """Return *shown* as HTML: a page within `main`, which it asks for anew by itself."""
        values = {**self._common(visit), **shown.values}
        if isinstance(shown, Fragment):
            return render(shown.template, values)
        inside = Markup(render(shown.template, values))  # noqa: S704 - Jinja has escaped it
        return render("main.html", {**values, "title": shown.title, "inside": inside})

    def whole(self, visit: Visit, secret: str, main: str) -> str:
        """Return the page with what surrounds it."""
        path = visit.url.partition("?")[0]
        top = "/" + path.split("/")[1]
        sections = [each for each in self._sections() if visit.may(each.role)]
        values = {
            **self._common(visit),
            "main": Markup(main),  # noqa: S704 - rendered above
            "sections": sections,
            "section": _PARENTS.get(top, top),
            "principal": visit.caller.principal,
            "csrf": csrf_token(secret),
            "version": forewarn.__version__,
            "assets_version": assets_version(),
        }
        return render("shell.html", values)

    def _common(self, visit: Visit) -> dict[str, object]:
        clock = self.services.clock
        return {
            "url": visit.url,
            "now": clock.now(),
            "is_virtual": clock.kind == "virtual",
            "may_operate": visit.may(Role.OPERATOR),
            "may_administer": visit.may(Role.ADMIN),
            "pause": visit.read(find_pause),
        }

    def _sections(self) -> tuple[Section, ...]:
        return (*SECTIONS, VIRTUAL_TIME) if self.services.clock.kind == "virtual" else SECTIONS
