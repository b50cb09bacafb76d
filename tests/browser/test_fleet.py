"""The fleet: what is where, how it is, and what is done to hosts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect
from tests.browser.api import call, make_token, poll
from tests.browser.fleets import data_centre, large_fleet, refused
from tests.browser.windows import Window, Windows

from forewarn.testing.emulator import Emulator


@pytest.fixture
def centre() -> Iterator[Emulator]:
    """A small data centre in which everything that can be shown happens."""
    with Emulator(fleet=data_centre(), executor="manual") as emulator:
        for vm in emulator.vms:
            if vm.name != "ntp":
                poll(emulator, vm.name)
        yield emulator


def make_busy(emulator: Emulator) -> None:
    emulator.announce("Reboot", "mail", started=True)
    emulator.announce("Freeze", "mail")
    emulator.clock.advance(minutes=16)  # it cannot start, as the first is not over
    order = {"event_type": "Reboot", "hosts": ["kvm-02"], "description": "Firmware 7.2"}
    call(emulator, "POST", "/maintenances", order)
    emulator.vm("web-02").events[-1].approve()
    emulator.announce("Freeze", "FrontEnd_IN_0", "Billing_IN_2")
    emulator.announce("Redeploy", "worker-009", "worker-019", started=True)
    call(
        emulator,
        "POST",
        "/hosts/kvm-05/close",
        {"reason": "A fan fails; the vendor comes on Monday"},
    )


def cell(window: Window, name: str) -> Locator:
    return window.page.locator(f"[id='vm-{name}']")


def test_cells_tell_every_state_and_change_by_themselves(
    centre: Emulator, windows: Windows
) -> None:
    window = windows.signed_in(centre, "/fleet")
    expect(cell(window, "db-primary")).to_have_class("vm-cell in-service")
    window.page.evaluate("window.stays = true")

    make_busy(centre)

    expect(cell(window, "FrontEnd_IN_0")).to_have_class("vm-cell scheduled", timeout=10_000)
    for name, state in {
        "web-02": "approved",
        "worker-009": "started",
        "mail": "held",
        "ntp": "unpolled",
        "db-primary": "in-service",
    }.items():
        expect(cell(window, name)).to_have_class(f"vm-cell {state}")
    assert window.page.evaluate("window.stays"), "the page was not loaded anew"
    expect(cell(window, "worker-009")).to_have_accessible_name(
        "worker-009 Started: Redeploy Host kvm-07"
    )
    window.shoot("fleet")
    window.assert_accessible()


def test_hosts_are_closed_and_opened(centre: Emulator, windows: Windows) -> None:
    make_busy(centre)
    window = windows.signed_in(centre, "/fleet?by=host")
    card = window.page.locator("#host-kvm-02")
    expect(card).to_contain_text("Maintenance announced")
    window.shoot("fleet-hosts")
    window.assert_accessible()

    card.get_by_role("button", name="Close host").click()
    card.get_by_label("Reason").fill("New <b>memory</b> \u202e")
    card.get_by_role("button", name="Close it").click()

    expect(card.get_by_text("Closed", exact=True)).to_be_visible()
    expect(card).to_contain_text("by admin: New <b>memory</b>")
    card.get_by_role("button", name="Open host").click()
    card.get_by_role("button", name="Open it").click()
    expect(card.get_by_text("Closed", exact=True)).not_to_be_visible()


def test_filters_are_in_the_address_and_search_finds_labels(
    centre: Emulator, windows: Windows
) -> None:
    window = windows.signed_in(centre, "/fleet")
    page = window.page

    page.get_by_label("Search").fill("tier=data")
    page.keyboard.press("Enter")
    page.wait_for_url("**/fleet?q=tier%3Ddata*")
    expect(page.locator("#found")).to_have_text("6 virtual machines match")
    page.get_by_label("State").select_option("unpolled")
    page.wait_for_url("**state=unpolled*")
    expect(page.locator("a.vm-cell")).to_have_count(1)
    page.get_by_role("combobox", name="Host").fill("kvm-99")
    page.keyboard.press("Enter")
    expect(page.locator("#no-match")).to_be_visible()
    window.shoot("fleet-no-match")
    window.go("/fleet?scope=scale-set%2Fbatch")
    expect(page.locator("section.scope-grid")).to_have_count(2)
    window.go("/fleet?by=host&host=KVM-03")
    expect(page.locator("section.host-card")).to_have_count(1)


def test_typed_search_outlives_a_change(centre: Emulator, windows: Windows) -> None:
    window = windows.signed_in(centre, "/fleet")
    search = window.page.get_by_label("Search")
    search.press_sequentially("db-")

    centre.announce("Freeze", "vault")

    expect(cell(window, "vault")).to_have_class("vm-cell scheduled", timeout=10_000)
    expect(search).to_have_value("db-")
    expect(search).to_be_focused()


def test_grid_is_one_stop_of_the_tab_key(centre: Emulator, windows: Windows) -> None:
    window = windows.signed_in(centre, "/fleet?scope=web")
    keys = window.page.keyboard
    window.page.get_by_role("link", name="availability-set/web").focus()

    keys.press("Tab")
    expect(cell(window, "web-00")).to_be_focused()
    keys.press("ArrowRight")
    expect(cell(window, "web-10")).to_be_focused()
    keys.press("ArrowLeft")
    keys.press("Enter")

    expect(window.page.get_by_role("heading", name="web-00")).to_be_visible()


def test_limited_token_sees_its_scopes_and_cannot_close_hosts(
    centre: Emulator, windows: Windows
) -> None:
    token = make_token(centre, "shopkeeper", "operator", "cloud-service/shop")
    window = windows.signed_in(centre, "/fleet", token)

    expect(window.page.locator("a.vm-cell")).to_have_count(10)
    expect(window.page.locator("#main")).not_to_contain_text("web")
    window.go("/fleet?by=host")
    expect(window.page.get_by_role("button", name="Close host")).to_have_count(0)
    with refused(window):
        status = window.page.evaluate(
            """async () => (await fetch("/hosts/kvm-04/close", {method: "POST", headers:
            JSON.parse(document.body.getAttribute("hx-headers:inherited"))})).status"""
        )
    assert status == 403


def test_no_fleet_says_how_to_add_one(windows: Windows) -> None:
    with Emulator(fleet={}) as emulator:
        window = windows.signed_in(emulator, "/fleet")

        expect(window.page.locator("#no-fleet")).to_contain_text("forewarn fleet apply")
        window.shoot("fleet-empty")
        window.assert_accessible()


def test_large_fleet_is_shown_page_by_page(windows: Windows) -> None:
    with Emulator(fleet=large_fleet(2000, 200)) as emulator:
        window = windows.signed_in(emulator, "/fleet")

        expect(window.page.locator("a.vm-cell").first).to_be_visible()
        expect(window.page.get_by_text("Page 1 of")).to_be_visible()
        window.page.get_by_role("link", name="Next").click()
        expect(window.page.get_by_text("Page 2 of")).to_be_visible()


def test_huge_scope_says_how_many_more_there_are(windows: Windows) -> None:
    with Emulator(fleet=large_fleet(5000, 1)) as emulator:
        emulator.vm("vm-04999").freeze()
        window = windows.signed_in(emulator, "/fleet")

        expect(window.page.locator("a.vm-cell")).to_have_count(480)
        expect(cell(window, "vm-04999")).to_have_class("vm-cell scheduled")
        expect(window.page.locator("section.scope-grid")).to_contain_text(
            "4,520 more virtual machines"
        )
        window.shoot("fleet-huge-scope")
