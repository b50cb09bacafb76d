"""A token that is limited to delivery scopes sees and changes what is in them, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.http.conftest import MORNING, HandClock

from forewarn.desk.scope_limit import LimitedTransaction, limit_targets
from forewarn.desk.services import Services
from forewarn.domain.access import OutsideScopesError, Principal, RoleTooLowError
from forewarn.domain.event import Happening
from forewarn.domain.host_operation import HostOperation, OperationOutcome, end
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId
from forewarn.domain.notification import Notification, Phase, Target
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.roles import Role
from forewarn.operations.context import Context, Rules
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.protocol.vocabulary import EventId, EventType

OTHERS = {
    "availability_set": [{"name": "db"}],
    "virtual_machine": [
        {"name": "db-0", "availability_set": "db", "host": "kvm-0", "update_domain": 0},
        {"name": "db-1", "availability_set": "db", "host": "kvm-9", "update_domain": 1},
        {"name": "web-2", "availability_set": "web", "host": "kvm-2", "update_domain": 2},
    ],
}
WEB, DB = ScopeId("availability-set/web"), ScopeId("availability-set/db")
SECRETS_OF_OTHERS = ("db-0", "db-1", "solo", "kvm-9", "availability-set/db")


@pytest.fixture
def admin(api: httpx2.Client) -> httpx2.Client:
    """An admin of a fleet with web (three machines), db (two) and solo."""
    assert api.post("fleet", json={"fleet": OTHERS}).status_code == 200
    return api


@pytest.fixture
def web(admin: httpx2.Client, app: FastAPI) -> httpx2.Client:
    """An operator of web only."""
    order = {"name": "web-team", "role": "operator", "scopes": ["web"]}
    secret = admin.post("tokens", json=order).json()["secret"]
    return TestClient(
        app, base_url="http://control/api/v1/", headers={"Authorization": f"Bearer {secret}"}
    )


def announce(client: httpx2.Client, *vms: str) -> httpx2.Response:
    return client.post("events", json={"event_type": "Reboot", "resources": list(vms)})


def test_lists_show_what_is_in_the_scopes(admin: httpx2.Client, web: httpx2.Client) -> None:
    announce(admin, "db-0", "web-0", "solo")
    admin.post("maintenances", json={"event_type": "Freeze", "scopes": ["db"]})
    admin.put("virtual-machines/db-0/faults/status", json={"status": 500})
    admin.put("virtual-machines/web-0/faults/status", json={"status": 500})
    admin.post("scenario-runs", json={"name": "spot-eviction", "virtual_machines": ["solo"]})

    lists = (
        "fleet", "virtual-machines", "events", "events/history", "maintenances", "faults",
        "scenario-runs", "availability-sets", "cloud-services", "scale-sets", "hosts",
    )  # fmt: skip
    shown = {path: web.get(path).json() for path in lists}

    names = [vm["name"] for vm in shown["virtual-machines"]["virtual_machines"]]
    assert names == ["web-0", "web-1", "web-2"]
    assert [event["resources"] for event in shown["events"]["events"]] == [["web-0"]]
    assert [fault["vm"] for fault in shown["faults"]["faults"]] == ["web-0"]
    assert shown["maintenances"] == {"maintenances": []}
    assert shown["scenario-runs"] == {"scenario_runs": []}
    for secret in SECRETS_OF_OTHERS:
        assert secret not in json.dumps(shown)


def test_newest_events_are_those_of_the_scopes(admin: httpx2.Client, web: httpx2.Client) -> None:
    announce(admin, "web-0")
    announce(admin, "web-1")
    announce(admin, "db-0")

    listed = web.get("events", params={"limit": 1}).json()["events"]

    assert [event["resources"] for event in listed] == [["web-1"]]


def test_single_things_of_other_scopes_are_not_there(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    (event,) = announce(admin, "db-0").json()["events"]
    order = {"event_type": "Freeze", "scopes": ["db"]}
    maintenance = admin.post("maintenances", json=order).json()["maintenance_id"]
    one = f"events/{event['event_id']}"

    answers = [
        web.get("virtual-machines/db-0"),
        web.get(one),
        web.get(f"maintenances/{maintenance}"),
        web.post("virtual-machines/db-0/restart"),
        announce(web, "web-0", "db-0"),
        *(web.post(f"{one}/{verb}") for verb in ("approve", "start", "complete", "cancel")),
        web.post(f"{one}/postpone", json={"not_before": "1h"}),
        web.post("maintenances", json=order),
        web.post("maintenances", json={"event_type": "Freeze", "hosts": ["kvm-9"]}),
        web.post("maintenances", json={"event_type": "Freeze", "virtual_machines": ["db-0"]}),
    ]

    assert {answer.status_code for answer in answers} == {404}
    assert len(admin.get(one).json()["ledger"]) == 1
    assert len(admin.get("events").json()["events"]) == 1


def test_hosts_are_shown_in_part_and_stay_as_they_are(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    announce(admin, "web-0", "db-0")
    host = admin.get("virtual-machines/web-0").json()["host"]

    refused = web.post(f"hosts/{host}/close")

    assert (refused.status_code, refused.json()["type"]) == (
        403,
        "urn:forewarn:problem:role-too-low",
    )
    shown = web.get(f"hosts/{host}").json()
    assert shown["closed_at"] is None
    assert [event["resources"] for event in shown["events"]] == [["web-0"]]


def test_what_is_in_the_scopes_can_be_handled(admin: httpx2.Client, web: httpx2.Client) -> None:
    (event,) = announce(web, "web-0").json()["events"]
    approved = web.post(f"events/{event['event_id']}/approve")

    assert approved.json()["approvals"][0]["name"] == "web-team"
    assert web.post("virtual-machines/web-1/redeploy").status_code == 201
    begun = web.post("maintenances", json={"event_type": "Freeze", "scopes": ["web"]})
    assert begun.status_code == 201
    read = web.get(f"maintenances/{begun.json()['maintenance_id']}").json()
    assert {**read, "warnings": []} == begun.json()
    ledger = admin.get(f"events/{event['event_id']}").json()["ledger"]
    assert [(line["who"], line["where"]) for line in ledger] == [("web-team", "testclient")] * 2


def test_pages_have_as_many_as_asked_for_of_what_is_in_the_scopes(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    ids = []
    for scope in ("web", "db", "web", "db", "db", "web"):
        begun = admin.post("maintenances", json={"event_type": "Freeze", "scopes": [scope]})
        ids.append(begun.json()["maintenance_id"])

    first = web.get("maintenances?limit=2")
    second = web.get(f"http://control{first.links['next']['url']}")

    def shown(page: httpx2.Response) -> list[str]:
        return [each["maintenance_id"] for each in page.json()["maintenances"]]

    assert (shown(first), shown(second)) == ([ids[2], ids[5]], [ids[0]])
    assert "link" not in second.headers
    assert web.get(f"maintenances?after={ids[1]}").status_code == 404


def test_complete_all_ends_what_is_in_the_scopes(admin: httpx2.Client, web: httpx2.Client) -> None:
    for vm in ("web-0", "db-0"):
        order = {"event_type": "Reboot", "resources": [vm], "started": True}
        assert admin.post("events", json=order).status_code == 201

    ended = web.post("events/complete-all").json()["events"]

    assert [event["resources"] for event in ended] == [["web-0"]]
    started = admin.get("events", params={"status": "Started"}).json()["events"]
    assert [event["resources"] for event in started] == [["db-0"]]


def test_maintenance_of_a_shared_host_is_refused_naming_the_others(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    refused = web.post("maintenances", json={"event_type": "Freeze", "hosts": ["kvm-0", "kvm-1"]})
    begun = web.post("maintenances", json={"event_type": "Freeze", "hosts": ["kvm-1"]})

    assert (refused.status_code, refused.json()["vms"]) == (403, ["db-0"])
    assert "would also affect db-0" in refused.json()["detail"]
    assert begun.status_code == 201
    assert len(admin.get("maintenances").json()["maintenances"]) == 1


def test_of_a_maintenance_of_all_its_own_part_is_shown(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    order = {"event_type": "Freeze", "hosts": ["kvm-0", "kvm-9"]}
    maintenance = admin.post("maintenances", json=order).json()["maintenance_id"]

    shown = web.get(f"maintenances/{maintenance}")

    assert shown.json()["hosts"] == ["kvm-0"]
    shares = [share for step in shown.json()["remaining"] for share in step["shares"]]
    assert [share["resources"] for share in shares] == [["web-0"]]
    for secret in SECRETS_OF_OTHERS:
        assert secret not in shown.text


@pytest.mark.parametrize("selection", [{"scopes": ["web", "db"]}, {"hosts": ["kvm-0", "kvm-9"]}])
def test_maintenance_of_others_as_well_is_not_steered_even_to_no_effect(
    admin: httpx2.Client, web: httpx2.Client, selection: dict[str, list[str]]
) -> None:
    """What changes nothing would else be answered with all of it, those of others included."""
    order = {"event_type": "Freeze", **selection}
    one = f"maintenances/{admin.post('maintenances', json=order).json()['maintenance_id']}"

    answers = [
        web.patch(one, json={}),
        web.patch(one, json={}, params={"dry_run": True}),
        web.post(f"{one}/retry", json={"places": ["nowhere"]}),
        web.post(f"{one}/skip", json={"places": ["nowhere"]}),
        web.post(f"{one}/pause"),
    ]

    kinds = [(answer.status_code, answer.json()["type"]) for answer in answers]
    assert kinds == [(403, "urn:forewarn:problem:outside-scopes")] * 5
    assert web.get(one).status_code == 200


def test_maintenance_of_an_empty_host_as_well_is_not_steered(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    """A host that carries nothing is in no scope, so only tokens without a limit work on it."""
    assert admin.post("fleet", json={"fleet": {"host": [{"name": "kvm-5"}]}}).status_code == 200
    order = {"event_type": "Freeze", "hosts": ["kvm-1", "kvm-5"]}
    maintenance = admin.post("maintenances", json=order).json()["maintenance_id"]

    refused = web.post(f"maintenances/{maintenance}/pause")

    assert (refused.status_code, refused.json()["vms"]) == (403, ["kvm-5"])
    assert admin.get(f"maintenances/{maintenance}").json()["status"] != "paused"


def test_reason_of_host_work_names_no_machines_of_others(
    admin: httpx2.Client, web: httpx2.Client, store: Store
) -> None:
    order = {"event_type": "Freeze", "hosts": ["kvm-0"]}
    maintenance = admin.post("maintenances", json=order).json()["maintenance_id"]
    operation = HostOperation(
        operation_id=OperationId("o-1"),
        maintenance_id=MaintenanceId(maintenance),
        event_type=EventType.FREEZE,
        host=HostName("kvm-0"),
        created_at=MORNING,
    )
    failed = end(operation, OperationOutcome.FAILED, now=MORNING, reason="db-0: no power")
    store.write(lambda tx: tx.put_operation(failed))

    shown = web.get(f"maintenances/{maintenance}")

    assert "no power" in admin.get(f"maintenances/{maintenance}").text
    assert shown.status_code == 200
    for secret in ("no power", *SECRETS_OF_OTHERS):
        assert secret not in shown.text


def test_of_a_run_of_all_its_own_part_is_shown(admin: httpx2.Client, web: httpx2.Client) -> None:
    order = {"name": "spot-eviction", "virtual_machines": ["web-0", "solo"]}
    run = admin.post("scenario-runs", json=order).json()["run_id"]

    shown = web.get(f"scenario-runs/{run}")

    assert shown.json()["resources"] == ["web-0"]
    assert "solo" not in shown.text
    assert web.post(f"scenario-runs/{run}/stop").status_code == 403


def test_limit_of_user_operations_is_that_of_the_server(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    many = [{"name": f"x-{number}"} for number in range(9)]
    admin.post("fleet", json={"fleet": {"virtual_machine": many}})
    for number in range(9):
        assert admin.post(f"virtual-machines/x-{number}/restart").status_code == 201

    assert web.post("virtual-machines/web-0/restart").status_code == 201
    assert web.post("virtual-machines/web-1/restart").status_code == 409


def test_calendar_has_what_is_in_the_scopes(admin: httpx2.Client, web: httpx2.Client) -> None:
    (own,) = announce(admin, "web-0").json()["events"]
    (other,) = announce(admin, "db-0").json()["events"]
    admin.post(f"events/{other['event_id']}/cancel")
    announce(admin, "solo")

    shown = web.get("calendar.ics").text

    assert shown.count("BEGIN:VEVENT") == 1
    assert own["event_id"] in shown
    for secret in SECRETS_OF_OTHERS:
        assert secret not in shown
    assert web.get("calendar.ics", params={"scope": "db"}).status_code == 404


def notify(app: FastAPI, *targets: Target) -> None:
    services: Services = app.state.services

    def context(who: str) -> Context:
        return replace(services.context(who), rules=Rules(targets=targets))

    app.state.services = replace(services, context=context)


def test_event_of_the_scopes_is_postponed_again_where_others_are_notified(
    admin: httpx2.Client, web: httpx2.Client, app: FastAPI
) -> None:
    notify(app, Target(name="everybody"))
    (event,) = announce(admin, "web-0").json()["events"]
    verb = f"events/{event['event_id']}/postpone"

    answers = [web.post(verb, json={"not_before": f"{minutes}m"}) for minutes in (20, 25, 30)]

    assert [answer.status_code for answer in answers] == [200, 200, 200], answers[1].text
    phases = [each["phase"] for each in web.get("notifications").json()["notifications"]]
    assert phases == ["scheduled", "postponed", "postponed"]


def test_notifications_and_targets_are_those_of_the_scopes(
    admin: httpx2.Client, web: httpx2.Client, app: FastAPI
) -> None:
    notify(
        app,
        Target(name="everybody"),
        Target(name="both", scopes=("db", "WEB")),
        Target(name="others", scopes=("db", "virtual-machine/solo")),
    )
    (own,) = announce(web, "web-0").json()["events"]
    announce(admin, "db-0")

    told = web.get("notifications").json()["notifications"]
    newest = web.get("notifications", params={"limit": 1}).json()["notifications"]
    listed = web.get("notification-targets").json()["targets"]

    assert {message["event_id"] for message in told} == {own["event_id"]}
    assert [message["target"] for message in told] == ["everybody", "both"]
    assert newest == told[1:]
    assert [(each["name"], each["scopes"]) for each in listed] == [
        ("everybody", []),
        ("both", ["WEB"]),
    ]
    assert len(admin.get("notifications").json()["notifications"]) == 5
    assert len(admin.get("notification-targets").json()["targets"]) == 3


@pytest.mark.parametrize(
    ("limit", "target", "is_theirs"),
    [
        ("scale-set/batch", "batch", True),
        ("scale-set/batch", "scale-set/batch/pg1", True),
        ("scale-set/batch/pg1", "batch", True),
        ("scale-set/batch/pg1", "scale-set/batch/pg2", False),
        ("scale-set/batch", "batch-2", False),
    ],
)
def test_target_of_a_scale_set_is_that_of_its_groups(
    limit: str, target: str, *, is_theirs: bool
) -> None:
    principal = Principal(name="batch", role=Role.VIEWER, scopes=(ScopeId(limit),))

    shown = limit_targets([Target(name="ops", scopes=(target,))], principal)

    assert bool(shown) is is_theirs


def test_what_was_seen_is_told_of_machines_while_they_are_in_the_scopes(
    admin: httpx2.Client, web: httpx2.Client, clock: HandClock
) -> None:
    clock.advance(timedelta(hours=1))
    moved = {"name": "db-1", "availability_set": "web", "host": "kvm-9", "update_domain": 1}
    assert admin.post("fleet", json={"fleet": {"virtual_machine": [moved]}}).status_code == 200
    clock.advance(timedelta(hours=1))
    away = {**moved, "availability_set": "db"}
    assert admin.post("fleet", json={"fleet": {"virtual_machine": [away]}}).status_code == 200
    clock.advance(timedelta(hours=1))

    def seen(vm: str, at: str) -> int:
        return web.get(f"virtual-machines/{vm}/seen", params={"at": at}).status_code

    assert [seen("db-1", at) for at in ("08:30", "09:30", "10:30")] == [409, 200, 409]
    assert (seen("web-0", "10:30"), seen("db-0", "10:30")) == (200, 404)
    assert admin.get("virtual-machines/db-1/seen", params={"at": "08:30"}).status_code == 200


def test_explanation_tells_of_events_elsewhere_without_names(
    admin: httpx2.Client, web: httpx2.Client, store: Store
) -> None:
    (own,) = announce(admin, "web-0").json()["events"]
    others = announce(admin, "db-0", "solo").json()["events"]
    together = {
        "maintenance_id": MaintenanceId("m"),
        "host": HostName("kvm-0"),
        "operation_id": OperationId("o"),
    }

    def join(tx: Transaction) -> None:
        for event in tx.events_in_flight():
            tx.put_event(replace(event, **together))  # type: ignore[arg-type]

    store.write(join)
    web.post(f"events/{own['event_id']}/approve")

    path = f"events/{own['event_id']}/explain"
    limited, whole = web.get(path), admin.get(path)

    reasons = limited.json()["reasons"]
    assert [reason["kind"] for reason in reasons] == ["host-operation-elsewhere", "maintenance"]
    assert limited.json()["is_held"]
    assert "together with events of other scopes on kvm-0" in reasons[0]["sentence"]
    for secret in (*SECRETS_OF_OTHERS, *(event["event_id"] for event in others)):
        assert secret not in limited.text
    kinds = [reason["kind"] for reason in whole.json()["reasons"]]
    assert kinds == ["host-operation", "maintenance"]
    assert web.get(f"events/{others[0]['event_id']}/explain").status_code == 404


def test_explanation_names_the_partners_that_a_token_covers(
    admin: httpx2.Client, web: httpx2.Client, store: Store
) -> None:
    own, partner, other = (
        announce(admin, name).json()["events"][0] for name in ("web-0", "web-1", "db-0")
    )

    def join(tx: Transaction) -> None:
        for event in tx.events_in_flight():
            together = replace(event, host=HostName("kvm-0"), operation_id=OperationId("o"))
            tx.put_event(together)

    store.write(join)
    web.post(f"events/{own['event_id']}/approve")

    limited = web.get(f"events/{own['event_id']}/explain")

    first, second, *_ = limited.json()["reasons"]
    assert (first["kind"], second["kind"]) == ("host-operation", "host-operation-elsewhere")
    assert (first["event_ids"], first["vms"]) == ([partner["event_id"]], ["web-1"])
    assert other["event_id"] not in limited.text
    assert "db-0" not in limited.text


def test_history_and_list_of_another_scope_are_empty(
    admin: httpx2.Client, web: httpx2.Client
) -> None:
    for vm in ("web-0", "db-0"):
        (event,) = announce(admin, vm).json()["events"]
        admin.post(f"events/{event['event_id']}/cancel")

    for listed in ("events?status=Canceled&scope=", "events/history?scope="):
        own = web.get(f"{listed}web").json()["events"]
        assert [event["resources"] for event in own] == [["web-0"]]
        for scope in ("db", str(DB)):
            assert web.get(f"{listed}{scope}").json() == {"events": []}


def test_acknowledgement_is_limited_as_well(
    admin: httpx2.Client, web: httpx2.Client, app: FastAPI
) -> None:
    (own,) = announce(admin, "web-0").json()["events"]
    (other,) = announce(admin, "db-0").json()["events"]
    viewer = admin.post("tokens", json={"name": "eve", "role": "viewer"}).json()["secret"]

    def acknowledge(resource: str, event: dict[str, str], **headers: str) -> httpx2.Response:
        path = (
            f"http://control/subscriptions/5a/resourcegroups/shop/providers/Microsoft.Compute"
            f"/{resource}/providers/Microsoft.Maintenance/scheduledevents/{event['event_id']}"
            "/acknowledge?api-version=2025-04-01"
        )
        client = TestClient(app, headers={**dict(web.headers), **headers})
        return client.post(path)

    refused = acknowledge("virtualMachines/web-0", own, authorization=f"Bearer {viewer}")
    answers = [
        acknowledge("virtualMachines/db-0", other),
        acknowledge("availabilitySets/db", other),
        acknowledge("availabilitySets/web", other),
        acknowledge("availabilitySets/web", own),
    ]

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "AuthorizationFailed")
    assert [answer.status_code for answer in answers] == [404, 404, 404, 200]
    lines = admin.get("audit", params={"action": "event approve"}).json()["audit"]
    assert [(line["who"], line["subject"], line["outcome"]) for line in lines] == [
        ("eve", own["event_id"], "refused"),
        *[("web-team", other["event_id"], "refused")] * 3,
        ("web-team", own["event_id"], "done"),
    ]


def test_confined_transaction_reads_and_writes_nothing_of_others(
    admin: httpx2.Client, store: Store
) -> None:
    (mine,) = announce(admin, "web-0").json()["events"]
    (event,) = announce(admin, "db-0").json()["events"]
    own, other = EventId(mine["event_id"]), EventId(event["event_id"])
    web = Principal(name="web-team", role=Role.OPERATOR, scopes=(WEB,))

    def look(reading: Reading) -> None:
        confined = LimitedTransaction(reading, web)
        assert set(confined.documents()) == {WEB}
        assert confined.document(DB) == FIRST_DOCUMENT != confined.document(WEB)
        assert confined.last_polled_at(DB) is confined.last_polled_at(WEB) is None
        assert confined.ledger(other) == ()
        assert len(confined.ledger(own)) == 1
        assert [event.event_id for event in confined.events_in_flight()] == [own]
        assert confined.events_in_flight([DB]) == ()
        assert [event.event_id for event in confined.events()] == [own]
        assert [event.event_id for event in confined.events(scope_ids=[DB, WEB])] == [own]
        assert confined.events(scope_ids=[DB]) == ()
        assert confined.setting("clock") is None

    def write(tx: Transaction) -> None:
        confined = LimitedTransaction(tx, web)
        others = tx.event(other)
        assert others is not None
        with pytest.raises(OutsideScopesError, match="db-0"):
            confined.put_event(others)
        verbs: tuple[Callable[[], object], ...] = (
            lambda: confined.put_document(DB, FIRST_DOCUMENT, at=MORNING),
            lambda: confined.append_ledger(
                LedgerEntry(event_id=other, at=MORNING, what=Happening.APPROVED, who="web-team")
            ),
            lambda: confined.put_topology(tx.topology()),
            lambda: confined.put_setting("clock", "real"),
            lambda: confined.audit(limit=1),
            confined.tokens,
            lambda: confined.prune_tasks(before=MORNING),
            lambda: confined.tasks_of(own),
            lambda: confined.task((own, "web-0")),
            confined.next_epoch,
        )
        for verb in verbs:
            with pytest.raises(RoleTooLowError, match="admin"):
                verb()

    store.read(look)
    store.write(write)


def test_confined_transaction_knows_neither_messages_nor_history_of_others(
    admin: httpx2.Client, store: Store
) -> None:
    announced = [announce(admin, vm).json()["events"][0]["event_id"] for vm in ("web-0", "db-0")]
    own, other = (message_about(EventId(event_id)) for event_id in announced)
    web = Principal(name="web-team", role=Role.OPERATOR, scopes=(WEB,))

    def work(tx: Transaction) -> None:
        confined = LimitedTransaction(tx, web)
        tx.put_notification(other)
        confined.put_notification(own)
        assert confined.notification(own.notification_id) == own
        assert confined.notification(other.notification_id) is None
        assert confined.notifications(scope_ids=[DB]) == ()
        assert confined.document_at(DB, MORNING) == FIRST_DOCUMENT
        assert confined.document_at(WEB, MORNING) == tx.document(WEB)
        assert confined.memberships("db-0") == ()
        verbs: tuple[Callable[[], object], ...] = (
            lambda: confined.put_notification(other),
            lambda: confined.ledger_after(0, limit=1),
            confined.targets_waited_for,
        )
        for verb in verbs:
            with pytest.raises(RoleTooLowError, match="admin"):
                verb()

    store.write(work)


def message_about(event_id: EventId) -> Notification:
    return Notification(
        notification_id=f"about-{event_id}",
        subject=event_id,
        phase=Phase.SCHEDULED,
        target="ops",
        data={},
        created_at=MORNING,
        maintenance_time=MORNING,
        next_attempt_at=MORNING,
    )
