"""Audit, tokens, health and virtual time, without a browser."""

import re

from starlette.testclient import TestClient
from tests.http.conftest import HandClock
from tests.http.console.conftest import SignIn

from forewarn.console.audit import PAGE_LENGTH
from forewarn.console.virtual_time import HINTS
from forewarn.desk.services import Services
from forewarn.domain.fault import FAULTS, FaultKind
from forewarn.domain.finding import wrong
from forewarn.domain.roles import Role
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.discovery import SourceStatus, put_sources
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Store, Transaction


def test_audit_is_paged(browser: TestClient, services: Services, store: Store) -> None:
    def write(tx: Transaction) -> None:
        for number in range(PAGE_LENGTH + 3):
            record_audit(tx, services.context("bob"), "event approve", f"number {number}")

    store.write(write)
    first = browser.get("/audit?who=bob").text
    (older,) = re.findall(r'href="(/audit\?who=bob&amp;older_than=\d+)"', first)

    second = browser.get(older.replace("&amp;", "&")).text

    assert first.count("<tr id=") == PAGE_LENGTH
    assert re.findall(r"<bdi[^>]*>number (\d+)<", first)[0] == str(PAGE_LENGTH + 2)
    assert re.findall(r"<bdi[^>]*>number (\d+)<", second) == ["2", "1", "0"]
    assert browser.get("/audit?older_than=nothing").status_code == 200


def test_maintenance_time_is_left_out_when_it_is_real(
    browser: TestClient, clock: HandClock
) -> None:
    assert "maintenance time</span>" in browser.get("/audit").text

    clock.kind = "real"

    assert "maintenance time</span>" not in browser.get("/audit?outcome=done").text


def test_secret_of_a_token_is_in_one_answer_only(browser: TestClient, store: Store) -> None:
    form = {"name": "ci", "role": "viewer", "scopes": "web, solo", "expires": "30d"}

    answer = browser.post("/tokens", data=form)

    (secret,) = re.findall(r"fw_[A-Za-z0-9_-]{20,}", answer.text)
    assert answer.headers["Cache-Control"] == "no-store"
    token = next(each for each in store.read(lambda look: look.tokens()) if each.name == "ci")
    assert token.scopes == ("availability-set/web", "virtual-machine/solo")
    assert secret not in browser.get("/tokens").text
    assert secret not in str(store.read(lambda look: look.audit()))


def test_token_that_cannot_be_is_refused_with_the_reason(browser: TestClient) -> None:
    for form, reason in (
        ({}, "Enter the name"),
        ({"name": "ci"}, "Choose a role"),
        ({"name": "ci", "role": "admin", "scopes": "web"}, "cannot be limited"),
        ({"name": "ci", "role": "viewer", "expires": "soon"}, "is not a valid time"),
    ):
        answer = browser.post("/tokens", data=form)
        assert answer.status_code == 422
        assert reason in answer.text


def test_real_time_cannot_be_advanced(browser: TestClient, clock: HandClock) -> None:
    clock.kind = "real"

    assert "This server uses the real clock." in browser.get("/virtual-time").text
    assert browser.post("/virtual-time/advance", data={"duration": "1m"}).status_code == 409


def test_scenarios_and_faults_that_cannot_be_are_refused(browser: TestClient, store: Store) -> None:
    order = {"scenario": "spot-eviction", "names": "web-0, solo", "speed": "2"}

    assert browser.post("/virtual-time/runs", data=order).status_code == 204

    (run,) = store.read(lambda reading: reading.scenario_runs())
    assert (run.resources, run.speed) == (("web-0", "solo"), 2)
    for bad in ("0", "nan", "1e9", "fast"):
        answer = browser.post("/virtual-time/runs", data={**order, "speed": bad})
        assert answer.status_code == 422, bad
    assert browser.post("/virtual-time/runs", data={"scenario": "none"}).status_code == 404
    assert browser.post("/virtual-time/faults/none", data={"vm": "solo"}).status_code == 422
    assert browser.post("/virtual-time/faults/reset").status_code == 422


def test_every_parameter_of_a_fault_is_described() -> None:
    named = {name for each in FAULTS.values() for name in each.needed | each.optional}

    assert set(HINTS) == named


def test_every_fault_can_be_set(browser: TestClient, services: Services) -> None:
    needed = {"seconds": "2", "status": "503"}
    page = browser.get("/virtual-time").text

    for kind, traits in FAULTS.items():
        form = {"vm": "solo", **{name: needed[name] for name in traits.needed}}
        assert f"<strong>{kind}</strong>" in page
        assert browser.post(f"/virtual-time/faults/{kind}", data=form).status_code == 204

    (faults,) = services.faults.all().values()
    assert [fault.kind for fault in faults] == list(FaultKind)


def test_health_shows_what_is_wrong_and_what_to_do(browser: TestClient, services: Services) -> None:
    services.replicas.examine = lambda: [wrong("executors", "It burns.", "put it out")]

    shown = browser.get("/health").text

    assert 'It burns. <span class="soft">put it out</span>' in shown
    assert "The executors can be used." not in shown
    assert "No event is overdue." in shown


def test_health_shows_the_sources_and_what_is_wrong_with_them(
    browser: TestClient, services: Services, store: Store
) -> None:
    since = services.clock.now()
    away = SourceStatus(name="kvm", kind="libvirt", problem="kvm-1 is away.", since=since)
    well = SourceStatus(name="cmdb", kind="run", since=since, machines=7)
    store.write(lambda tx: put_sources(tx, [away, well]))

    shown = browser.get("/health").text

    assert "The fleet does not follow kvm. kvm-1 is away." in shown
    assert "<bdi>cmdb</bdi>" in shown
    assert "7 machines" in shown


def test_limited_token_sees_its_own_machines_only(
    browser: TestClient, sign_in: SignIn, services: Services, store: Store
) -> None:
    order = TokenOrder(name="web-team", role=Role.OPERATOR, scopes=("web",))
    store.write(lambda tx: create_token(tx, services.context("alice"), order, "fw_web-team"))
    for vm in ("web-0", "solo"):
        browser.post("/virtual-time/faults/reset", data={"vm": vm})
        browser.post("/virtual-time/runs", data={"scenario": "spot-eviction", "vm": vm})

    shown = sign_in("fw_web-team").get("/virtual-time").text

    assert "fault-reset-web-0" in shown
    assert "solo" not in shown
    assert "solo" in browser.get("/virtual-time").text
