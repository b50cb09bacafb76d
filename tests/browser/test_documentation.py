"""The documentation as a reader sees it: search, and what the copy button takes."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.docs.building import build_site


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = build_site(tmp_path_factory.mktemp("documentation"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(60)


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    context = chromium.new_context(
        base_url=address, permissions=["clipboard-read", "clipboard-write"]
    )
    yield context.new_page()
    context.close()


def test_copy_button_takes_the_commands_only(page: Page) -> None:
    page.goto("/tutorials/patch-a-small-fleet/")
    block = page.locator("pre", has_text="$ forewarn vm list")

    block.hover()
    block.locator("button").first.click()

    expect(page.locator(".md-dialog--active")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert [line.split()[:2] for line in copied if line.strip()] == [
        ["forewarn", "serve"],
        ["forewarn", "vm"],
    ]


def test_search_finds_the_page_that_explains(page: Page) -> None:
    page.goto("/")

    page.get_by_role("button", name="Search").first.click()
    page.get_by_role("combobox").fill("update domain")

    expect(page.get_by_role("option").first).to_have_accessible_name(
        "Update domains, and why notice works"
    )


def test_picture_of_the_console_has_the_colours_of_the_reader(page: Page, address: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto("/")

        shown = page.locator("img[src*=console-now]")
        expect(shown).to_have_js_property("currentSrc", f"{address}/console-now-{scheme}.png")
