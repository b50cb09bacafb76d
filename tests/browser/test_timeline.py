"""The timeline: what it draws, how it moves in time, and how it explains."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect
from tests.browser.histories import FLEET, OTHER_SCOPE, limited_token, make_history
from tests.browser.windows import Windows

from forewarn.testing.emulator import Emulator

MORNING = datetime(2026, 3, 2, 8, tzinfo=UTC)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET, now=MORNING) as running:
        yield running


def test_timeline_draws_what_was_is_and_will_be(emulator: Emulator, windows: Windows) -> None:
    make_history(emulator)
    window = windows.signed_in(emulator, "/timeline")
    page = window.page

    search = page.locator("[id='row-availability-set/search']")
    expect(search.locator("a.bar.failed .mark.failed")).to_be_visible()
    expect(search.locator("a.bar.forecast")).to_have_count(2)
    expect(search.locator(".band.window")).not_to_have_count(0)
    shop = page.locator("[id='row-cloud-service/shop']")
    expect(shop.locator("a.bar.scheduled .mark.not-before")).to_be_visible()
    db = page.locator("[id='row-virtual-machine/db']")
    expect(db.locator("a.bar.canceled .mark.canceled")).to_be_visible()
    web = page.locator("[id='row-availability-set/web']")
    expect(web.locator(".mark.postponed")).to_be_visible()
    expect(page.locator("[id='row-schedule-patches'] .band")).not_to_have_count(0)
    window.shoot("timeline")
    window.assert_accessible()

    page.get_by_role("link", name="By host").click()
    page.get_by_role("link", name="Day", exact=True).click()
    expect(page.locator("#row-kvm-1 a.bar")).not_to_have_count(0)
    window.shoot("timeline-hosts")

    page.get_by_role("link", name="Week", exact=True).click()
    page.get_by_text("As a table").click()
    expect(page.get_by_role("table")).to_contain_text("Forecast")
    expect(page.locator(".band.blackout")).not_to_have_count(0)
    window.shoot("timeline-week")
    window.assert_accessible()


def test_timeline_is_live_explains_and_goes_by_keyboard(
    emulator: Emulator, windows: Windows
) -> None:
    window = windows.signed_in(emulator, "/timeline")
    page = window.page
    expect(page.locator("#main")).to_contain_text("No events in this range.")
    window.shoot("timeline-empty")
    page.evaluate("window.stays = true")

    event = emulator.vm("web-0").reboot()

    bar = page.locator(f"a.bar[href='/events/{event.event_id}']")
    expect(bar).to_have_class("bar scheduled")
    page.get_by_role("link", name="availability-set/web").focus()
    page.keyboard.press("Tab")
    expect(bar).to_be_focused()
    expect(bar.locator(".tip")).to_contain_text("NotBefore")
    expect(bar.locator(".tip")).to_be_visible()
    window.shoot("timeline-tip")
    event.approve()
    expect(bar).to_have_class("bar started")
    expect(bar).to_be_focused()
    assert page.evaluate("window.stays"), "the page was not loaded anew"

    page.get_by_role("link", name="Earlier").press("Enter")
    page.get_by_role("link", name="Earlier").press("Enter")
    expect(page.locator("#main")).to_contain_text("No events in this range.")
    page.get_by_role("link", name="Now", exact=True).last.press("Enter")
    page.get_by_label("Scope").fill("shop")
    page.get_by_label("Scope").press("Enter")
    expect(page.locator("#main")).to_contain_text("match the filters.")
    page.get_by_role("link", name="Clear filters").press("Enter")
    page.get_by_label("Type").select_option("Reboot")
    expect(page).to_have_url(re.compile("type=Reboot"))
    expect(bar).to_be_visible()


def test_limited_token_sees_its_scopes_only(emulator: Emulator, windows: Windows) -> None:
    make_history(emulator)

    window = windows.signed_in(
        emulator, "/timeline?zoom=week", limited_token(emulator, "availability-set/web")
    )

    expect(window.page.locator("[id='row-availability-set/web']")).to_be_visible()
    expect(window.page.locator(".plot .row")).to_have_count(1)
    for path in ("/timeline?zoom=week", "/timeline?zoom=week&by=host"):
        window.go(path)
        said = window.page.content()
        assert "web" in said
        assert OTHER_SCOPE not in said
        assert "salaries" not in said
        assert "patches" not in said


def test_axis_has_the_time_of_the_browser(emulator: Emulator, windows: Windows) -> None:
    emulator.vm("web-0").reboot()
    window = windows.open(emulator.control_url)
    page = window.context.new_page()
    session = window.context.new_cdp_session(page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    window.page.close()
    window.page = page
    window.sign_in(emulator.token)

    window.go("/timeline")
    expect(page.locator("[data-zone]")).to_have_text("Asia/Tokyo")
    expect(page.locator("[data-axis='2026-03-02T08:00:00+00:00']")).to_have_text("17:00")

    window.go("/timeline?zoom=week")
    expect(page.locator("[data-shift]")).to_have_attribute("x", re.compile("^-5[.]357"))
