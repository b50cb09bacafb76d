"""The fleet of the demo is one that a Maintenance of its hosts can walk."""

from collections import defaultdict

from forewarn.cli.demonstration.fleet import HOSTS, MEMBERS, SILENT, fleet_file
from forewarn.files.fleet import read_fleet_file


def test_file_declares_every_member() -> None:
    fleet = read_fleet_file(fleet_file())

    assert [(each.vm.name, each.vm.host) for each in fleet.virtual_machines] == [
        (member.name, member.host) for member in MEMBERS.values()
    ]


def test_no_host_carries_two_update_domains_of_a_scope() -> None:
    carried = defaultdict(set)
    for each in read_fleet_file(fleet_file()).virtual_machines:
        carried[each.vm.host, each.vm.scope_id].add(each.vm.update_domain)

    assert all(len(domains) == 1 for domains in carried.values())
    assert len(HOSTS) == 4


def test_one_machine_says_nothing() -> None:
    assert {"batch_1"} == SILENT
