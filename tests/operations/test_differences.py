import pytest
from tests.operations.conftest import FLEET

from forewarn.domain.topology import Topology
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.declaring import declare
from forewarn.operations.differences import Difference, FieldDifference, find_differences
from forewarn.ports.store import Store

SETS = '[[availability_set]]\nname = "web"\n[[scale_set]]\nname = "batch"\n'


def differences(before: str, after: str, operator: Context) -> tuple[Difference, ...]:
    empty = Topology(virtual_machines={}, scopes={}, hosts={})
    old = declare(empty, read_fleet_file(before), operator, prune=False)
    return find_differences(old, declare(old, read_fleet_file(after), operator, prune=True))


def said(found: tuple[Difference, ...]) -> list[str]:
    return [
        f"{each.alteration} {each.table} {each.name}"
        + "".join(f" {field.field}={field.before}>{field.after}" for field in each.fields)
        for each in found
    ]


def test_equal_fleets_do_not_differ(fleet: Store) -> None:
    topology = fleet.read(lambda reading: reading.topology())

    assert find_differences(topology, topology) == ()


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("", 'host = "kvm-1"', ["host=None>kvm-1"]),
        ('zone = "1"', 'zone = "2"', ["zone=1>2"]),
        ('addresses = ["10.0.0.1"]', "", ["addresses=['10.0.0.1']>None"]),
        (
            'labels = { a = "1", b = "2" }',
            'labels = { b = "3" }',
            ["labels.a=1>None", "labels.b=2>3"],
        ),
        ("", 'approval = "all"', ["approval=any>all"]),
        ('postpone_until = "1h"', "", ["postpone_until=1h>0s"]),
        ('notice = "1h"', "", ["notice=1h>None"]),
        (
            "",
            'availability_set = "web"',
            ["availability_set=None>web", "update_domain=None>0", "fault_domain=None>0"],
        ),
        (
            'availability_set = "web"\nupdate_domain = 1',
            'scale_set = "batch"\nplacement_group = "a"',
            [
                "availability_set=web>None",
                "update_domain=1>0",
                "scale_set=None>batch",
                "placement_group=None>a",
            ],
        ),
    ],
)
def test_changed_machine_is_told_field_by_field(
    operator: Context, before: str, after: str, found: list[str]
) -> None:
    vm = '[[virtual_machine]]\nname = "a"\nvm_id = "x"\n'

    told = said(differences(SETS + vm + before, SETS + vm + after, operator))

    (machine,) = [line for line in told if "virtual_machine" in line]
    assert sorted(machine.split()[3:]) == sorted(" ".join(found).split())


def test_settings_of_a_set_are_told_once_and_not_of_its_machines(operator: Context) -> None:
    vms = '[[virtual_machine]]\nname = "a"\nscale_set = "batch"\nplacement_group = "g"\n'

    told = differences(SETS + vms, SETS + 'approval = "leader"\n' + vms, operator)

    assert told == (
        Difference(
            table="scale_set",
            name="batch",
            alteration=told[0].alteration,
            fields=(FieldDifference(field="approval", before="any", after="leader"),),
        ),
    )


def test_empty_sets_and_hosts_are_told(operator: Context) -> None:
    before = SETS + '[[host]]\nname = "kvm-1"\nlabels = { rack = "a" }\n[[host]]\nname = "kvm-2"\n'
    after = '[[cloud_service]]\nname = "shop"\n[[host]]\nname = "kvm-1"\nlabels = { rack = "b" }\n'

    assert said(differences(before, after, operator)) == [
        "added cloud_service shop",
        "removed availability_set web",
        "removed scale_set batch",
        "changed host kvm-1 labels.rack=a>b",
        "removed host kvm-2",
    ]


def test_machines_that_come_and_go_are_told_without_their_fields(operator: Context) -> None:
    before = FLEET
    after = FLEET.replace('name = "solo"', 'name = "new"')

    assert said(differences(before, after, operator)) == [
        "added virtual_machine new",
        "removed virtual_machine solo",
    ]
