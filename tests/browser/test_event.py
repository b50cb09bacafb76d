"""The page of one event: its life, why it waits, what machines read, and what can be done."""

from playwright.sync_api import Locator, Page, expect
from tests.browser.api import call, make_token
from tests.browser.windows import Window, Windows

from forewarn.testing.emulator import Emulator
from forewarn.testing.events import EmulatedEvent

NASTY = "<script>alert(1)</script> \"quoted\" 'too' \u202egnihtyna\u202c \u05e9\u05dc\u05d5\u05dd"
LONG = "reason-without-a-space-" * 8 + "end"


def open_event(
    windows: Windows, emulator: Emulator, event: EmulatedEvent, token: str = ""
) -> Window:
    return windows.signed_in(emulator, f"/events/{event.event_id}", token)


def ask(page: Page, label: str) -> Locator:
    """Open the dialog of the button *label*."""
    page.locator(".actions").get_by_role("button", name=label, exact=True).click()
    return page.locator("dialog[open]")


def test_event_goes_through_its_life(emulator: Emulator, windows: Windows) -> None:
    (event,) = emulator.announce("Reboot", "FrontEnd_IN_0", duration=600, description=NASTY)
    window = open_event(windows, emulator, event)
    page, main = window.page, window.page.locator("#main")
    expect(main).to_contain_text("Not approved by FrontEnd_IN_0")
    expect(main).to_contain_text("<script>alert(1)</script> \"quoted\" 'too' \u25afgnihtyna\u25af")
    expect(main.locator("details[open] pre")).to_contain_text(event.event_id)

    ask(page, "Start").get_by_role("button", name="Start now").click()

    expect(main.locator(".life .present")).to_contain_text("Started")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    dialog = ask(page, "Complete")
    dialog.get_by_label("Failed").check()
    dialog.get_by_label("Reason").fill(NASTY + LONG)
    dialog.get_by_role("button", name="Complete").click()
    expect(main.locator(".life .present")).to_contain_text("Failed")
    expect(main.locator(".ledger")).to_contain_text("admin")
    expect(main).to_contain_text("This event has ended and is no longer in the document.")
    assert event.record.reason == NASTY + LONG
    window.shoot("event-over")
    window.assert_accessible()


def test_cancel_and_postpone(emulator: Emulator, windows: Windows) -> None:
    (event,) = emulator.announce("Freeze", "web-0")
    window = open_event(windows, emulator, event)
    page = window.page

    dialog = ask(page, "Postpone")
    dialog.get_by_label("New NotBefore").fill("9h")
    dialog.get_by_role("button", name="Postpone").click()
    expect(dialog.locator(".refusal")).to_contain_text("the latest time that its scope allows")
    window.errors.clear()  # the browser tells of the 409
    dialog.get_by_label("New NotBefore").fill("1h")
    dialog.get_by_role("button", name="Postpone").click()
    expect(page.locator(".facts")).to_contain_text("postponed from")
    dialog = ask(page, "Cancel")
    dialog.get_by_label("Reason").fill("not today")
    dialog.get_by_role("button", name="Cancel the event").click()

    expect(page.locator(".life .present")).to_contain_text("Canceled")
    expect(page.locator(".ledger")).to_contain_text("not today")


def test_dialog_stays_while_the_page_changes(emulator: Emulator, windows: Windows) -> None:
    first, second = emulator.announce("Freeze", "web-0", "db")
    window = open_event(windows, emulator, first)
    page = window.page
    dialog = ask(page, "Cancel")
    dialog.get_by_label("Reason").fill("half a sen")

    second.approve()
    first.approve()
    emulator.clock.advance(seconds=1)

    expect(page.locator(".life .present")).to_contain_text("Started")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Reason").press_sequentially("tence")
    expect(dialog.get_by_label("Reason")).to_have_value("half a sentence")
    dialog.get_by_role("button", name="Cancel the event").click()
    expect(dialog.locator(".refusal")).to_contain_text("Cannot cancel event")
    window.errors.clear()  # the browser tells of the 409
    dialog.get_by_role("button", name="Go back").click()
    expect(page.get_by_role("button", name="Complete", exact=True)).to_be_visible()


def test_event_of_a_host_is_canceled_with_the_others(emulator: Emulator, windows: Windows) -> None:
    call(emulator, "POST", "/maintenances", {"event_type": "Reboot", "hosts": ["kvm-1"]})
    window = open_event(windows, emulator, emulator.events[0])
    window.shoot("event-scheduled")
    window.assert_accessible()

    dialog = ask(window.page, "Cancel")
    expect(dialog).to_contain_text("1 other event on kvm-1 is canceled with it")
    dialog.get_by_role("button", name="Cancel 2 events").click()

    expect(window.page.locator(".life .present")).to_contain_text("Canceled")
    assert [event.event_status for event in emulator.events] == ["Canceled", "Canceled"]


def test_event_is_approved_by_keyboard(emulator: Emulator, windows: Windows) -> None:
    (event,) = emulator.announce("Freeze", "web-0")
    window = open_event(windows, emulator, event)
    page = window.page

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.locator("#main")).to_contain_text("By admin")
    event.assert_approved(by="admin")


def test_viewers_only_look(emulator: Emulator, windows: Windows) -> None:
    (event,) = emulator.announce("Freeze", "web-0")
    (other,) = emulator.announce("Freeze", "db")
    token = make_token(emulator, "looker", "viewer", "web")
    window = open_event(windows, emulator, event, token)
    page = window.page
    expect(page.locator("#main h1")).to_contain_text("Freeze of web-0")
    expect(page.locator(".actions button")).to_have_count(0)

    for trigger in ("approve", "start", "cancel", "complete", "postpone"):
        status = page.evaluate(
            """async (path) => {
                const headers = JSON.parse(document.body.getAttribute("hx-headers:inherited"));
                return (await fetch(path, {method: "POST", headers})).status;
            }""",
            f"/events/{event.event_id}/{trigger}",
        )
        assert status == 403
    window.errors.clear()  # the browser tells of each 403
    page.goto(f"/events/{other.event_id}")
    expect(page.locator("#main h1")).to_have_text("Not found")
    window.errors.clear()  # and of the 404
    page.goto("/")

    expect(page.locator(".flight")).to_have_count(1)
    expect(page.locator(".flight button")).to_have_count(0)
    assert event.event_status == "Scheduled"
    refused = call(emulator, "GET", "/audit?who=looker")["audit"]
    assert {(entry["action"], entry["outcome"]) for entry in refused} >= {
        ("event cancel", "refused"),
        ("event start", "refused"),
    }


def test_unknown_event_is_not_found(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator)

    window.page.goto("/events/0A1B")

    expect(window.page.locator("#main h1")).to_have_text("Not found")
    expect(window.page.locator("#main")).to_contain_text("Unknown event 0A1B.")
    window.errors.clear()  # the browser tells of the 404
