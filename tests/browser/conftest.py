"""Debian's headless Chromium on real servers: what a page shows, does, and never asks of others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.browser.windows import FLEET, SECONDS, Windows
from tests.needs import need

from forewarn.testing.emulator import Emulator

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


# What a busy machine may take; whatever is there at once is not waited for.
expect.set_options(timeout=SECONDS * 1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--screenshots", type=Path, default=None, help="where to keep pictures of the pages"
    )


@pytest.fixture(scope="module")  # its event loop is in the way of tests of other files
def chromium() -> Iterator[Browser]:
    need(CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """A server in virtual time, with a small fleet."""
    with Emulator(fleet=FLEET) as running:
        yield running


@pytest.fixture
def windows(chromium: Browser, pytestconfig: pytest.Config) -> Iterator[Windows]:
    """Browser windows; at the end none of them may have had an error."""
    opened = Windows(chromium, pytestconfig.getoption("screenshots", default=None))
    yield opened
    opened.close()
