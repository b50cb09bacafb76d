"""Who comes to which host, and what keeps them from there."""

from dataclasses import replace

import pytest

from forewarn.domain.amending import amend
from forewarn.domain.arrivals import arrivals
from forewarn.domain.errors import UnknownHostError
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import NO_FLEET, Host, Topology
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.hosts import HostInUseError, close_host, open_host, remove_host
from forewarn.operations.inventory import FleetChange, apply_fleet, plan_fleet, remove_vm
from forewarn.operations.maintenances import abort_maintenance, start_maintenance
from forewarn.operations.placements import HostClosedError, record_moves, say_move
from forewarn.operations.safeguards import ApplyOptions, HostBusyError
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType

NEW = '[[virtual_machine]]\nname = "new"\nhost = "kvm-1"\n'
MOVED = '[[virtual_machine]]\nname = "solo"\nhost = "kvm-1"\n'


def declare(
    store: Store, context: Context, text: str, *, as_is: bool = False, prune: bool = False
) -> FleetChange:
    fleet = read_fleet_file(text)
    options = ApplyOptions(prune=prune, as_is=as_is, allow_removals=9)
    return store.write(lambda tx: apply_fleet(tx, context, fleet, options=options))


def close(store: Store, context: Context, name: str, reason: str = "new kernel.") -> Host:
    return store.write(lambda tx: close_host(tx, context, name, reason=reason))


def topology(store: Store) -> Topology:
    return store.read(lambda reading: reading.topology())


def test_arrivals_are_those_who_are_new_or_were_elsewhere(fleet: Store, operator: Context) -> None:
    before = topology(fleet)
    declare(
        fleet,
        operator,
        f'{NEW}[[virtual_machine]]\nname = "web-0"\navailability_set = "web"\nhost = "kvm-1"\n'
        '[[virtual_machine]]\nname = "web-1"\navailability_set = "web"\nhost = "kvm-1"\n'
        '[[virtual_machine]]\nname = "nowhere"\n',
    )

    assert arrivals(before, topology(fleet)) == {"kvm-1": ["web-0", "new"]}


def test_leaving_a_host_is_no_arrival(fleet: Store, operator: Context) -> None:
    before = topology(fleet)
    declare(fleet, operator, '[[virtual_machine]]\nname = "web-0"\navailability_set = "web"\n')
    fleet.write(lambda tx: remove_vm(tx, operator, "web-1"))

    assert arrivals(before, topology(fleet)) == {}


@pytest.mark.parametrize("text", [NEW, MOVED])
def test_closed_host_takes_no_virtual_machine(fleet: Store, operator: Context, text: str) -> None:
    close(fleet, operator, "KVM-1")
    before = topology(fleet)

    with pytest.raises(HostClosedError) as refused:
        declare(fleet, operator, text)

    vm = "new" if text == NEW else "solo"
    assert str(refused.value) == (
        "kvm-1 has been closed to new virtual machines since 2026-01-05 08:00:00 GMT: new kernel. "
        f"Choose another host for {vm}, open kvm-1, or record an existing placement with `as_is`."
    )
    assert (refused.value.host, refused.value.vms) == ("kvm-1", (vm,))
    assert topology(fleet) is before
    with pytest.raises(HostClosedError):
        fleet.read(lambda reading: plan_fleet(reading, operator, read_fleet_file(text)))


def test_closed_host_without_a_reason_says_none(fleet: Store, operator: Context) -> None:
    close(fleet, operator, "kvm-1", reason="")

    with pytest.raises(HostClosedError, match=r"08:00:00 GMT\. Choose another"):
        declare(fleet, operator, NEW)


def test_machine_that_would_come_to_a_closed_host_is_skipped_and_the_rest_applied(
    fleet: Store, operator: Context
) -> None:
    close(fleet, operator, "kvm-1")
    before = topology(fleet).virtual_machines
    text = f'{NEW}{MOVED}zone = "3"\n[[virtual_machine]]\nname = "other"\nhost = "kvm-0"\n'
    options = ApplyOptions(skip_busy=True)

    change = fleet.write(
        lambda tx: apply_fleet(tx, operator, read_fleet_file(text), options=options)
    )

    after = topology(fleet).virtual_machines
    assert [skipped.vm for skipped in change.skipped] == ["solo", "new"]
    for skipped in change.skipped:
        assert "kvm-1 has been closed to new virtual machines" in skipped.reason
        assert "Choose another host for solo, new," in skipped.reason
        assert skipped.event_ids == ()
    assert change.added == ("other",)
    assert {**after} == {**before, VmName("other"): after[VmName("other")]}


def test_fact_is_not_refused_and_audited_as_one(fleet: Store, operator: Context) -> None:
    close(fleet, operator, "kvm-1")

    change = declare(fleet, operator, NEW, as_is=True)

    assert change.added == ("new",)
    assert fleet.read(lambda reading: reading.audit())[-1].detail == "existing placement recorded"


def test_closed_host_keeps_what_it_has_and_other_hosts_take_more(
    fleet: Store, operator: Context
) -> None:
    close(fleet, operator, "kvm-1")

    kept = '[[virtual_machine]]\nname = "web-1"\navailability_set = "web"\nhost = "kvm-1"\n'
    declare(fleet, operator, f'{kept}zone = "2"\n')
    declare(fleet, operator, NEW.replace("kvm-1", "kvm-0"))

    vms = topology(fleet).virtual_machines.values()
    assert [vm.name for vm in vms if vm.host == "kvm-1" and vm.zone == "2"] == ["web-1"]


def test_host_stays_closed_whatever_a_fleet_file_leaves_out(
    fleet: Store, operator: Context
) -> None:
    closed = close(fleet, operator, "kvm-1")

    declare(fleet, operator, '[[host]]\nname = "kvm-1"\nlabels = { rack = "a" }\n')
    assert topology(fleet).hosts[HostName("kvm-1")] == replace(closed, labels={"rack": "a"})
    declare(fleet, operator, '[[virtual_machine]]\nname = "solo"\nhost = "spare"\n', prune=True)

    hosts = topology(fleet).hosts
    assert {name: host.closure for name, host in hosts.items()} == {
        "kvm-1": closed.closure,
        "spare": None,
    }


def test_open_host_takes_virtual_machines_again(fleet: Store, operator: Context) -> None:
    close(fleet, operator, "kvm-1")

    opened = fleet.write(lambda tx: open_host(tx, operator, "kvm-1"))

    assert opened == Host(name=HostName("kvm-1"))
    assert declare(fleet, operator, NEW).added == ("new",)


def test_closing_again_keeps_since_when_and_replaces_the_reason(
    fleet: Store, operator: Context
) -> None:
    first = close(fleet, operator, "kvm-1")
    later = replace(operator, who="bob", now=operator.now.replace(hour=9))

    assert close(fleet, later, "kvm-1", reason="") == first
    again = close(fleet, later, "kvm-1", reason="broken fan")

    assert first.closure is not None
    assert again.closure == replace(first.closure, closed_reason="broken fan")
    assert first.closure.closed_by == "alice"


def test_closing_and_opening_are_audited_once(fleet: Store, operator: Context) -> None:
    for _ in range(2):
        close(fleet, operator, "kvm-1")
    for _ in range(2):
        fleet.write(lambda tx: open_host(tx, operator, "kvm-1"))

    entries = fleet.read(lambda reading: reading.audit(who="alice"))[-2:]
    assert [(each.action, each.subject, each.detail) for each in entries] == [
        ("host close", "kvm-1", "new kernel."),
        ("host open", "kvm-1", ""),
    ]


def test_unknown_host_is_neither_closed_nor_opened(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownHostError):
        close(fleet, operator, "kvm-9")
    with pytest.raises(UnknownHostError):
        fleet.write(lambda tx: open_host(tx, operator, "kvm-9"))


def test_empty_host_is_removed_also_if_it_is_closed(fleet: Store, operator: Context) -> None:
    declare(fleet, operator, '[[host]]\nname = "kvm-9"\n')
    close(fleet, operator, "kvm-9")

    fleet.write(lambda tx: remove_host(tx, operator, "KVM-9"))

    assert [*topology(fleet).hosts] == ["kvm-0", "kvm-1"]
    entry = fleet.read(lambda reading: reading.audit())[-1]
    assert (entry.action, entry.subject) == ("host remove", "kvm-9")


def test_host_with_machines_is_not_removed(fleet: Store, operator: Context) -> None:
    before = topology(fleet)

    with pytest.raises(HostInUseError) as refused:
        fleet.write(lambda tx: remove_host(tx, operator, "kvm-0"))

    assert (
        str(refused.value) == "kvm-0 still has virtual machines: web-0. Move or remove them first."
    )
    assert (refused.value.host, refused.value.vms) == ("kvm-0", ("web-0",))
    assert topology(fleet) is before
    with pytest.raises(UnknownHostError):
        fleet.write(lambda tx: remove_host(tx, operator, "kvm-7"))


def test_host_that_a_maintenance_needs_is_not_removed(fleet: Store, operator: Context) -> None:
    declare(fleet, operator, '[[host]]\nname = "kvm-9"\n')
    order = MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-9", "kvm-0"))
    begun = fleet.write(lambda tx: start_maintenance(tx, operator, order)).maintenance_id

    with pytest.raises(HostBusyError) as refused:
        fleet.write(lambda tx: remove_host(tx, operator, "kvm-9"))

    assert refused.value.maintenance_id == begun
    fleet.write(lambda tx: abort_maintenance(tx, operator, begun))
    fleet.write(lambda tx: remove_host(tx, operator, "kvm-9"))
    assert "kvm-9" not in topology(fleet).hosts


def test_host_of_which_no_maintenance_knows_is_removed(fleet: Store, operator: Context) -> None:
    declare(fleet, operator, '[[host]]\nname = "kvm-9"\n')
    order = MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-0",))
    fleet.write(lambda tx: start_maintenance(tx, operator, order))

    fleet.write(lambda tx: remove_host(tx, operator, "kvm-9"))

    assert "kvm-9" not in topology(fleet).hosts


def test_move_is_told_with_both_hosts_as_far_as_they_are_known(
    fleet: Store, operator: Context
) -> None:
    text = '[[virtual_machine]]\nname = "{}"\n{}'
    declare(fleet, operator, text.format("new", ""))
    before = topology(fleet)
    declare(fleet, operator, text.format("new", 'host = "kvm-1"\n'))
    after = topology(fleet)

    assert say_move(before, after, VmName("new")) == "new moved to kvm-1"
    assert say_move(before, after, VmName("web-0")) == ""
    assert say_move(before, after, VmName("nobody")) == ""
    assert say_move(NO_FLEET, after, VmName("new")) == ""


def test_only_machines_that_have_moved_are_in_the_audit(fleet: Store, operator: Context) -> None:
    before = topology(fleet)
    vm = before.virtual_machines[VmName("web-0")]
    after = amend(before, virtual_machines=[replace(vm, host=HostName("kvm-7"))])
    causes = {VmName("web-0"): EventId("E1"), VmName("web-1"): EventId("E1")}

    fleet.write(lambda tx: record_moves(tx, operator, before, after, causes))
    fleet.write(lambda tx: record_moves(tx, operator, after, after, causes))

    audit = fleet.read(lambda reading: reading.audit(limit=9))
    assert [entry.subject for entry in audit if entry.action == "vm move"] == ["web-0"]
    assert topology(fleet).virtual_machines[VmName("web-0")].host == "kvm-7"
