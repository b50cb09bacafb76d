"""The fleet file that the program for Proxmox VE prints, read as forewarn reads it."""

import pytest
from tests.contrib.conftest import Program
from tests.contrib.proxmox.api import Cluster, PveGuest, refuse
from tests.contrib.proxmox.conftest import ProgramMaker, config

from forewarn.files.fleet import DeclaredVirtualMachine, Fleet, read_fleet_file


@pytest.fixture
def inventory(program: ProgramMaker) -> Program:
    return program("pve_inventory.py")


def read(inventory: Program, *flags: str) -> Fleet:
    ended = inventory.run(*flags)
    assert ended.status == 0, ended.said
    fleet = read_fleet_file(ended.printed)
    assert fleet.mistakes == ()
    return fleet


def machine(fleet: Fleet, name: str) -> DeclaredVirtualMachine:
    return next(each for each in fleet.virtual_machines if each.vm.name == name)


def report(cluster: Cluster, name: str, *addresses: str) -> None:
    """Have a guest report addresses, which has none from cloud-init."""
    del cluster.guest(name).config["ipconfig0"]
    cluster.guest(name).reported = interfaces(*addresses)


def interfaces(*addresses: object) -> list[dict[str, object]]:
    """Return what an agent answers."""
    known = [{"ip-address": each, "ip-address-type": "ipv4", "prefix": 24} for each in addresses]
    loopback = [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8}]
    local = {"ip-address": "fe80::be24:11ff:fe00:1", "ip-address-type": "ipv6", "prefix": 64}
    return [
        {"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": loopback},
        {
            "name": "eth0",
            "hardware-address": "bc:24:11:00:00:01",
            "ip-addresses": [*known, local],
        },
    ]


def test_fleet_has_each_machine_with_its_place_and_its_id(inventory: Program) -> None:
    fleet = read(inventory)

    names = [each.vm.name for each in fleet.virtual_machines]
    assert names == ["web-0", "web-1", "db-0", "idle"], "no container, and no template"
    web = machine(fleet, "web-0")
    assert (web.vm.host, web.vm.addresses, web.vm.vm_id) == (
        "pve-1",
        ("10.0.0.100",),
        "5e0d4c7a-0000-4000-8000-000000000100",
    )
    assert web.vm.labels == {"prod": "yes", "vmid": "100"}
    assert [host.name for host in fleet.hosts] == ["pve-1", "pve-2", "pve-3"]


def test_tags_name_the_set_and_the_domains(cluster: Cluster, inventory: Program) -> None:
    cluster.guest("db-0").config["tags"] = "set.db,fd.1"

    fleet = read(inventory)

    assert [(each.name, each.update_domains) for each in fleet.scopes][:2] == [
        ("db", 5),
        ("web", 7),
    ]
    assert machine(fleet, "web-0").update_domain == 0
    assert machine(fleet, "web-1").update_domain == 6
    assert (machine(fleet, "db-0").update_domain, machine(fleet, "db-0").fault_domain) == (None, 1)
    assert machine(fleet, "idle").scope.name == "idle", "it stands alone"


def test_only_machines_with_a_tag(inventory: Program) -> None:
    assert [each.vm.name for each in read(inventory, "--tag", "prod").virtual_machines] == ["web-0"]


def test_agents_are_asked_only_if_they_are_trusted(cluster: Cluster, inventory: Program) -> None:
    report(cluster, "web-0", "192.168.7.8", "192.168.7.9")

    assert machine(read(inventory), "web-0").vm.addresses == ()
    assert machine(read(inventory, "--trust-agent"), "web-0").vm.addresses == (
        "192.168.7.8",
        "192.168.7.9",
    )


def test_agent_counts_only_where_cloud_init_gives_no_address(
    cluster: Cluster, inventory: Program
) -> None:
    """Or else its neighbour could report an address that it does not report while it is off."""
    cluster.guest("web-0").reported = interfaces("192.168.7.9")

    assert machine(read(inventory, "--trust-agent"), "web-0").vm.addresses == ("10.0.0.100",)


def test_guest_cannot_take_the_address_of_another(cluster: Cluster, inventory: Program) -> None:
    report(cluster, "web-0", "10.0.0.102", "192.168.7.1", "192.168.7.2")
    report(cluster, "idle", "192.168.7.2")

    ended = inventory.run("--trust-agent")

    fleet = read_fleet_file(ended.printed)
    assert machine(fleet, "web-0").vm.addresses == ("192.168.7.1",)
    assert machine(fleet, "db-0").vm.addresses == ("10.0.0.102",)
    assert machine(fleet, "idle").vm.addresses == ()
    assert "web-0 reports 10.0.0.102, which is not only its own" in ended.said.splitlines()


def test_guest_cannot_hide_an_address_inside_ipv6(cluster: Cluster, inventory: Program) -> None:
    report(cluster, "web-0", "::ffff:10.0.0.102", "::ffff:127.0.0.1", "::ffff:192.168.7.1")

    fleet = read(inventory, "--trust-agent")

    assert machine(fleet, "web-0").vm.addresses == ("192.168.7.1",)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"class": "Unsupported"}},
        ["text", {"ip-addresses": "text"}, {"ip-addresses": ["text", {"ip-address": 7}]}],
        [{"ip-addresses": [{"ip-address": 'x"\n[[host]]\nname="evil'}]}],
    ],
)
def test_guest_cannot_break_the_inventory(
    cluster: Cluster, inventory: Program, answer: object
) -> None:
    del cluster.guest("web-0").config["ipconfig0"]
    cluster.guest("web-0").reported = answer

    assert machine(read(inventory, "--trust-agent"), "web-0").vm.addresses == ()


def test_guest_cannot_report_without_end(cluster: Cluster, inventory: Program) -> None:
    report(cluster, "web-0", *(f"192.168.7.{number}" for number in range(1, 200)))

    assert len(machine(read(inventory, "--trust-agent"), "web-0").vm.addresses) == 16


def test_agent_that_does_not_run_is_left_out(cluster: Cluster, inventory: Program) -> None:
    for name in ("web-0", "web-1", "db-0", "idle"):
        del cluster.guest(name).config["ipconfig0"]
    cluster.guest("idle").stop()
    cluster.guest("db-0").config["agent"] = "0"

    ended = inventory.run("--trust-agent")

    assert ended.status == 0
    assert [line.partition(":")[0] for line in ended.said.splitlines()] == [
        "web-0 reports no addresses",
        "web-1 reports no addresses",
    ]


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ("set.a;set.b", '"idle" needs one tag set.NAME, and has 2'),
        ("ud.1", '"idle" needs one tag set.NAME, and has 0'),
        ("set.a;ud.x", '"idle" has the tag "ud.x" besides another, or no number'),
        ("set.a;ud.1;ud.2", '"idle" has the tag "ud.2" besides another, or no number'),
    ],
)
def test_contradictory_tags_print_nothing(
    cluster: Cluster, inventory: Program, tags: str, reason: str
) -> None:
    cluster.guest("idle").config["tags"] = tags

    ended = inventory.run()

    assert (ended.status, ended.printed, ended.last_line) == (1, "", reason)


def test_failure_in_the_middle_prints_nothing(cluster: Cluster, inventory: Program) -> None:
    cluster.api.fail("GET /nodes/pve-3/", refuse(595, "No route to host"))

    ended = inventory.run()

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == "Proxmox VE answers 595: No route to host"


def test_token_that_sees_nothing_is_a_failure(cluster: Cluster, inventory: Program) -> None:
    cluster.guests.clear()

    ended = inventory.run()

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == "the token sees no virtual machine; it needs VM.Audit on /vms"


def test_two_machines_of_one_name_print_nothing(cluster: Cluster, inventory: Program) -> None:
    cluster.guests[300] = PveGuest(vmid=300, name="WEB-0", config=config(300))

    ended = inventory.run()

    assert (ended.status, ended.printed) == (1, "")
    assert ended.last_line == 'several virtual machines are named "web-0"; rename all but one'
