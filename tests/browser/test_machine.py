"""One virtual machine: what it reads and read, what happens to it, and what its owner does."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.browser.api import call, make_token, poll
from tests.browser.fleets import assert_not_found, refused
from tests.browser.windows import Window, Windows

from forewarn.testing.emulator import Emulator

STRANGE: Final = "</pre><script>alert('x')</script> \u202e\"quoted\" " + "long" * 45
FLEET: Final[dict[str, Any]] = {
    "availability_set": [{"name": "web", "update_domains": 3}],
    "cloud_service": [{"name": "shop", "update_domains": 2, "approval": "all"}],
    "virtual_machine": [
        {
            "name": "web-0",
            "availability_set": "web",
            "host": "kvm-1",
            "addresses": ["10.0.0.10", "fd00::10"],
            "location": "basement",
            "labels": {"tier": "front", "note": STRANGE},
            "tags": {"owner": "shop team"},
            "profile": {"vm_size": "Standard_D4s_v5", "os_type": "Linux"},
        },
        {"name": "web-1", "availability_set": "web", "host": "kvm-2"},
        {"name": "FrontEnd_IN_0", "cloud_service": "shop", "host": "kvm-1"},
        {"name": "x" * 128, "host": "kvm-2"},
    ],
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET, now=datetime(2030, 1, 7, 9, 30, tzinfo=UTC)) as running:
        yield running


def forge(window: Window, path: str, *, with_token: bool = True) -> int:
    """Return how the server answers something to do that no page of it offers."""
    with refused(window):
        status: int = window.page.evaluate(
            """async ([path, withToken]) => {
                const own = JSON.parse(document.body.getAttribute("hx-headers:inherited"));
                return (await fetch(path, {method: "POST", headers: withToken ? own : {}})).status;
            }""",
            [path, with_token],
        )
    return status


def test_restart_is_scheduled_approved_started_and_over_without_reload(
    emulator: Emulator, windows: Windows
) -> None:
    poll(emulator, "web-0")
    window = windows.signed_in(emulator, "/virtual-machines/web-0")
    page = window.page
    page.evaluate("window.stays = true")

    page.get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()

    events = page.locator("table.events")
    expect(events).to_contain_text("Scheduled")
    expect(events).to_contain_text("User")
    expect(page.locator("#toasts")).to_contain_text("The restart of web-0 is scheduled.")
    expect(page.locator("#now")).to_contain_text('"EventStatus": "Scheduled"')
    emulator.vm("web-0").events[0].approve()
    expect(events).to_contain_text("Started", timeout=10_000)
    emulator.clock.advance(minutes=20)
    expect(page.locator("table.history")).to_contain_text("Completed", timeout=10_000)
    expect(events).to_have_count(0)
    assert page.evaluate("window.stays"), "the page was not loaded anew"


def test_second_restart_is_refused_in_its_dialog(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator, "/virtual-machines/web-1")
    emulator.vm("web-1").user_reboot()

    window.page.get_by_role("button", name="Redeploy").click()
    window.page.keyboard.press("Tab")
    with refused(window):
        window.page.keyboard.press("Enter")

    refusal = window.page.locator("#redeploy .refusal")
    expect(refusal).to_contain_text("web-1")
    window.page.keyboard.press("Escape")
    expect(window.page.get_by_role("dialog")).not_to_be_visible()


def test_time_machine_shows_what_was_read_before_and_after(
    emulator: Emulator, windows: Windows
) -> None:
    poll(emulator, "web-0")
    for _ in range(3):
        emulator.vm("web-0").reboot(description="Firmware 7.2")
        emulator.clock.advance(hours=3)
    emulator.vm("web-0").freeze(duration=9)
    emulator.clock.advance(minutes=5)
    window = windows.signed_in(emulator, "/virtual-machines/web-0")
    page = window.page
    expect(page.locator("#now")).to_contain_text("Freeze")

    page.get_by_label("At time", exact=True).fill("3h")
    page.get_by_role("button", name="Show").click()

    expect(page.locator("#then")).to_contain_text("Reboot")
    expect(page.locator("#then")).to_contain_text("Firmware 7.2")
    page.locator("#then-exact summary").click()
    exact = page.locator("#then-exact pre").inner_text()
    assert (
        json.loads(exact)["DocumentIncarnation"] < emulator.document("web-0")["DocumentIncarnation"]
    )
    window.shoot("machine")
    window.assert_accessible()
    page.get_by_role("link", name="Link to this time").click()
    expect(page.locator("#then")).to_contain_text("Reboot")
    page.get_by_label("api-version").select_option("2017-08-01")
    expect(page.locator("#then")).not_to_contain_text("Description")
    for said, problem in {
        "yesterday": "is not a valid time",
        "2031-01-01T00:00Z": "in the future",
    }.items():
        window.go(f"/virtual-machines/web-0?at={quote(said)}")
        expect(page.locator("#then-problem")).to_contain_text(problem)


def test_history_is_paged_and_outlives_the_machine(emulator: Emulator, windows: Windows) -> None:
    vm = emulator.vm("web-1")
    for _ in range(25):
        vm.freeze().cancel(STRANGE)
    emulator.clock.advance(minutes=1)
    window = windows.signed_in(emulator, "/virtual-machines/web-1")
    rows = window.page.locator("table.history tbody tr")
    expect(rows).to_have_count(20)
    window.page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(5)

    call(emulator, "DELETE", "/virtual-machines/web-1")
    window.go("/virtual-machines/WEB-1")

    expect(window.page.get_by_text("left the fleet")).to_be_visible()
    expect(rows).to_have_count(20)
    expect(window.page.get_by_role("button", name="Restart")).to_have_count(0)
    window.shoot("machine-gone")
    window.assert_accessible()


def test_strange_names_are_harmless_and_fit(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator, f"/virtual-machines/{'x' * 128}")
    window.shoot("machine-long-name")
    window.go("/fleet")
    window.shoot("fleet-long-names")
    window.go("/virtual-machines/web-0")
    expect(window.page.get_by_text("<script>alert('x')</script>")).to_be_visible()
    assert_not_found(window, "/virtual-machines/%3Cscript%3E")


def test_others_see_and_do_no_more_than_they_may(emulator: Emulator, windows: Windows) -> None:
    limited = make_token(emulator, "shopkeeper", "operator", "cloud-service/shop")
    window = windows.signed_in(emulator, "/virtual-machines/FrontEnd_IN_0", limited)
    assert forge(window, "/virtual-machines/web-0/restart") == 404
    assert forge(window, "/virtual-machines/FrontEnd_IN_0/restart", with_token=False) == 403
    assert_not_found(window, "/virtual-machines/web-0")

    viewer = windows.signed_in(
        emulator, "/virtual-machines/web-0", make_token(emulator, "watcher", "viewer")
    )
    expect(viewer.page.get_by_role("button", name="Restart")).to_have_count(0)
    assert forge(viewer, "/virtual-machines/web-0/restart") == 403
    assert emulator.events == ()
