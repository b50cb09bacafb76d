"""Windows of a browser, which notice every error and every request that leaves the server."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from forewarn.testing.emulator import Emulator

FLEET: Final[Mapping[str, Any]] = {
    "availability_set": [{"name": "web", "update_domains": 3, "postpone_until": "4h"}],
    "cloud_service": [{"name": "shop", "update_domains": 2, "approval": "all"}],
    "virtual_machine": [
        {"name": "web-0", "availability_set": "web", "host": "kvm-1", "addresses": ["10.0.0.10"]},
        {"name": "web-1", "availability_set": "web", "host": "kvm-2"},
        {"name": "web-2", "availability_set": "web", "host": "kvm-3"},
        {"name": "FrontEnd_IN_0", "cloud_service": "shop", "host": "kvm-1"},
        {"name": "FrontEnd_IN_1", "cloud_service": "shop", "host": "kvm-2"},
        {"name": "db", "host": "kvm-3"},
    ],
}
SECONDS: Final = 30
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
WIDTHS: Final = (1440, 390)
_AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


class Windows:
    """Opens windows, each with cookies of its own."""

    def __init__(self, browser: Browser, pictures: Path | None) -> None:
        self._browser = browser
        self._pictures = pictures
        self._opened: list[Window] = []

    def open(self, url: str) -> "Window":
        """Return a window of somebody who is not signed in at *url*."""
        context = self._browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
        context.set_default_timeout(SECONDS * 1000)
        window = Window(context, url, self._pictures)
        self._opened.append(window)
        return window

    def signed_in(self, emulator: Emulator, path: str = "/", token: str = "") -> "Window":
        """Return a window of the admin, or of whoever has *token*, on the page at *path*."""
        window = self.open(emulator.control_url)
        window.sign_in(token or emulator.token)
        window.go(path)
        return window

    def close(self) -> None:
        """Close all, and fail if one had an error."""
        errors = [error for window in self._opened for error in window.errors]
        for window in self._opened:
            window.context.close()
        assert errors == [], errors


class Window:
    """One window: `page` is what Playwright drives."""

    def __init__(self, context: BrowserContext, url: str, pictures: Path | None) -> None:
        self.context = context
        self.url = url
        self.errors: list[str] = []
        """What went wrong in it; a test that expects an error empties the list."""
        self._pictures = pictures
        self.page: Page = context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note_request)

    def sign_in(self, token: str) -> None:
        """Sign in with *token*, as a person does."""
        self.page.goto("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.locator("#main[hx-get]")).to_be_visible()

    def go(self, path: str) -> None:
        """Go to the page at *path*, and wait until it is live."""
        self.page.goto(path)
        self.await_live()

    def await_live(self) -> None:
        """Wait until the page follows changes."""
        expect(self.page.locator("#live")).to_have_attribute("data-state", "live")

    def shoot(self, name: str) -> None:
        """Require that the page fits, wide and narrow, and take pictures if they are wanted.

        Pictures are of the whole page, light and dark.
        """
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            for theme in THEMES if self._pictures else ():
                self.page.emulate_media(color_scheme=theme)
                path = f"{self._pictures}/{name}-{width}-{theme}.png"
                self.page.screenshot(path=path, full_page=True)
            overflow = self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, f"{name} is {overflow} pixels wider than {width}"
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1440, "height": 900})

    def assert_accessible(self) -> None:
        """Have axe-core look for what people with disabilities could not use, in both themes."""
        self.page.evaluate(_AXE)  # not as a script of the page, which would be refused
        for theme in THEMES:
            self.page.emulate_media(color_scheme=theme)
            found = self.page.evaluate("axe.run({resultTypes: ['violations']})")
            problems = [
                (each["id"], each["help"], [node["target"] for node in each["nodes"]][:3])
                for each in found["violations"]
                if each["impact"] in {"serious", "critical"}
            ]
            assert problems == [], json.dumps(problems, indent=1)
        self.page.emulate_media(color_scheme="light")

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.errors.append(f"leaves the server: {request.url}")
