"""The fleet and its virtual machines, without a browser."""

import re
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.http.console.conftest import SignIn

from forewarn.console.cells import FleetSight
from forewarn.console.grids import MOST_BLOCKS, MOST_CELLS, ON_ONE_PAGE, Block, divide, make_grid
from forewarn.desk.services import Services
from forewarn.domain.amending import build_topology
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.roles import Role
from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine
from forewarn.files.fleet import read_fleet
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.ports.store import Store

MORE: dict[str, Any] = {
    "availability_set": [{"name": "empty"}],
    "scale_set": [{"name": "batch"}],
    "host": [{"name": "spare", "labels": {"rack": "a7"}}],
    "virtual_machine": [
        {
            "name": "batch-0",
            "scale_set": "batch",
            "placement_group": "pg1",
            "host": "kvm-9",
            "addresses": ["10.1.2.3"],
            "labels": {"tier": "night"},
        },
        {"name": "adrift", "availability_set": "web"},
    ],
}


@pytest.fixture
def fleet(browser: TestClient, services: Services, store: Store) -> TestClient:
    """A browser on a fleet with a scale set, an empty set and a host without machines."""
    context = services.context("alice")
    store.write(lambda tx: apply_fleet(tx, context, read_fleet(MORE)))
    return browser


def cells(page: str) -> list[str]:
    return re.findall(r'id="vm-([^"]+)"', page)


def sections(page: str) -> list[str]:
    return re.findall(r'<section class="card (?:scope-grid|host-card)" id="([^"]+)"', page)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=NIGHT", ["batch-0"]),
        ("q=10.1.2", ["batch-0"]),
        ("q=kvm-9+batch", ["batch-0"]),
        ("q=kvm-9+web", []),
        ("scope=web", ["web-0", "web-1", "adrift"]),
        ("scope=scale-set/BATCH", ["batch-0"]),
        ("scope=scale-set/batch/pg1", ["batch-0"]),
        ("scope=we", []),
        ("kind=virtual-machine", ["solo"]),
        ("host=KVM-9", ["batch-0"]),
        ("by=host&host=KVM-9", ["batch-0"]),
        ("state=in-event", []),
        ("state=unpolled", ["web-0", "web-1", "adrift", "batch-0", "solo"]),
        ("state=in-service", []),
    ],
)
def test_query_chooses_virtual_machines(fleet: TestClient, query: str, found: list[str]) -> None:
    assert sorted(cells(fleet.get(f"/fleet?{query}").text)) == sorted(found)


def test_scopes_and_hosts_without_machines_are_shown_where_nothing_else_is_wanted(
    fleet: TestClient,
) -> None:
    every = sections(fleet.get("/fleet").text)

    assert every == [
        "scope-availability-set/web",
        "scope-availability-set/empty",
        "scope-scale-set/batch/pg1",
        "standalone-1",
    ]
    assert "scope-availability-set/empty" not in sections(fleet.get("/fleet?q=e").text)
    assert "host-spare" in sections(fleet.get("/fleet?by=host").text)
    assert sections(fleet.get("/fleet?by=host&q=rack%3Da7").text) == ["host-spare"]
    assert "host-spare" not in sections(fleet.get("/fleet?by=host&state=unpolled").text)
    assert "no-host-" in fleet.get("/fleet?by=host").text


def test_unknown_choice_is_refused_and_a_page_too_far_is_the_last(fleet: TestClient) -> None:
    assert fleet.get("/fleet?state=broken").status_code == 422
    assert fleet.get("/fleet?by=moon").status_code == 422
    assert fleet.get("/fleet?page=0").status_code == 422
    assert cells(fleet.get("/fleet?page=99").text) == cells(fleet.get("/fleet").text)


def test_pages_are_full_but_not_too_full() -> None:
    vm = VirtualMachine(name=VmName("vm"), scope_id=ScopeId("virtual-machine/vm"))
    large = [Block(key=ScopeId("a"), vms=[vm] * 5000)] * 3
    small = [Block(key=ScopeId("b"), vms=[vm])] * (2 * MOST_BLOCKS)

    assert divide([]) == [[]]
    assert [len(page) for page in divide(large)] == [1, 1, 1]
    assert [len(page) for page in divide(small)] == [MOST_BLOCKS, MOST_BLOCKS]
    assert all(sum(block.size for block in page) <= ON_ONE_PAGE for page in divide(large + small))


def test_scope_with_a_thousand_domains_shows_those_that_are_occupied() -> None:
    scope = DeliveryScope(
        kind=ScopeKind.SCALE_SET, name="s", update_domains=1000, fault_domains=1000
    )
    vms = [
        VirtualMachine(
            name=VmName(f"vm-{i}"),
            scope_id=scope.scope_id,
            update_domain=i % 1000,
            fault_domain=i % 997,
        )
        for i in range(3000)
    ]
    topology = build_topology(scopes=[scope], virtual_machines=vms)
    sight = FleetSight(topology=topology, involved={}, unpolled=frozenset(), at_work={})

    grid = make_grid(sight, Block(key=scope.scope_id, vms=vms))

    shown = sum(len(slot.cells) for column in grid.columns for slot in column.slots)
    assert 0 < shown <= MOST_CELLS
    assert grid.more == len(vms) - shown


def test_machine_that_was_never_there_is_not_found(fleet: TestClient) -> None:
    assert fleet.get("/virtual-machines/nobody").status_code == 404
    assert fleet.get("/virtual-machines/WEB-0").status_code == 200


def test_limited_viewer_finds_no_trace_of_machines_elsewhere(
    fleet: TestClient, sign_in: SignIn, services: Services, store: Store
) -> None:
    context = services.context("alice")
    order = TokenOrder(name="limited", role=Role.VIEWER, scopes=("web",))
    store.write(lambda tx: create_token(tx, context, order, "fw_limited"))
    limited = sign_in("fw_limited")
    store.write(lambda tx: remove_vm(tx, context, "batch-0"))

    assert cells(limited.get("/fleet").text) == ["web-0", "web-1", "adrift"]
    assert "kvm-9" not in limited.get("/fleet?by=host").text
    assert "batch" not in limited.get("/fleet").text
    assert limited.get("/virtual-machines/batch-0").status_code == 404
    assert fleet.get("/virtual-machines/batch-0").status_code == 200


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("at=nonsense", "is not a valid time"),
        ("at=2999-01-01T00:00:00Z", "is in the future"),
        ("at=300d", "no longer kept"),
        ("at=3h", "does not know whether"),
        ("api-version=2016-01-01", "Unknown api-version"),
    ],
)
def test_time_machine_says_what_it_does_not_know(
    fleet: TestClient, query: str, sentence: str
) -> None:
    page = fleet.get(f"/virtual-machines/web-0?{query}")

    assert page.status_code == 200
    assert sentence in page.text
