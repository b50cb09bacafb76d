"""The fleet file that the program for OpenStack prints, read as forewarn reads it."""

import pytest
from tests.contrib.conftest import Program
from tests.contrib.openstack.api import OTHER_PROJECT, PROJECT, Cloud, NovaServer
from tests.contrib.openstack.conftest import ProgramMaker, identify
from tests.contrib.stand_in import Reply

from forewarn.files.fleet import DeclaredVirtualMachine, Fleet, read_fleet_file


@pytest.fixture
def inventory(program: ProgramMaker) -> Program:
    return program("nova_inventory.py")


def read(inventory: Program, *flags: str) -> Fleet:
    ended = inventory.run(*flags)
    assert ended.status == 0, ended.said
    fleet = read_fleet_file(ended.printed)
    assert fleet.mistakes == ()
    return fleet


def machine(fleet: Fleet, name: str) -> DeclaredVirtualMachine:
    return next(each for each in fleet.virtual_machines if each.vm.name == name)


def test_fleet_has_each_server_of_the_project_from_all_pages(inventory: Program) -> None:
    fleet = read(inventory)

    assert [each.vm.name for each in fleet.virtual_machines] == ["db-0", "web-0", "web-1"]
    web = machine(fleet, "web-0")
    assert (web.vm.host, web.vm.addresses, web.vm.vm_id, web.vm.zone) == (
        "compute-1",
        ("10.0.0.100",),
        identify(0),
        "nova",
    )
    assert (web.scope.name, web.update_domain) == ("web", 0)
    assert web.vm.labels == {"tier": "front", "project": PROJECT, "server": identify(0)}
    assert web.vm.profile.vm_size == "m1.tiny"
    assert fleet.hosts == ()


def test_fleet_of_all_projects_has_the_hosts_and_keeps_sets_apart(
    cloud: Cloud, inventory: Program
) -> None:
    cloud.server("idle").metadata = {"availability_set": "web", "update_domain": "8"}

    fleet = read(inventory, "--all-projects")

    assert machine(fleet, "web-0").scope.name == f"{PROJECT}.web"
    assert machine(fleet, "idle").scope.name == f"{OTHER_PROJECT}.web"
    assert [scope.update_domains for scope in fleet.scopes] == [5, 9]
    assert [host.name for host in fleet.hosts] == ["compute-1", "compute-2", "compute-3"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"availability_set": "my set", "update_domain": "1"},
        {"update_domain": "1"},
        {"availability_set": "web", "update_domain": "100"},
        {"availability_set": "web", "update_domain": "-1", "fault_domain": "x"},
        {"availability_set": '"]\n[[host]]\nname="evil'},
        {'a"b = "\n': 'c"d\x7f\\', "ünïcode 🙂": "✓"},
    ],
)
def test_owner_of_a_server_cannot_break_the_inventory(
    cloud: Cloud, inventory: Program, metadata: dict[str, str]
) -> None:
    cloud.server("db-0").metadata = metadata

    fleet = read(inventory)

    assert len(fleet.virtual_machines) == 3
    assert fleet.hosts == ()
    assert machine(fleet, "db-0").update_domain is None


def test_server_whose_name_forewarn_cannot_take_goes_by_its_id(
    cloud: Cloud, inventory: Program
) -> None:
    cloud.server("db-0").name = "My database"

    assert machine(read(inventory), identify(2)).vm.addresses == ("10.0.0.102",)


def test_two_servers_of_one_name_print_nothing_unless_they_go_by_their_ids(
    cloud: Cloud, inventory: Program
) -> None:
    cloud.servers.append(NovaServer(id=identify(9), name="WEB-0", address="10.0.0.109"))

    ended = inventory.run()
    by_id = read(inventory, "--names", "id")

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == (
        f'several servers have the name "web-0": {identify(0)}, {identify(9)}; see --names id'
    )
    assert machine(by_id, identify(9)).vm.addresses == ("10.0.0.109",)


def test_same_address_on_two_networks_prints_nothing_unless_one_is_named(
    cloud: Cloud, inventory: Program
) -> None:
    cloud.server("idle").address = "10.0.0.100"

    ended = inventory.run("--all-projects")
    without = read(inventory, "--all-projects", "--network", "other")

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line.endswith("; see --network")
    assert machine(without, "idle").vm.addresses == ()


def test_failure_in_the_middle_prints_nothing(cloud: Cloud, inventory: Program) -> None:
    cloud.api.fail("GET .*/os-services", Reply(500))

    ended = inventory.run("--all-projects")

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == "OpenStack answers 500: Internal Server Error"


def test_project_without_servers_is_a_failure(cloud: Cloud, inventory: Program) -> None:
    cloud.servers.clear()

    ended = inventory.run()

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == ("the user sees no server; check the project, or use --all-projects")


def test_deleted_server_is_left_out(cloud: Cloud, inventory: Program) -> None:
    cloud.server("web-1").status = "SOFT_DELETED"

    assert len(read(inventory).virtual_machines) == 2
