"""The notice report: how promises were kept, by period and by scope."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect
from tests.browser.histories import FLEET, make_history
from tests.browser.windows import Windows

from forewarn.testing.emulator import Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET, now=datetime(2026, 3, 2, 8, tzinfo=UTC)) as running:
        yield running


def test_report_tells_how_promises_were_kept(emulator: Emulator, windows: Windows) -> None:
    make_history(emulator)
    window = windows.signed_in(emulator, "/notice")
    page = window.page
    row = page.locator("[id='scope-availability-set/search']")
    expect(row).to_contain_text("7 of 8")
    expect(page.locator("tbody tr").first).to_contain_text("availability-set/web")
    expect(page.locator(".tiles")).to_contain_text("31 of 33")
    window.shoot("notice")
    window.assert_accessible()
    page.evaluate("window.stays = true")

    forced = emulator.vm("search-1").freeze()
    forced.start()

    expect(row).to_contain_text("7 of 9")
    assert page.evaluate("window.stays"), "the page was not loaded anew"
    page.get_by_role("link", name="24 hours").press("Enter")
    expect(page.locator("#main h1")).to_have_text("Notice report")
    expect(page).to_have_url(re.compile("period=24h$"))


def test_report_without_events_says_so(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator, "/notice")

    expect(window.page.locator("#main")).to_contain_text(
        "No event ended or started in the last 7 days."
    )
    window.shoot("notice-empty")
    window.assert_accessible()
