"""Run `forewarn demo`, and take the pictures of the console in docs/ in the middle of its roll-out.

It needs Debian's headless Chromium, which `make test-needs` installs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Page, expect, sync_playwright

DOCS: Final = Path(__file__).parent.parent / "docs"
CHROMIUM: Final = "/usr/bin/chromium-headless-shell"
PAGES: Final = {"now": "/"}
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
WIDTH, HEIGHT = 1440, 900
SPEED: Final = "20"
"""Slow enough for all pictures to show the same moment."""
LINK: Final = re.compile(r"http://\S+/login#\S+")
MOMENT: Final = re.compile(r"web-1 has drained and approves")
"""One host is done, one waits for the machine that says nothing, and two wait for their turn."""
LARGEST: Final = 250_000


def main() -> None:
    """Take the pictures, and say how large they are."""
    with _demo() as story, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(_read_until(story, LINK))
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        _read_until(story, MOMENT)
        for name, path in PAGES.items():
            _shoot(page, name, path)
        browser.close()


def _shoot(page: Page, name: str, path: str) -> None:
    if page.url.partition("//")[2].partition("/")[2] != path[1:]:
        page.goto(path)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.wait_for_timeout(1000)  # what was told is on the page
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        picture = DOCS / f"console-{name}-{theme}.png"
        page.screenshot(path=picture)
        size = picture.stat().st_size
        print(f"{picture.name}: {size // 1000} kB")
        if size > LARGEST:
            raise SystemExit(f"{picture.name} is larger than {LARGEST // 1000} kB")


@contextmanager
def _demo() -> Iterator[Iterator[str]]:
    """Run a demo, and give what it tells."""
    command = [str(Path(sys.executable).with_name("forewarn")), "demo", "--speed", SPEED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        if process.stdout is None:
            raise ValueError(process.stdout)
        try:
            yield iter(process.stdout)
        finally:
            process.terminate()
            process.communicate()


def _read_until(story: Iterator[str], wanted: re.Pattern[str]) -> str:
    for line in story:
        if found := wanted.search(line):
            return found[0]
    raise SystemExit(f"the demo does not say {wanted.pattern}")


if __name__ == "__main__":
    main()
