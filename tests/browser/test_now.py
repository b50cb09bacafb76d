"""The first page: what is happening, what comes next, and what it waits for."""

from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import expect
from tests.browser.api import call, poll
from tests.browser.windows import Windows

from forewarn.testing.emulator import Emulator

MONDAY = datetime(2030, 1, 7, 9, 30, tzinfo=UTC)
SOON = 10_000
"""Shorter than HEART_BEAT, after which a page refreshes itself anyway."""
"""A change is there within a second, where the machine is not busy with others."""


def busy_fleet() -> dict[str, Any]:
    """Return a shop on six hosts, with a database and batch workers."""
    names = [("shop-web", 6), ("shop-api", 6), ("search", 4)]
    vms = [
        {"name": f"{name}-{number}", "availability_set": name, "host": f"kvm-{number % 6 + 1}"}
        for name, members in names
        for number in range(members)
    ]
    vms += [
        {"name": f"batch-{number}", "scale_set": "batch", "host": f"kvm-{number % 4 + 1}"}
        for number in range(8)
    ]
    return {
        "availability_set": [
            {"name": "shop-web", "update_domains": 3, "postpone_until": "4h"},
            {"name": "shop-api", "update_domains": 3, "approval": "all"},
            {"name": "search", "update_domains": 2},
        ],
        "scale_set": [{"name": "batch", "update_domains": 4}],
        "virtual_machine": [*vms, {"name": "db-primary", "host": "kvm-6"}],
    }


def test_restart_is_followed_without_reload(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator)
    page = window.page
    expect(page.locator("#main")).to_contain_text("Nothing is planned")
    page.evaluate("window.stays = true")

    call(emulator, "POST", "/virtual-machines/web-0/restart")

    flight = page.locator(".flight")
    expect(flight).to_contain_text("Scheduled", timeout=SOON)
    expect(flight).to_contain_text("in 15 min 00 s")
    expect(flight).to_contain_text("Not approved yet")
    flight.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(flight).to_contain_text("Started", timeout=SOON)
    expect(flight).to_contain_text("Impact is running")
    emulator.events[0].complete()
    expect(flight).to_have_count(0, timeout=SOON)
    expect(page.locator("#events")).to_contain_text("No event is scheduled or started")
    assert page.evaluate("window.stays"), "the page was not loaded anew"


def test_empty_page_is_calm(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator)

    expect(window.page.locator(".tile .figure").first).to_have_text("0")
    expect(window.page.locator("#silent")).to_contain_text("6 of 6 virtual machines")
    expect(window.page.locator("#attention")).to_have_count(0)
    window.shoot("now-empty")
    window.assert_accessible()


def test_phone_shows_whether_the_page_is_live(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator)
    page = window.page
    page.set_viewport_size({"width": 390, "height": 800})
    live = page.locator("#live")
    expect(live).to_be_visible()

    page.route("**/", lambda route: route.abort())
    emulator.announce("Freeze", emulator.vms[0].name)

    expect(live).to_have_attribute("data-state", "stale")
    page.unroute_all()
    emulator.announce("Freeze", emulator.vms[1].name)
    expect(live).to_have_attribute("data-state", "live")
    expect(page.locator(".flight")).to_have_count(2)
    window.errors.clear()  # the browser reports the request that failed


def begin(emulator: Emulator, event_type: str, **order: object) -> Any:
    return call(emulator, "POST", "/maintenances", {"event_type": event_type, **order})


def test_busy_page_tells_what_is_happening(windows: Windows) -> None:
    with Emulator(fleet=busy_fleet(), now=MONDAY) as emulator:
        for vm in emulator.vms[:22]:
            poll(emulator, vm.name)
        begin(
            emulator,
            "Reboot",
            scopes=["shop-web"],
            description="Kernel 6.12.9",
            soak_in_seconds=600,
        )
        rolling = begin(emulator, "Freeze", hosts=["kvm-1", "kvm-2"], description="BIOS update")
        held = begin(emulator, "Redeploy", scopes=["search"], description="Move to new racks")
        emulator.clock.advance(minutes=1)
        (lost,) = [e for e in emulator.events if e.record.maintenance_id == held["maintenance_id"]]
        lost.approve()
        lost.complete(failed="no room on kvm-5")
        first = next(e for e in emulator.events if "shop-web" in e.record.scope_id)
        first.approve()
        emulator.clock.advance(minutes=5)
        emulator.announce("Freeze", "shop-api-1", description="Live migration", duration=9)
        emulator.announce("Terminate", "batch-3", "batch-7")
        call(emulator, "POST", "/virtual-machines/db-primary/restart")

        window = windows.signed_in(emulator)
        main = window.page.locator("#main")

        expect(main).to_contain_text("3 maintenances under way")
        expect(main.locator(".attention")).to_contain_text("search failed: no room on kvm-5")
        card = main.locator(f"#maintenance-{rolling['maintenance_id']}")
        expect(card).to_contain_text("0 of 2")
        expect(main.locator("#next")).to_contain_text("is announced to")
        window.shoot("now-busy")
        window.assert_accessible()


def test_long_names_and_descriptions_of_any_kind_fit(windows: Windows) -> None:
    longest = 128
    names = [letter * longest for letter in "vwxs"]
    fleet = {
        "availability_set": [{"name": names[3], "update_domains": 1}],
        "virtual_machine": [
            {"name": name, "availability_set": names[3], "host": "h" * longest}
            for name in names[:3]
        ],
    }
    description = "\u202e<script>alert(1)</script> \"quoted\" 'too' " * 9
    with Emulator(fleet=fleet) as emulator:
        begin(emulator, "Reboot", hosts=["h" * longest], description=description)
        emulator.events[0].approve()
        emulator.events[0].complete(failed=description)
        begin(emulator, "Freeze", scopes=[names[3]], description=description)

        window = windows.signed_in(emulator)
        main = window.page.locator("#main")

        expect(main.locator(".attention")).to_contain_text("\u25af<script>alert(1)</script>")
        expect(main.locator(".maintenance")).to_have_count(2)
        window.shoot("now-names")
