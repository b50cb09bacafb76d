"""Audit, tokens, notifications, health and virtual time."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.browser.windows import FLEET, Window, Windows
from tests.receiver import Receiver
from tests.web_site import OUTBOUND

from forewarn.domain.notification import Delivery, NotificationStatus, Retrying, after_attempt
from forewarn.notifications.configuration import read_notifications
from forewarn.ports.store import Transaction
from forewarn.testing.emulator import Emulator, read_any_fleet
from forewarn.testing.engine import Engine, start_engine

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
SECRET = re.compile(r"fw_[A-Za-z0-9_-]{20,}")
TARGETS = """
[[target]]
name = "ops"
kind = "webhook"
url = "{url}"

[[target]]
name = "shop-chat"
kind = "webhook"
url = "{url}"
scopes = ["web"]
event_types = ["Reboot", "Redeploy"]
phases = ["scheduled", "started", "failed", "overdue"]
"""


def api_of(emulator: Emulator) -> httpx2.Client:
    return httpx2.Client(
        base_url=f"{emulator.control_url}/api/v1/",
        headers={"Authorization": f"Bearer {emulator.token}"},
    )


def token_for(emulator: Emulator, name: str, role: str, **more: object) -> str:
    with api_of(emulator) as api:
        made = api.post("tokens", json={"name": name, "role": role, **more})
    assert made.status_code == 201, made.text
    secret: str = made.json()["secret"]
    return secret


def forge(window: Window, path: str, **form: str) -> int:
    """Send the form as a page of this session does, whatever the page offers; return the status."""
    status: int = window.page.evaluate(
        """async ([path, form]) => {
            const own = document.body.getAttribute("hx-headers:inherited");
            const body = new URLSearchParams(form);
            return (await fetch(path, {method: "POST", body, headers: JSON.parse(own)})).status;
        }""",
        [path, form],
    )
    return status


def confirm(page: Page, opener: Locator, *, button: str) -> None:
    """Open a dialog, and confirm it."""
    opener.click()
    page.locator("dialog[open]").get_by_role("button", name=button, exact=True).click()


def test_audit_shows_the_newest_first_and_filters_by_the_address(
    emulator: Emulator, windows: Windows
) -> None:
    token_for(emulator, "alice", "operator")
    event = emulator.vm("web-0").reboot()
    with api_of(emulator) as api:
        api.post(f"events/{event.event_id}/approve")
        api.post("events/00000000-0000-4000-8000-000000000000/cancel")
        api.post("maintenances", json={"event_type": "Reboot", "scopes": ["shop"]})
        api.post("virtual-machines/db/restart")
        api.put("virtual-machines/web-1/faults/slow", json={"seconds": 20, "times": 3})
    window = windows.signed_in(emulator, "/audit")
    page, rows = window.page, window.page.locator("table.audit tbody tr")
    expect(rows.first).to_contain_text("console sign in")
    expect(rows.filter(has_text="Refused")).to_contain_text("event cancel")
    link = rows.filter(has_text="event approve").get_by_role("link", name=event.event_id[:8])
    expect(link).to_have_attribute("href", f"/events/{event.event_id}")
    expect(rows.first).to_contain_text("maintenance time")
    window.shoot("audit")
    window.assert_accessible()

    with api_of(emulator) as api:
        api.delete("tokens/alice")

    expect(rows.first).to_contain_text("token revoke", timeout=10_000)
    page.get_by_label("Outcome").select_option("refused")
    expect(page).to_have_url(re.compile("outcome=refused"))
    expect(rows).to_have_count(1)
    page.goto("/audit?since=tomorrow-ish")
    expect(page.get_by_role("alert")).to_contain_text("is not a valid time")
    page.goto("/audit?who=stranger")
    expect(page.locator(".empty")).to_contain_text("No entries match")


def create_token(page: Page, name: str, scopes: str) -> None:
    """Fill in the form by keyboard: an operator, limited to *scopes*."""
    page.get_by_role("button", name="Create token").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.type(scopes)


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def test_secret_of_a_token_is_shown_once(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator, "/tokens")
    page, shown = window.page, window.page.locator("#secret")
    expect(page.locator(".empty")).to_contain_text("No tokens have been created.")
    create_token(page, "alice", "nothing-of-ours")
    window.shoot("token-create")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open] .error")).to_contain_text("nothing-of-ours")
    window.errors.clear()

    page.get_by_label("Scopes").fill("web")
    page.keyboard.press("Enter")

    expect(shown).to_have_text(SECRET)
    secret = shown.inner_text()
    window.shoot("token-secret")
    window.assert_accessible()
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)  # the browser reports that a dialog has closed a frame later
    expect(row_of(page, "alice")).to_contain_text("availability-set/web")
    assert secret not in page.content()
    page.reload()
    assert secret not in page.content()
    with api_of(emulator) as api:
        assert secret not in api.get("audit").text


def test_browser_is_signed_out_when_its_token_is_revoked(
    emulator: Emulator, windows: Windows
) -> None:
    token_for(emulator, "deploy-pipeline", "operator", scopes=["web", "shop"], expires="90d")
    token_for(emulator, "grafana", "viewer")
    alice = windows.signed_in(emulator, token=token_for(emulator, "alice", "operator"))
    alice.page.goto("/tokens")
    expect(alice.page.locator("#main")).to_contain_text("needs the role admin")
    assert forge(alice, "/tokens", name="more", role="admin") == 403
    alice.errors.clear()
    window = windows.signed_in(emulator, "/tokens")
    page = window.page

    confirm(page, row_of(page, "alice").get_by_role("button", name="Revoke"), button="Revoke")

    expect(page.locator("#toasts")).to_contain_text("Revoked the token alice.")
    expect(row_of(page, "alice")).to_be_hidden()
    page.get_by_text("Expired and revoked tokens").click()
    expect(row_of(page, "alice")).to_contain_text("Revoked")
    window.shoot("tokens")
    window.assert_accessible()
    alice.page.goto("/")
    expect(alice.page.get_by_label("Token")).to_be_visible()
    alice.errors.clear()  # her page was refused when it asked for news


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def told(receiver: Receiver, tmp_path: Path) -> Iterator[Engine]:
    """A server that has targets, and sends nothing by itself."""
    file = tmp_path / "notifications.toml"
    file.write_text(TARGETS.format(url=receiver.url), encoding="utf-8")
    file.chmod(0o600)
    targets = read_notifications(file, OUTBOUND)
    engine = start_engine({}, read_any_fleet(FLEET), NOW, notifications=targets)
    yield engine
    engine.close()


def tell(engine: Engine) -> None:
    """Have messages delivered, given up and waiting."""
    url = f"http://127.0.0.1:{engine.control_port()}/api/v1/"
    headers = {"Authorization": f"Bearer {engine.replica.token}"}
    with httpx2.Client(base_url=url, headers=headers) as api:
        for vm in ("web-0", "db", "web-1"):
            made = api.post("events", json={"event_type": "Reboot", "resources": [vm]})
            api.post(f"events/{made.json()['events'][0]['event_id']}/approve")
    refused = Delivery(is_delivered=False, answer="The receiver answered 410 Gone.", is_final=True)
    away = Delivery(is_delivered=False, answer="Cannot connect: connection refused.")
    taken = Delivery(is_delivered=True, answer="204 No Content")

    def attempt(tx: Transaction) -> None:
        for number, message in enumerate(tx.notifications()):
            delivery = (taken, taken, refused, away, None)[number % 5]
            if delivery is not None:
                at = message.created_at + timedelta(seconds=number)
                tried = after_attempt(message, delivery, now=at, retrying=Retrying(), chance=0.5)
                tx.put_notification(replace(tried, attempts=number + 1))

    engine.replica.store.write(attempt)


def test_what_did_not_arrive_is_shown_first_and_tried_again(
    told: Engine, receiver: Receiver, windows: Windows
) -> None:
    tell(told)
    window = windows.open(f"http://127.0.0.1:{told.control_port()}")
    window.sign_in(told.replica.token)
    window.go("/notifications")
    page = window.page
    failed = page.get_by_role("region", name="Undelivered messages")
    expect(failed).to_contain_text("410 Gone")
    window.shoot("notifications")
    window.assert_accessible()

    number = failed.locator("tbody tr").count()
    confirm(page, failed.get_by_role("button", name="Retry").first, button="Retry")

    expect(page.locator("#toasts")).to_contain_text("Sending the message")
    expect(failed.locator("tbody tr")).to_have_count(number - 1)
    test = page.get_by_role("row", name=re.compile("^shop-chat")).get_by_role("button", name="Test")
    confirm(page, test, button="Send test")
    expect(page.locator("dialog[open] .error")).to_contain_text("was not delivered")
    with receiver.listening():
        page.get_by_role("button", name="Send test").click()
        expect(page.locator("#toasts")).to_contain_text("204 No Content")
    assert len(receiver.received) == 1
    page.get_by_role("link", name="Delivered", exact=True).click()
    expect(page.locator("table.messages tbody tr").first).to_contain_text("Delivered")
    waiting = told.read(lambda reading: reading.notifications(status=NotificationStatus.WAITING))
    assert waiting


def test_notifications_without_targets_say_how_to_have_some(
    emulator: Emulator, windows: Windows
) -> None:
    viewer = token_for(emulator, "grafana", "viewer")
    window = windows.signed_in(emulator, "/notifications", viewer)

    expect(window.page.locator("#main")).to_contain_text("--notifications FILE")
    assert forge(window, "/notification-targets/ops/test") == 403
    window.errors.clear()
    window.shoot("notifications-empty")
    window.assert_accessible()


def test_server_is_paused_and_resumed(emulator: Emulator, windows: Windows) -> None:
    viewer = windows.signed_in(emulator, "/health", token_for(emulator, "grafana", "viewer"))
    expect(viewer.page.locator("#main")).to_contain_text("Everything works")
    expect(viewer.page.get_by_role("button", name="Pause the server")).to_have_count(0)
    assert forge(viewer, "/health/pause") == 403
    viewer.errors.clear()
    window = windows.signed_in(emulator, "/health")
    page = window.page
    window.shoot("health")
    window.assert_accessible()

    page.get_by_role("button", name="Pause the server").click()
    page.get_by_label("Reason").fill("Storage is slow, see incident 4711")
    page.keyboard.press("Enter")

    expect(page.locator(".banner")).to_contain_text("incident 4711")
    expect(viewer.page.locator(".banner")).to_contain_text("by admin", timeout=10_000)
    window.shoot("health-paused")
    confirm(page, page.get_by_role("button", name="Resume"), button="Resume")
    expect(page.locator(".banner")).to_have_count(0)


def test_time_is_advanced_and_scenarios_run(emulator: Emulator, windows: Windows) -> None:
    emulator.vm("web-2").fault("status", status=429, times=3)
    emulator.vm("db").fault("slow", seconds=20)
    window = windows.signed_in(emulator, "/virtual-time")
    page, later = window.page, emulator.clock.now + timedelta(minutes=15)
    page.get_by_role("button", name="+ 15 min").click()
    clock = page.locator(".clock .big time")
    expect(clock).to_have_attribute("datetime", f"{later:%Y-%m-%dT%H:%M:%SZ}")
    page.get_by_label("Duration").fill("soon")
    page.keyboard.press("Enter")
    expect(page.locator("#advance-refusal")).to_contain_text("soon")
    window.errors.clear()
    emulator.clock.advance(minutes=1)
    later += timedelta(minutes=1)
    expect(clock).to_have_attribute("datetime", f"{later:%Y-%m-%dT%H:%M:%SZ}")
    expect(page.locator("#advance-refusal")).to_contain_text("soon")
    page.get_by_role("button", name="+ 1 min").click()
    expect(page.locator("#advance-refusal")).to_be_empty()
    page.get_by_label("canceled-maintenance").check()
    page.get_by_role("checkbox", name="web-1").check()

    page.get_by_role("button", name="Run", exact=True).click()

    runs = page.get_by_role("region", name="Scenario runs")
    expect(runs).to_contain_text("Running")
    expect(runs).to_contain_text("web-0, web-1")
    confirm(page, runs.get_by_role("button", name="Stop"), button="Stop")
    expect(runs).to_contain_text("Stopped")
    page.get_by_label("live-migration").check()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(runs).to_contain_text("live-migration")
    window.shoot("virtual-time")
    window.assert_accessible()


def test_faults_are_set_and_cleared(emulator: Emulator, windows: Windows) -> None:
    window = windows.signed_in(emulator, "/virtual-time")
    page = window.page
    page.get_by_role("button", name="Set status").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Virtual machine").select_option("web-2")
    dialog.get_by_label("HTTP status").fill("200")
    dialog.get_by_label("Number of requests").fill("3")
    page.keyboard.press("Enter")
    expect(dialog.locator(".error")).to_contain_text("status must be an HTTP error")
    window.errors.clear()

    dialog.get_by_label("HTTP status").fill("429")
    page.keyboard.press("Enter")

    faults = page.get_by_role("region", name="Active faults")
    expect(faults).to_contain_text("HTTP 429 · 3 more requests")
    viewer = windows.signed_in(emulator, "/virtual-time", token_for(emulator, "grafana", "viewer"))
    expect(viewer.page.locator("#main")).to_contain_text("HTTP 429")
    expect(viewer.page.locator("#main button")).to_have_count(0)
    assert forge(viewer, "/virtual-time/advance", duration="1m") == 403
    viewer.errors.clear()
    confirm(page, faults.get_by_role("button", name="Clear"), button="Clear")
    expect(faults).to_contain_text("No faults are set.")
