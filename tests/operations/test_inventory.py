import tomllib
from dataclasses import replace

import pytest

from forewarn.domain.errors import (
    DomainOutOfRangeError,
    InvalidNameError,
    NameTakenError,
    UnknownScopeError,
    UnknownVirtualMachineError,
)
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology
from forewarn.files.fleet import FleetMistakesError, examine_fleet, read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import (
    EventOrder,
    complete_all_events,
    create_events,
    start_event,
)
from forewarn.operations.inventory import (
    FleetChange,
    apply_fleet,
    find_vm,
    plan_fleet,
    remove_vm,
)
from forewarn.operations.safeguards import (
    ApplyOptions,
    EmptyFleetError,
    TooManyRemovalsError,
    VirtualMachineBusyError,
)
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventType

TERMINATE_NOTICE = "between 5 and 15 minutes; only scale sets have this setting"


def declare(store: Store, operator: Context, text: str, **options: int) -> FleetChange:
    chosen = ApplyOptions(
        prune=bool(options.get("prune")),
        skip_busy=bool(options.get("skip_busy")),
        allow_removals=options.get("allow_removals", 0),
    )
    fleet = read_fleet_file(text)
    return store.write(lambda tx: apply_fleet(tx, operator, fleet, options=chosen))


def machines(*numbers: int) -> str:
    return "".join(f'[[virtual_machine]]\nname = "vm-{number}"\n' for number in numbers)


def topology(store: Store) -> Topology:
    return store.read(lambda reading: reading.topology())


def freeze(store: Store, operator: Context, *names: str) -> None:
    order = EventOrder(event_type=EventType.FREEZE, resources=names)
    store.write(lambda tx: create_events(tx, operator, order))


def complete_everything(tx: Transaction, operator: Context) -> None:
    for event in tx.events_in_flight():
        start_event(tx, operator, event.event_id)
    complete_all_events(tx, operator)


def test_machines_get_the_least_filled_update_domain_and_an_id(fleet: Store) -> None:
    vms = topology(fleet).virtual_machines

    assert [vm.update_domain for vm in vms.values()] == [0, 1, 0, 0]
    assert all(vm.vm_id for vm in vms.values())


def test_applying_twice_changes_nothing(fleet: Store, operator: Context) -> None:
    before = topology(fleet)

    change = declare(fleet, operator, '[[virtual_machine]]\nname = "solo"\n')

    assert change == FleetChange()
    assert topology(fleet) == before


def test_declared_machines_are_added_and_changed_and_the_rest_stays(
    fleet: Store, operator: Context
) -> None:
    change = declare(
        fleet,
        operator,
        '[[virtual_machine]]\nname = "web-0"\navailability_set = "web"\nhost = "kvm-9"\n'
        '[[virtual_machine]]\nname = "web-2"\navailability_set = "web"\n',
    )

    vms = topology(fleet).virtual_machines
    assert (change.added, change.changed, change.removed) == (("web-2",), ("web-0",), ())
    assert list(vms) == ["web-0", "web-1", "batch-0", "solo", "web-2"]
    assert (vms[VmName("web-0")].host, vms[VmName("web-2")].update_domain) == ("kvm-9", 2)


def test_pruning_leaves_only_what_is_declared(fleet: Store, operator: Context) -> None:
    alone = '[[virtual_machine]]\nname = "solo"\n'
    change = declare(fleet, operator, alone, prune=True, allow_removals=3)

    after = topology(fleet)
    assert change.removed == ("web-0", "web-1", "batch-0")
    assert list(after.scopes) == ["virtual-machine/solo"]
    assert not after.hosts


def test_placement_groups_follow_their_scale_set(fleet: Store, operator: Context) -> None:
    change = declare(fleet, operator, '[[scale_set]]\nname = "batch"\nterminate_notice = "9m"\n')

    scopes = topology(fleet).scopes
    assert change.changed_scopes == ("scale-set/batch", "scale-set/batch/pg1")
    notices = {
        str(scope.policy.terminate_notice) for id_, scope in scopes.items() if "batch" in id_
    }
    assert notices == {"0:09:00"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[[virtual_machine]]\nname = "a"\navailability_set = "none"\n', UnknownScopeError),
        (
            '[[virtual_machine]]\nname = "a"\nscale_set = "x"\nplacement_group = "y"\n',
            UnknownScopeError,
        ),
        ('[[virtual_machine]]\nname = "a"\n[[virtual_machine]]\nname = "A"\n', NameTakenError),
        ('[[virtual_machine]]\nname = "SOLO"\n', NameTakenError),
        ('[[host]]\nname = "h"\n[[host]]\nname = "h"\n', NameTakenError),
        (
            '[[virtual_machine]]\nname = "a"\navailability_set = "web"\nupdate_domain = 3\n',
            DomainOutOfRangeError,
        ),
    ],
)
def test_fleet_that_cannot_be_changes_nothing(
    fleet: Store, operator: Context, text: str, error: type[Exception]
) -> None:
    before = topology(fleet)

    with pytest.raises(error):
        declare(fleet, operator, text)

    assert topology(fleet) == before


def test_every_mistake_of_a_declaration_is_told_at_once(fleet: Store, operator: Context) -> None:
    text = (
        '[[availability_set]]\nname = "none"\nupdate_domains = 0\nfault_domains = 9999\n'
        '[[scale_set]]\nname = "batch"\nterminate_notice = "1m"\n'
        '[[cloud_service]]\nname = "shop"\n'
        '[[virtual_machine]]\nname = "a"\navailability_set = "none"\n'
        '[[virtual_machine]]\nname = "b"\navailability_set = "nowhere"\n'
        '[[virtual_machine]]\nname = "c"\navailability_set = "web"\nupdate_domain = 7\n'
        '[[virtual_machine]]\nname = "C"\ncloud_service = "shop"\n'
        '[[virtual_machine]]\nname = "d e"\naddresses = ["1.2.3", "10.0.0.1"]\n'
        '[[virtual_machine]]\nname = "SOLO"\naddresses = ["10.0.0.1"]\ncolour = 1\n'
    )
    declared = examine_fleet(tomllib.loads(text))

    with pytest.raises(FleetMistakesError) as refused:
        fleet.write(lambda tx: apply_fleet(tx, operator, declared))

    assert list(map(str, refused.value.mistakes)) == [
        "colour of SOLO: unknown key.",
        "More than one virtual machine is called 'c'; names are not case-sensitive.",
        str(InvalidNameError("virtual machine", "d e")),
        "More than one set or virtual machine is called 'SOLO'; names are not case-sensitive.",
        "update_domains of availability-set/none must be 1 to 1000.",
        "fault_domains of availability-set/none must be 1 to 1000.",
        f"terminate_notice of scale-set/batch must be {TERMINATE_NOTICE}.",
        "b belongs to availability-set/nowhere, which is not declared.",
        "c has update domain 7; valid numbers are 0 to 2.",
        "C belongs to a cloud service and must be called ROLE_IN_NUMBER, such as FrontEnd_IN_0.",
        "The address '1.2.3' of d e is not a valid IP address.",
        "The address '10.0.0.1' of SOLO already belongs to d e.",
    ]


def test_machine_in_an_event_cannot_be_moved_or_removed(fleet: Store, operator: Context) -> None:
    freeze(fleet, operator, "web-0")

    with pytest.raises(VirtualMachineBusyError, match=r"web-0 has events in flight \(0000"):
        fleet.write(lambda tx: remove_vm(tx, operator, "web-0"))
    with pytest.raises(VirtualMachineBusyError):
        declare(fleet, operator, '[[virtual_machine]]\nname = "web-0"\n')


def test_idle_machine_is_removed_with_its_scope(fleet: Store, operator: Context) -> None:
    fleet.write(lambda tx: remove_vm(tx, operator, "SOLO"))

    after = topology(fleet)
    assert VmName("solo") not in after.virtual_machines
    assert ScopeId("virtual-machine/solo") not in after.scopes


def test_machine_that_joins_a_scope_reads_a_higher_number(fleet: Store, operator: Context) -> None:
    freeze(fleet, operator, "web-0")
    solo = ScopeId("virtual-machine/web-1")
    declare(fleet, operator, '[[virtual_machine]]\nname = "web-1"\n')

    document = fleet.read(lambda reading: reading.document(solo))

    assert document.document_incarnation == 2


def test_machine_that_moves_under_its_name_in_another_case_reads_higher_numbers(
    fleet: Store, operator: Context
) -> None:
    freeze(fleet, operator, "web-1")
    renamed = read_fleet_file(
        """
        [[availability_set]]
        name = "web"
        update_domains = 3
        [[virtual_machine]]
        name = "web-1"
        availability_set = "web"
        host = "kvm-1"
        [[virtual_machine]]
        name = "WEB-0"
        """
    )
    pruning = ApplyOptions(prune=True, allow_removals=3)

    fleet.write(lambda tx: apply_fleet(tx, operator, renamed, options=pruning))

    alone = ScopeId("virtual-machine/WEB-0")
    assert fleet.read(lambda reading: reading.document(alone)).document_incarnation == 2


def test_machine_that_left_reads_a_higher_number_when_it_comes_back_elsewhere(
    fleet: Store, operator: Context
) -> None:
    freeze(fleet, operator, "solo")
    fleet.write(lambda tx: complete_everything(tx, operator))
    left = fleet.read(lambda reading: reading.document(ScopeId("virtual-machine/solo")))
    fleet.write(lambda tx: remove_vm(tx, operator, "solo"))

    joining = '[[virtual_machine]]\nname = "solo"\navailability_set = "web"\n'
    declare(fleet, operator, f'[[availability_set]]\nname = "web"\nupdate_domains = 3\n{joining}')

    shared = fleet.read(lambda reading: reading.document(ScopeId("availability-set/web")))
    assert shared.document_incarnation > left.document_incarnation


def test_machine_that_joins_a_scope_above_all_that_was_ever_read_changes_nothing(
    fleet: Store, operator: Context
) -> None:
    freeze(fleet, operator, "web-0")
    freeze(fleet, operator, "solo")
    fleet.write(lambda tx: complete_everything(tx, operator))
    freeze(fleet, operator, "web-0")
    fleet.write(lambda tx: remove_vm(tx, operator, "solo"))
    before = fleet.read(lambda reading: reading.document(ScopeId("availability-set/web")))

    joining = '[[virtual_machine]]\nname = "new"\navailability_set = "web"\n'
    declare(fleet, operator, f'[[availability_set]]\nname = "web"\nupdate_domains = 3\n{joining}')

    after = fleet.read(lambda reading: reading.document(ScopeId("availability-set/web")))
    assert after == before


def test_machine_is_found_in_any_case(fleet: Store) -> None:
    known = topology(fleet)

    assert find_vm(known, "WEB-0") == find_vm(known, "web-0")
    with pytest.raises(UnknownVirtualMachineError):
        find_vm(known, "web-9")


def test_change_of_the_fleet_is_audited(fleet: Store, operator: Context) -> None:
    declare(fleet, replace(operator, who="bob"), '[[virtual_machine]]\nname = "new"\n')

    entry = fleet.read(lambda reading: reading.audit())[-1]

    assert (entry.who, entry.action) == ("bob", "fleet apply")
    assert entry.subject == "1 added, 0 changed, 0 removed, 0 scopes changed"


def test_plan_tells_what_applying_would_change_and_writes_nothing(
    fleet: Store, operator: Context
) -> None:
    text = '[[virtual_machine]]\nname = "solo"\nzone = "1"\n[[virtual_machine]]\nname = "new"\n'
    before = topology(fleet)
    declared, prune = read_fleet_file(text), ApplyOptions(prune=True)

    plan = fleet.read(lambda reading: plan_fleet(reading, operator, declared, prune))

    assert topology(fleet) is before
    assert plan.change == declare(fleet, operator, text, prune=True, allow_removals=3)
    assert (plan.change.added, plan.change.changed) == (("new",), ("solo",))
    assert plan.change.needed_removals == 3


def test_plan_refuses_what_applying_would(fleet: Store, operator: Context) -> None:
    freeze(fleet, operator, "web-0")
    text = '[[virtual_machine]]\nname = "web-0"\n'

    with pytest.raises(VirtualMachineBusyError):
        fleet.read(lambda reading: plan_fleet(reading, operator, read_fleet_file(text)))


def test_plan_is_made_anew_when_the_fleet_has_changed_since(
    fleet: Store, operator: Context
) -> None:
    declared = read_fleet_file('[[virtual_machine]]\nname = "first"\n')
    plan = fleet.read(lambda reading: plan_fleet(reading, operator, declared))
    declare(fleet, operator, '[[virtual_machine]]\nname = "second"\n')

    fleet.write(lambda tx: apply_fleet(tx, operator, declared, plan=plan))

    assert {"first", "second"} <= topology(fleet).virtual_machines.keys()


def test_plan_is_made_anew_when_a_machine_has_got_into_an_event_since(
    fleet: Store, operator: Context
) -> None:
    declared = read_fleet_file('[[virtual_machine]]\nname = "web-0"\n')
    skipping = ApplyOptions(skip_busy=True)
    plan = fleet.read(lambda reading: plan_fleet(reading, operator, declared, skipping))
    freeze(fleet, operator, "web-0")

    change = fleet.write(
        lambda tx: apply_fleet(tx, operator, declared, options=skipping, plan=plan)
    )

    assert (plan.change.changed, change.changed) == (("web-0",), ())
    assert [skipped.vm for skipped in change.skipped] == ["web-0"]


def test_scopes_that_come_back_in_great_number_go_on_counting(
    store: Store, operator: Context
) -> None:
    many = machines(*range(150))
    declare(store, operator, many)
    freeze(store, operator, "vm-7")
    store.write(lambda tx: complete_everything(tx, operator))
    shown = store.read(lambda reading: reading.document(ScopeId("virtual-machine/vm-7")))
    other = '[[virtual_machine]]\nname = "other"\n'
    declare(store, operator, other, prune=True, allow_removals=150)

    declare(store, operator, many)

    again = store.read(lambda reading: reading.documents())
    back = [again[ScopeId(f"virtual-machine/vm-{number}")] for number in range(150)]
    assert all(each.document_incarnation > shown.document_incarnation for each in back)


def test_many_that_join_one_scope_read_a_higher_number_than_each_has_read(
    store: Store, operator: Context
) -> None:
    declare(store, operator, machines(*range(150)))
    freeze(store, operator, "vm-149")
    store.write(lambda tx: complete_everything(tx, operator))
    shown = store.read(lambda reading: reading.document(ScopeId("virtual-machine/vm-149")))

    together = machines(*range(150)).replace("\n[[", '\navailability_set = "web"\n[[')
    declare(
        store,
        operator,
        f'[[availability_set]]\nname = "web"\n{together}availability_set = "web"\n',
    )

    web = store.read(lambda reading: reading.document(ScopeId("availability-set/web")))
    assert web.document_incarnation > shown.document_incarnation


def test_plan_that_was_made_and_prepared_before_is_carried_out(
    fleet: Store, operator: Context
) -> None:
    declared = read_fleet_file('[[virtual_machine]]\nname = "new"\n')
    plan = fleet.read(lambda reading: plan_fleet(reading, operator, declared))
    prepared = fleet.read(lambda reading: reading.prepare_topology(plan.after))

    change = fleet.write(
        lambda tx: apply_fleet(tx, operator, declared, plan=replace(plan, prepared=prepared))
    )

    assert change == plan.change
    assert fleet.read(lambda reading: reading.topology()) is plan.after


def test_machine_in_an_event_is_skipped_and_everything_else_applied(
    fleet: Store, operator: Context
) -> None:
    freeze(fleet, operator, "web-0", "web-1")
    text = (
        '[[virtual_machine]]\nname = "web-0"\navailability_set = "web"\nhost = "kvm-9"\n'
        'zone = "3"\n'
        '[[virtual_machine]]\nname = "web-1"\navailability_set = "web"\nhost = "kvm-1"\n'
        'zone = "1"\n'
        '[[virtual_machine]]\nname = "solo"\nhost = "kvm-9"\n'
    )

    change = declare(fleet, operator, text, skip_busy=True)

    vms = topology(fleet).virtual_machines
    (skipped,) = change.skipped
    assert (skipped.vm, len(skipped.event_ids)) == ("web-0", 1)
    assert "web-0 has events in flight (0000" in skipped.reason
    assert change.changed == ("web-1", "solo")
    assert (vms[VmName("web-0")].host, vms[VmName("web-0")].zone) == ("kvm-0", "")


def test_machine_in_an_event_is_not_pruned_but_skipped_with_its_set_and_host(
    fleet: Store, operator: Context
) -> None:
    declare(fleet, operator, '[[host]]\nname = "kvm-0"\nlabels = { rack = "a" }\n')
    freeze(fleet, operator, "web-0", "batch-0", "solo")
    before = topology(fleet)

    change = declare(
        fleet,
        operator,
        '[[availability_set]]\nname = "db"\n[[virtual_machine]]\nname = "db-0"\n',
        prune=True,
        skip_busy=True,
        allow_removals=1,
    )

    after = topology(fleet)
    assert change.removed == ("web-1",)
    assert [each.vm for each in change.skipped] == ["web-0", "batch-0", "solo"]
    for name in ("web-0", "batch-0", "solo"):
        vm = before.virtual_machines[VmName(name)]
        assert after.virtual_machines[VmName(name)] == vm
        assert after.scopes[vm.scope_id] == before.scopes[vm.scope_id]
    assert after.hosts == {name: host for name, host in before.hosts.items() if name == "kvm-0"}


@pytest.mark.parametrize(
    ("there", "gone", "needed"), [(10, 1, 0), (10, 2, 2), (210, 20, 0), (210, 21, 21)]
)
def test_many_removals_have_to_be_allowed_by_number(
    store: Store, operator: Context, there: int, gone: int, needed: int
) -> None:
    declare(store, operator, machines(*range(there)))
    rest = machines(*range(gone, there))

    if needed:
        with pytest.raises(
            TooManyRemovalsError, match=f"remove {gone} of {there} virtual machines"
        ):
            declare(store, operator, rest, prune=True, allow_removals=needed - 1)
        assert len(topology(store).virtual_machines) == there

    assert len(declare(store, operator, rest, prune=True, allow_removals=needed).removed) == gone


def test_declaration_without_machines_never_empties_a_fleet(
    fleet: Store, operator: Context
) -> None:
    with pytest.raises(EmptyFleetError, match="never removes all 4"):
        declare(fleet, operator, '[[host]]\nname = "h"\n', prune=True, allow_removals=1000)

    assert len(topology(fleet).virtual_machines) == 4


def test_sets_and_hosts_without_machines_are_pruned_by_an_empty_declaration(
    store: Store, operator: Context
) -> None:
    declare(store, operator, '[[host]]\nname = "h"\n[[scale_set]]\nname = "s"\n')

    declare(store, operator, "", prune=True)

    assert not topology(store).scopes
    assert not topology(store).hosts


def test_instances_of_two_services_with_one_name_are_told_how_to_be_called(
    store: Store, operator: Context
) -> None:
    text = "".join(
        f'[[cloud_service]]\nname = "{service}"\n'
        f'[[virtual_machine]]\nname = "Web_IN_0"\ncloud_service = "{service}"\n'
        for service in ("shop", "blog")
    )

    with pytest.raises(NameTakenError, match=r"Use shop.Web_IN_0 and blog.Web_IN_0\.$"):
        declare(store, operator, text)


@pytest.mark.parametrize(
    ("declared", "undeclared"),
    [("", ()), ('[[host]]\nname = "kvm-7"\n', ("kvm-66",))],
    ids=["no hosts declared", "hosts declared"],
)
def test_new_host_that_is_not_declared_is_noted_if_others_are(
    fleet: Store, operator: Context, declared: str, undeclared: tuple[str, ...]
) -> None:
    placed = "".join(
        f'[[virtual_machine]]\nname = "vm-{host}"\nhost = "{host}"\n'
        for host in ("kvm-0", "kvm-7", "kvm-66")
    )

    change = fleet.write(
        lambda tx: apply_fleet(tx, operator, read_fleet_file(f"{declared}{placed}"))
    )

    assert change.undeclared_hosts == undeclared
