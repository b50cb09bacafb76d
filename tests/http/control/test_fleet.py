"""/fleet and /virtual-machines."""

import asyncio
import gc
import json
import threading
from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from starlette.types import Message
from tests.http.conftest import FLEET, TOKEN, Tables

from forewarn.ports.store import Store

UNCHANGED: dict[str, object] = {
    "added": [],
    "changed": [],
    "removed": [],
    "changed_scopes": [],
    "skipped": [],
    "needed_removals": 0,
    "undeclared_hosts": [],
    "differences": [],
}
LINES = {"Accept": "application/x-ndjson"}


def test_fleet_is_applied_and_shown_in_the_words_of_the_file(api: httpx2.Client) -> None:
    fleet = api.get("fleet").json()

    assert fleet["availability_set"] == [
        {"name": "web", "update_domains": 3, "fault_domains": 2, "postpone_until": "1h"}
    ]
    assert [vm["name"] for vm in fleet["virtual_machine"]] == ["web-0", "web-1", "solo"]
    assert fleet["virtual_machine"][0] | {"vm_id": "any"} == {
        "name": "web-0",
        "availability_set": "web",
        "update_domain": 0,
        "fault_domain": 0,
        "host": "kvm-0",
        "addresses": ["10.0.0.10"],
        "vm_id": "any",
    }


def test_what_is_shown_can_be_applied_again_and_changes_nothing(empty_api: httpx2.Client) -> None:
    everything = {
        "availability_set": [{"name": "web", "approval": "all", "auto_approve_user": True}],
        "cloud_service": [{"name": "shop"}],
        "scale_set": [{"name": "batch", "terminate_notice": "7m"}],
        "host": [{"name": "kvm-0", "labels": {"rack": "r1"}}, {"name": "spare"}],
        "virtual_machine": [
            {"name": "web-0", "availability_set": "web", "host": "kvm-0", "zone": "1"},
            {"name": "FrontEnd_IN_0", "cloud_service": "shop", "role": "FrontEnd"},
            {"name": "batch-0", "scale_set": "batch", "placement_group": "pg1"},
            {"name": "solo", "approval": "leader", "postpone_until": "90m", "tags": {"a": "ä"}},
        ],
    }
    empty_api.post("fleet", json={"fleet": everything})
    shown = empty_api.get("fleet").json()

    change = empty_api.post("fleet", json={"fleet": shown, "prune": True})

    assert change.json() == UNCHANGED
    assert empty_api.get("fleet").json() == shown


def test_fleet_that_left_something_out_prunes_only_when_told(api: httpx2.Client) -> None:
    only_solo = {"virtual_machine": [{"name": "solo", "location": "here"}]}

    kept = api.post("fleet", json={"fleet": only_solo}).json()
    order = {"fleet": only_solo, "prune": True, "allow_removals": 2}
    pruned = api.post("fleet", json=order).json()

    located = {"field": "location", "before": None, "after": "here"}
    difference = {
        "table": "virtual_machine",
        "name": "solo",
        "alteration": "changed",
        "fields": [located],
    }
    assert kept == UNCHANGED | {"changed": ["solo"], "differences": [difference]}
    assert (pruned["changed"], pruned["removed"]) == ([], ["web-0", "web-1"])
    assert list(api.get("fleet").json()) == ["virtual_machine"]


@pytest.mark.parametrize(
    ("order", "kind", "detail"),
    [
        (
            {"fleet": {"virtual_machine": [{"name": "solo"}]}, "allow_removals": 1},
            "too-many-removals",
            "This would remove 2 of 3 virtual machines",
        ),
        (
            {"fleet": {"host": [{"name": "spare"}]}, "allow_removals": 100},
            "empty-fleet",
            "The fleet declares no virtual machine",
        ),
    ],
)
def test_server_does_not_prune_much_by_mistake(
    api: httpx2.Client,
    tables: Callable[[], Tables],
    order: dict[str, object],
    kind: str,
    detail: str,
) -> None:
    before = tables()

    answer = api.post("fleet", json={**order, "prune": True})

    assert (answer.status_code, answer.json()["type"]) == (409, f"urn:forewarn:problem:{kind}")
    assert answer.json()["detail"].startswith(detail)
    assert tables() == before


def test_machine_in_an_event_is_skipped_when_told(api: httpx2.Client) -> None:
    event = api.post("virtual-machines/solo/restart").json()
    moved = {"virtual_machine": [{"name": "solo", "host": "kvm-9"}, {"name": "new"}]}

    refused = api.post("fleet", json={"fleet": moved})
    change = api.post("fleet", json={"fleet": moved, "skip_busy": True}).json()

    assert refused.status_code == 409
    assert (change["added"], change["changed"]) == (["new"], [])
    assert change["skipped"] == [
        {
            "vm": "solo",
            "host": None,
            "reason": refused.json()["detail"],
            "event_ids": [event["event_id"]],
        }
    ]


def test_empty_fleet_is_an_empty_object(empty_api: httpx2.Client) -> None:
    assert empty_api.get("fleet").json() == {}


def test_fleet_error_names_the_entry_and_the_key(api: httpx2.Client) -> None:
    wrong = {"virtual_machine": [{"name": "web-0", "zoen": "1"}]}

    problem = api.post("fleet", json={"fleet": wrong}).json()

    assert (problem["status"], problem["entry"], problem["key"]) == (422, "web-0", "zoen")
    assert problem["type"] == "urn:forewarn:problem:fleet"


def test_every_mistake_of_a_fleet_is_a_problem_of_its_own(api: httpx2.Client) -> None:
    wrong = {
        "scale_set": {"name": "batch"},
        "virtual_machine": [{"name": "a", "zone": 1}, {"availability_set": "web"}, {"name": "b c"}],
    }

    problem = api.post("fleet", json={"fleet": wrong}).json()

    assert problem["type"] == "urn:forewarn:problem:fleet-mistakes"
    assert problem["mistakes"] == [
        {
            "type": "urn:forewarn:problem:fleet",
            "detail": "scale_set: it is not a list; in TOML, write [[scale_set]].",
            "table": "scale_set",
        },
        {
            "type": "urn:forewarn:problem:fleet",
            "detail": "zone of a: 1 is not text in quotes.",
            "table": "virtual_machine",
            "index": 0,
            "entry": "a",
            "key": "zone",
        },
        {
            "type": "urn:forewarn:problem:fleet",
            "detail": "name of virtual_machine 2: it is required.",
            "table": "virtual_machine",
            "index": 1,
            "key": "name",
        },
        {
            "type": "urn:forewarn:problem:invalid-name",
            "detail": problem["mistakes"][3]["detail"],
            "name": "b c",
        },
    ]


@pytest.mark.parametrize(
    ("declared", "kind", "member"),
    [
        ({"name": "a b"}, "invalid-name", {"name": "a b"}),
        ({"name": "SOLO", "vm_id": "x"}, "name-taken", {"name": "SOLO"}),
        ({"name": "x", "addresses": ["10.0.0.10"]}, "address", {"vm": "x"}),
        ({"name": "x", "availability_set": "no"}, "unknown-scope", {"vm": "x"}),
        (
            {"name": "x", "availability_set": "web", "update_domain": 3},
            "domain-out-of-range",
            {"vm": "x"},
        ),
        ({"name": "x", "terminate_notice": "1m"}, "scope-setting", {"setting": "terminate_notice"}),
    ],
)
def test_topology_error_names_what_is_wrong(
    api: httpx2.Client, declared: dict[str, object], kind: str, member: dict[str, str]
) -> None:
    answer = api.post("fleet", json={"fleet": {"virtual_machine": [declared]}})

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, f"urn:forewarn:problem:{kind}")
    assert problem | member == problem


def test_virtual_machines_are_listed_in_fleet_order(api: httpx2.Client) -> None:
    vms = api.get("virtual-machines").json()["virtual_machines"]

    assert [(vm["name"], vm["scope_id"], vm["update_domain"]) for vm in vms] == [
        ("web-0", "availability-set/web", 0),
        ("web-1", "availability-set/web", 1),
        ("solo", "virtual-machine/solo", 0),
    ]


def test_virtual_machine_is_added_shown_and_removed(api: httpx2.Client, wakeups: list[str]) -> None:
    added = api.post("virtual-machines", json={"name": "web-2", "availability_set": "web"})
    shown = api.get("virtual-machines/WEB-2")
    removed = api.delete("virtual-machines/Web-2")

    assert (added.status_code, added.json()["update_domain"]) == (201, 2)
    assert shown.json() == added.json()
    assert (removed.status_code, removed.json()["removed"]) == (200, ["web-2"])
    assert api.get("virtual-machines/web-2").status_code == 404
    assert wakeups == ["changed", "changed"]


def test_virtual_machine_is_not_added_twice(api: httpx2.Client) -> None:
    answer = api.post("virtual-machines", json={"name": "Solo"})

    assert (answer.status_code, answer.json()["vm"]) == (409, "solo")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 1},
        {"name": "x", "update_domain": "0"},
        {"name": "x", "update_domain": True},
        {"name": "x", "addresses": "10.0.0.1"},
        {"name": "x", "tags": {"a": 1}},
        {"name": "x", "color": "red"},
        [],
        "x",
        None,
    ],
)
def test_virtual_machine_of_wrong_types_is_refused(api: httpx2.Client, body: object) -> None:
    answer = api.post("virtual-machines", json=body)

    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:forewarn:problem:invalid-request"
    assert answer.json()["errors"]


def test_busy_virtual_machine_stays(api: httpx2.Client) -> None:
    event = api.post("virtual-machines/solo/restart").json()

    answer = api.delete("virtual-machines/solo")

    assert (answer.status_code, answer.json()["event_ids"]) == (409, [event["event_id"]])


@pytest.mark.parametrize(("verb", "event_type"), [("restart", "Reboot"), ("redeploy", "Redeploy")])
def test_owner_operates_a_virtual_machine(
    api: httpx2.Client, wakeups: list[str], verb: str, event_type: str
) -> None:
    answer = api.post(f"virtual-machines/SOLO/{verb}")

    event = answer.json()
    assert answer.status_code == 201
    assert (event["event_type"], event["event_source"]) == (event_type, "User")
    assert event["resources"] == ["solo"]
    assert wakeups == ["changed"]


def test_second_user_operation_names_the_first(api: httpx2.Client) -> None:
    first = api.post("virtual-machines/solo/restart").json()

    answer = api.post("virtual-machines/solo/redeploy")

    assert (answer.status_code, answer.json()["in_flight"]) == (409, [first["event_id"]])


def test_eleventh_user_operation_names_the_ten(empty_api: httpx2.Client) -> None:
    vms = [{"name": f"vm-{number}"} for number in range(11)]
    empty_api.post("fleet", json={"fleet": {"virtual_machine": vms}})
    for number in range(10):
        assert empty_api.post(f"virtual-machines/vm-{number}/restart").status_code == 201

    answer = empty_api.post("virtual-machines/vm-10/restart")

    assert (answer.status_code, answer.json()["limit"]) == (409, 10)
    assert len(answer.json()["in_flight"]) == 10


def test_changed_settings_of_a_scope_are_told(empty_api: httpx2.Client) -> None:
    changes = [
        empty_api.post(
            "fleet",
            json={"fleet": {"availability_set": [{"name": "web", "approval": approval}]}},
        ).json()
        for approval in ("any", "leader")
    ]

    assert changes[-1]["changed_scopes"] == ["availability-set/web"]


@pytest.mark.parametrize("key", ["tags", "labels"])
def test_text_that_is_not_unicode_is_refused(api: httpx2.Client, key: str) -> None:
    body = f'{{"name":"odd","{key}":{{"\\ud800":"a"}}}}'

    refused = api.post(
        "virtual-machines", content=body, headers={"Content-Type": "application/json"}
    )

    assert refused.status_code == 422
    assert api.get("fleet").status_code == 200


def test_event_that_starts_at_once_has_no_not_before(api: httpx2.Client) -> None:
    order = {"event_type": "Reboot", "resources": ["web-0"], "started": True, "not_before": "20m"}

    refused = api.post("events", json=order)

    assert refused.status_code == 422
    assert "not_before cannot be used with started" in refused.json()["detail"]


def test_time_cannot_be_advanced_beyond_what_a_date_says(api: httpx2.Client) -> None:
    answers = {
        api.post("clock/advance", json={"duration": "3660d"}).status_code for _ in range(100)
    }

    assert answers <= {200, 422}
    assert 422 in answers


def test_dry_run_names_what_would_change_and_writes_nothing(
    api: httpx2.Client, tables: Callable[[], Tables]
) -> None:
    fleet = {
        "availability_set": [{"name": "web", "update_domains": 4}],
        "virtual_machine": [{"name": "solo", "zone": "1"}, {"name": "new"}],
    }
    before = tables()

    answer = api.post("fleet", json={"fleet": fleet, "prune": True, "dry_run": True})

    change = answer.json()
    assert (change["added"], change["changed"], change["removed"]) == (
        ["new"],
        ["solo"],
        ["web-0", "web-1"],
    )
    assert change["changed_scopes"] == ["availability-set/web"]
    assert change["needed_removals"] == 2
    altered = [f"{each['alteration']} {each['name']}" for each in change["differences"]]
    assert altered == [
        "changed web",
        "added new",
        "changed solo",
        "removed web-0",
        "removed web-1",
        "removed kvm-0",
        "removed kvm-1",
    ]
    assert tables() == before


def test_long_declaration_tells_how_far_it_is(empty_api: httpx2.Client) -> None:
    vms = [{"name": f"vm-{number}"} for number in range(4500)]

    answer = empty_api.post("fleet", json={"fleet": {"virtual_machine": vms}}, headers=LINES)

    *progress, change = map(json.loads, answer.text.splitlines())
    assert progress == [
        {"step": "reading", "entries": 2000},
        {"step": "reading", "entries": 4000},
        {"step": "checking", "entries": 4500},
        {"step": "writing", "entries": 4500},
    ]
    assert len(change["added"]) == 4500


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"fleet": {"virtual_machine": [{"name": "a"}, {"name": "a"}]}}', "name-taken"),
        (b'{"fleet": {"virtual_machine": [{"name": 3}]}}', "fleet"),
        (b'{"fleet": 3}', "invalid-request"),
        (b'{"fleet": {}, "prune": 1}', "invalid-request"),
        (b"[]", "invalid-request"),
        (b"{", "invalid-request"),
        (b"\xff", "invalid-request"),
        (b'{"fleet": ' + b"[" * 100_000, "invalid-request"),
        (b'{"fleet": {"host": [{"name": "\\ud800"}]}}', "invalid-request"),
    ],
)
def test_refused_declaration_says_so_in_either_way_and_writes_one_line_of_audit(
    api: httpx2.Client, tables: Callable[[], Tables], body: bytes, kind: str
) -> None:
    before, lines = tables(), len(api.get("audit").json()["audit"])

    plain = api.post("fleet", content=body)
    followed = api.post("fleet", content=body, headers=LINES)

    problem = json.loads(followed.text.splitlines()[-1])
    assert (plain.status_code, plain.json()["type"]) == (422, f"urn:forewarn:problem:{kind}")
    assert problem == plain.json()
    assert tables() == before
    assert len(api.get("audit").json()["audit"]) == lines + 2


def test_large_declaration_is_applied_and_leaves_the_collector_on(
    empty_api: httpx2.Client,
) -> None:
    vms = [{"name": f"vm-{number}", "labels": {"note": "x" * 1000}} for number in range(1500)]

    answer = empty_api.post("fleet", json={"fleet": {"virtual_machine": vms}})

    assert len(answer.json()["added"]) == 1500
    assert gc.isenabled()


@pytest.mark.parametrize("accept", [{}, LINES], ids=["json", "ndjson"])
def test_large_fleets_that_are_refused_leave_nothing_in_memory(
    empty_api: httpx2.Client, accept: dict[str, str]
) -> None:
    vms = [{"name": f"vm-{number:05}"} for number in range(3000)]
    body = json.dumps({"fleet": {"virtual_machine": vms}}).encode() + b" " * 1024 * 1024

    def refuse() -> int:
        headers = {"If-Match": '"another"', **accept}
        answer = empty_api.post("fleet", content=body, headers=headers)
        assert "precondition-failed" in answer.text
        gc.collect()
        return len(gc.get_objects()) + gc.get_freeze_count()

    refuse()
    before = refuse()

    assert max(refuse() for _ in range(3)) < before + 1000


def test_refusal_is_audited_also_if_the_caller_has_hung_up(
    app: FastAPI, api: httpx2.Client, store: Store
) -> None:
    may_go_on = threading.Event()
    headers = {"Authorization": f"Bearer {TOKEN}", "If-Match": '"another"', **LINES}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/fleet",
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
        "client": ("10.0.0.9", 1),
    }

    async def ask_and_hang_up() -> None:
        asked = iter([{"type": "http.request", "body": json.dumps({"fleet": FLEET}).encode()}])
        has_begun = asyncio.Event()

        async def receive() -> Message:
            if (message := next(asked, None)) is not None:
                return message
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if b"writing" in message.get("body", b""):
                has_begun.set()

        try:
            await asyncio.wait_for(app(scope, receive, send), 20)
        finally:
            may_go_on.set()

    blocking = store.submit(lambda _: may_go_on.wait(20))
    asyncio.run(ask_and_hang_up())

    assert blocking.result()
    refused = [each for each in api.get("audit").json()["audit"] if each["outcome"] == "refused"]
    assert [(each["action"], each["where"]) for each in refused] == [("fleet apply", "10.0.0.9")]
