"""Planning, starting and steering Maintenances."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.browser.api import call
from tests.browser.windows import Windows

from forewarn.testing.emulator import Emulator

WEB = [
    {"name": f"web-{n}", "availability_set": "web", "host": f"kvm-{n % 3 + 1}"} for n in range(6)
]
FLEET: Mapping[str, Any] = {
    "availability_set": [{"name": "web", "update_domains": 3}, {"name": "db", "update_domains": 2}],
    "scale_set": [{"name": "batch", "update_domains": 5}],
    "virtual_machine": [
        *WEB,
        *({"name": f"db-{n}", "availability_set": "db", "host": f"kvm-{n + 4}"} for n in range(2)),
        *({"name": f"batch-{n}", "scale_set": "batch"} for n in range(10)),
        {"name": "bastion", "host": "kvm-6"},
    ],
}


@pytest.fixture
def fleet() -> Iterator[Emulator]:
    """A server in virtual time, with three sets."""
    with Emulator(fleet=FLEET) as running:
        yield running


def begin(emulator: Emulator, **order: object) -> str:
    """Begin a Maintenance, and return where its page is."""
    begun = call(emulator, "POST", "/maintenances", {"event_type": "Reboot", **order})
    return f"/maintenances/{begun['maintenance_id']}"


def add_machine(emulator: Emulator, name: str) -> None:
    call(emulator, "POST", "/virtual-machines", {"name": name, "availability_set": "web"})


def plan_of(page: Page) -> Locator:
    return page.locator("#plan")


def steps(page: Page) -> Locator:
    return page.locator("#plan table.steps tbody tr")


def confirm(page: Page, button: str, answer: str = "") -> None:
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=answer or button, exact=True).click()


def expect_status(page: Page, status: str) -> None:
    expect(page.locator(".head .badge")).to_have_text(status)


def test_plan_start_pause_resume_abort(fleet: Emulator, windows: Windows) -> None:
    window = windows.signed_in(fleet, "/maintenances")
    page = window.page
    expect(page.get_by_text("No maintenance is under way.")).to_be_visible()
    window.shoot("maintenances-empty")
    page.get_by_role("link", name="Plan a maintenance").click()
    expect(plan_of(page)).to_contain_text("Select scopes, virtual machines or hosts")

    page.get_by_label("Scopes", exact=True).fill("web\ndb")
    page.get_by_label("Minimum available").fill("50")
    page.get_by_label("Soak time").fill("10m")
    expect(steps(page)).to_have_count(5)
    page.evaluate("scrollTo(0, 0)")
    window.shoot("maintenance-form")
    window.assert_accessible()
    page.get_by_role("button", name="Start …").click()
    window.assert_accessible()
    page.get_by_role("button", name="Start Reboot").click()

    page.wait_for_url("**/maintenances/*-*")
    window.await_live()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reboot of 8 virtual machines")
    expect_status(page, "Running")
    window.shoot("maintenance-running")
    confirm(page, "Pause")
    expect_status(page, "Paused")
    confirm(page, "Resume")
    expect_status(page, "Running")
    confirm(page, "Abort", "Abort the maintenance")
    expect_status(page, "Aborted")
    expect(page.get_by_text("It was aborted.")).to_be_visible()


def test_mistakes_are_shown_as_they_are_typed(fleet: Emulator, windows: Windows) -> None:
    page = windows.signed_in(fleet, "/maintenances/new?scopes=web").page
    expect(steps(page)).to_have_count(3)

    page.get_by_label("Scopes", exact=True).fill("nowhere")
    expect(plan_of(page)).to_contain_text("machine 'nowhere'")
    page.get_by_label("Scopes", exact=True).fill("web")
    page.get_by_label("Soak time").fill("later")
    expect(plan_of(page)).to_contain_text("Soak time: Invalid duration 'later'")
    page.get_by_label("Soak time").fill("")
    page.get_by_label("Minimum available").fill("90")
    expect(plan_of(page)).to_contain_text("This maintenance cannot be started.")
    expect(page.get_by_role("button", name="Start …")).to_have_count(0)
    page.get_by_label("Minimum available").fill("60")

    expect(page.get_by_role("button", name="Start …")).to_be_visible()


def test_plan_that_changed_unseen_is_shown_again(fleet: Emulator, windows: Windows) -> None:
    page = windows.signed_in(fleet, "/maintenances/new?scopes=web").page
    description = page.get_by_label("Description")
    expect(steps(page)).to_have_count(3)
    with page.expect_response("**/maintenances/plan"):
        description.fill("Kernel 6.12")
    page.get_by_text("More options").click()
    description.focus()

    # A live refresh touches nothing of what is being filled in.
    with page.expect_response("**/maintenances/new?scopes=web"):
        fleet.clock.advance(minutes=1)
        add_machine(fleet, "web-6")
    expect(description).to_be_focused()
    expect(description).to_have_value("Kernel 6.12")
    expect(page.get_by_label("Blackouts")).to_be_visible()
    expect(plan_of(page)).not_to_contain_text("web-6")
    confirm(page, "Start …", "Start Reboot")
    expect(plan_of(page)).to_contain_text("The plan changed after you reviewed it.")
    expect(plan_of(page)).to_contain_text("web-6")
    expect(page.get_by_role("dialog")).to_have_count(0)
    confirm(page, "Start …", "Start Reboot")

    page.wait_for_url("**/maintenances/*-*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Reboot of 7 virtual machines")
    expect(page.get_by_text("Kernel 6.12")).to_be_visible()


def test_failure_is_retried_and_skipped(fleet: Emulator, windows: Windows) -> None:
    own = begin(
        fleet,
        hosts=[f"kvm-{n}" for n in range(1, 7)],
        description="Firmware 2.4 of rack 7",
        at_once=2,
        min_available=50,
    )
    for event in fleet.events:
        event.start()
    fleet.events[0].complete(failed="disk controller did not come back")
    fleet.clock.advance(minutes=30)
    window = windows.signed_in(fleet, own)
    page = window.page

    expect_status(page, "Held")
    expect(page.locator(".standstill")).to_contain_text(
        "The maintenance does not continue until an operator acts."
    )
    expect(page.locator(".standstill")).to_contain_text("kvm-1 failed")
    window.shoot("maintenance-held")
    window.assert_accessible()
    confirm(page, "Retry")
    expect_status(page, "Running")
    expect(page.locator("#place-kvm-1")).to_contain_text("Under way")
    for event in fleet.events:
        if event.record.is_in_flight and event.record.host == "kvm-1":
            event.start()
            event.complete(failed="again")
    fleet.clock.advance(minutes=30)
    expect_status(page, "Held")
    confirm(page, "Skip")
    expect_status(page, "Running")
    fleet.clock.advance(hours=4)
    expect_status(page, "Incomplete")
    expect(page.locator(".standstill")).to_contain_text("Not done: kvm-1 (skipped)")
    page.reload()
    window.await_live()
    window.shoot("maintenance-ended")
    page.get_by_role("link", name="1 skipped").click()
    expect(page.locator("table.places tbody tr")).to_have_count(1)


def test_list_shows_what_is_under_way_first(fleet: Emulator, windows: Windows) -> None:
    begin(fleet, scopes=["db"], event_type="Freeze", description="Live migration off kvm-4")
    fleet.clock.advance(hours=2)
    call(
        fleet,
        "POST",
        "/schedules",
        {
            "name": "monthly-kernel",
            "event_type": "Reboot",
            "scopes": ["web"],
            "every": "first Tue",
            "windows": ["Tue 22:00-04:00 Europe/Berlin"],
        },
    )
    begin(fleet, scopes=["batch"], description="Kernel 6.12, all of batch", soak_in_seconds=1800)
    own = begin(fleet, hosts=["kvm-1", "kvm-2", "kvm-3"], description="Firmware 2.4")
    fleet.events[-1].cancel()
    fleet.clock.advance(minutes=20)
    window = windows.signed_in(fleet, "/maintenances")
    page = window.page

    expect(page.locator("article")).to_have_count(2)
    expect(page.locator("article").first).to_contain_text("kvm-1 was canceled")
    expect(page.locator("#schedule-monthly-kernel")).to_contain_text("first Tue")
    expect(page.get_by_role("row", name="Freeze")).to_contain_text("Completed")
    window.shoot("maintenances")
    window.assert_accessible()
    call(fleet, "POST", f"{own}/abort")
    expect(page.locator("article")).to_have_count(1)
    expect(page.get_by_role("row", name="Firmware 2.4")).to_contain_text("Aborted")


def test_form_works_by_keyboard(fleet: Emulator, windows: Windows) -> None:
    page = windows.signed_in(fleet, "/maintenances/new").page
    keyboard = page.keyboard
    expect(plan_of(page)).to_contain_text("Select scopes, virtual machines or hosts")

    page.get_by_label("Find scopes to add").focus()
    keyboard.type("we")
    expect(page.locator("#f-scopes-names option")).to_have_count(1)
    keyboard.type("b")
    keyboard.press("Enter")

    expect(page.get_by_label("Scopes", exact=True)).to_have_value("web\n")
    expect(steps(page)).to_have_count(3)
    for _ in range(60):
        keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.dialog") == "start":
            break
    keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keyboard.press("Enter")
    for _ in range(20):
        keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Start Reboot":
            break
    keyboard.press("Enter")

    page.wait_for_url("**/maintenances/*-*")


def test_names_of_others_stay_harmless(windows: Windows) -> None:
    text = "<script>alert(1)</script> \"'\u202egnp.exe " + "x" * 200
    machines = [{"name": "v" * 128, "availability_set": "s" * 100, "host": "h" * 128}]
    fleet = {"availability_set": [{"name": "s" * 100}], "virtual_machine": machines}
    with Emulator(fleet=fleet) as emulator:
        own = begin(emulator, scopes=["s" * 100], description=text)
        window = windows.signed_in(emulator, own)

        expect(window.page.locator(".lead")).to_contain_text("<script>alert(1)</script>")
        window.shoot("maintenance-long-names")
        window.go("/maintenances")
        window.shoot("maintenances-long-names")
