"""What the fleet file changes when a server starts with it again, and what the log says of it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.operations.conftest import FLEET

from forewarn.bootstrap.start import begin
from forewarn.domain.amending import amend
from forewarn.domain.names import HostName, VmName
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.hosts import close_host
from forewarn.operations.inventory import remove_vm
from forewarn.operations.patches import patch_vm
from forewarn.operations.placements import record_moves
from forewarn.operations.safeguards import ApplyOptions
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.settings import Settings, make_settings

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings({"database": f"sqlite:///{tmp_path / 'forewarn.db'}"})


def start(store: Store, settings: Settings, text: str = FLEET) -> list[tuple[str, str, str]]:
    """Start with a fleet file, and return what is logged of it."""
    with capture_logs() as lines:
        begin(store, settings, read_fleet_file(text), NOW)
    return [(line["log_level"], line["event"], line["detail"]) for line in lines]


def move(store: Store, context: Context, name: str, host: str) -> None:
    store.write(lambda tx: patch_vm(tx, context, name, {"host": host}, ApplyOptions()))


def follow(store: Store, context: Context, name: str, host: str) -> None:
    """Move a machine as its impact does."""
    before = store.read(lambda reading: reading.topology())
    vm = before.virtual_machines[VmName(name)]
    after = amend(before, virtual_machines=[replace(vm, host=HostName(host))])
    store.write(lambda tx: record_moves(tx, context, before, after, {vm.name: EventId("E1")}))


def host_of(store: Store, name: str) -> str | None:
    vms = store.read(lambda reading: reading.topology()).virtual_machines
    return next(vm.host for vm in vms.values() if vm.name == name)


def test_first_start_is_not_worth_a_warning(store: Store, settings: Settings) -> None:
    assert start(store, settings) == []
    assert start(store, settings) == []


def test_start_warns_of_each_change_that_the_file_undoes(
    fleet: Store, settings: Settings, operator: Context
) -> None:
    move(fleet, operator, "web-0", "kvm-1")
    fleet.write(lambda tx: remove_vm(tx, operator, "solo"))

    assert start(fleet, settings) == [
        ("warning", "fleet_file_changed", "+ solo"),
        ("warning", "fleet_file_changed", "~ web-0: host kvm-1 -> kvm-0"),
    ]
    assert host_of(fleet, "web-0") == "kvm-0"


def test_start_places_nothing_on_a_closed_host_and_warns(
    fleet: Store, settings: Settings, operator: Context
) -> None:
    fleet.write(lambda tx: close_host(tx, operator, "kvm-0"))
    move(fleet, operator, "web-0", "kvm-1")

    ((level, event, reason),) = start(fleet, settings)

    assert (level, event) == ("warning", "fleet_file_skipped")
    assert reason.startswith("kvm-0 has been closed to new virtual machines since")
    assert host_of(fleet, "web-0") == "kvm-1"


def test_start_leaves_a_machine_in_an_event_as_it_is_and_warns(
    fleet: Store, settings: Settings, operator: Context
) -> None:
    move(fleet, operator, "web-0", "kvm-1")
    order = EventOrder(event_type=EventType.FREEZE, resources=("web-0",))
    fleet.write(lambda tx: create_events(tx, operator, order))

    ((_, event, reason),) = start(fleet, settings)

    assert (event, reason.startswith("web-0 has events in flight ")) == ("fleet_file_skipped", True)
    assert host_of(fleet, "web-0") == "kvm-1"


def test_log_of_a_start_is_bounded(fleet: Store, settings: Settings) -> None:
    many = "".join(f'[[virtual_machine]]\nname = "vm-{number}"\n' for number in range(60))

    lines = start(fleet, settings, many)

    assert len(lines) == 51
    assert lines[-1] == ("warning", "fleet_file_changed", "and 10 more")


@pytest.mark.parametrize(("name", "host"), [("web-0", "kvm-0"), ("solo", "no host")])
def test_machine_stays_where_its_impact_moved_it_while_the_file_has_it_where_it_was(
    fleet: Store, settings: Settings, operator: Context, name: str, host: str
) -> None:
    follow(fleet, operator, name, "kvm-1")
    follow(fleet, operator, name, "kvm-2")
    remark = f"{name} stays on kvm-2, where its executor moved it; the file places it on {host}."

    assert start(fleet, settings) == [("warning", "fleet_file_skipped", remark)]
    assert host_of(fleet, name) == "kvm-2"


def test_file_that_says_something_new_of_a_machine_that_moved_is_followed(
    fleet: Store, settings: Settings, operator: Context
) -> None:
    follow(fleet, operator, "web-0", "kvm-2")

    start(fleet, settings, FLEET.replace("kvm-0", "kvm-9"))

    assert host_of(fleet, "web-0") == "kvm-9"


def test_file_undoes_what_an_operator_did_after_a_move(
    fleet: Store, settings: Settings, operator: Context
) -> None:
    follow(fleet, operator, "web-0", "kvm-2")
    move(fleet, operator, "web-0", "kvm-1")

    start(fleet, settings)
    follow(fleet, operator, "web-0", "kvm-3")

    assert [detail for _, _, detail in start(fleet, settings)] == [
        "web-0 stays on kvm-3, where its executor moved it; the file places it on kvm-0."
    ]
