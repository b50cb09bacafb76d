"""Signing in and out."""

from playwright.sync_api import expect
from tests.browser.windows import Windows

from forewarn.testing.emulator import Emulator


def test_token_signs_in_and_signing_out_ends_the_session(
    emulator: Emulator, windows: Windows
) -> None:
    window = windows.signed_in(emulator)
    cookies = window.context.cookies()

    window.page.get_by_role("button", name="Sign out").click()

    expect(window.page.get_by_label("Token")).to_be_visible()
    # The page that is left may have asked for itself a moment before.
    window.errors = [error for error in window.errors if "401" not in error]
    window.context.add_cookies(
        [
            {"name": each["name"], "value": each["value"], "url": emulator.control_url}
            for each in cookies
        ]
    )
    window.page.goto("/fleet")
    expect(window.page.get_by_label("Token")).to_be_visible()


def test_login_page_looks_well(emulator: Emulator, windows: Windows) -> None:
    window = windows.open(emulator.control_url)
    window.page.goto("/login")

    window.shoot("login")
    window.assert_accessible()
