"""Who comes to which host when the fleet changes, and what keeps them from there.

Every change of the fleet is checked here before it is written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from forewarn.domain.arrivals import HostUnderWayError, arrivals, find_joining, join, refusals
from forewarn.domain.errors import ConflictError
from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.names import HostName, VmName
from forewarn.domain.phrases import say_moment, say_names
from forewarn.domain.topology import Closure, Topology
from forewarn.files.fleet import DeclaredVirtualMachine, Fleet
from forewarn.operations.context import Context
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId


class HostClosedError(ConflictError):
    """A host that takes no more virtual machines."""

    def __init__(self, host: HostName, closure: Closure, vms: Iterable[VmName]) -> None:
        self.host = host
        self.vms = tuple(vms)
        self.vm = self.vms[0]
        self.since = closure.closed_at
        reason = f": {closure.closed_reason.rstrip('.')}" if closure.closed_reason else ""
        super().__init__(
            f"{host} has been closed to new virtual machines since "
            f"{say_moment(closure.closed_at)}{reason}. Choose another host for "
            f"{say_names(self.vms)}, open {host}, or record an existing placement with `as_is`."
        )


def find_misplaced(
    reading: Reading, context: Context, before: Topology, after: Topology
) -> dict[VmName, HostClosedError | HostUnderWayError]:
    """Return the virtual machines that *after* puts on hosts that do not take them, and why."""
    found = _refused_placements(reading, context, before, after)
    return {vm: refusal for refusal in found for vm in refusal.vms}


def tell_arrivals(
    tx: Transaction, context: Context, before: Topology, after: Topology
) -> tuple[ScheduledEvent, ...]:
    """Announce what is about to happen on their new host to those who have come there."""
    if not _is_any_host_in_maintenance(tx):
        return ()
    snapshot = replace(look(tx, context), topology=before)
    speed = context.rules.speed
    events = tuple(
        join(each, after, event_id=context.new_id(), now=context.now, speed=speed)
        for each in find_joining(snapshot, after)
    )
    deeds = [
        Deed(
            event=event, what=Happening(event.event_status.lower()), detail=f"came to {event.host}"
        )
        for event in events
    ]
    record_events(tx, context, deeds)
    return events


def record_moves(
    tx: Transaction,
    context: Context,
    before: Topology,
    after: Topology,
    causes: Mapping[VmName, EventId],
) -> None:
    """Store that virtual machines are on other hosts, where the impacts of events took them."""
    if after is before:
        return
    tx.put_topology(after)
    for vm, event_id in causes.items():
        if move := say_move(before, after, vm):
            origin, host = before.virtual_machines[vm].host, after.virtual_machines[vm].host
            earlier = json.loads(tx.setting(_moved(vm)) or "[null, null]")
            origin = earlier[0] if earlier[1] == origin else origin
            tx.put_setting(_moved(vm), json.dumps([origin, host]))
            record_audit(
                tx,
                context,
                "vm move",
                vm,
                detail=f"{move}, as reported by the executor of {event_id}",
            )


def leave_moved(reading: Reading, fleet: Fleet) -> tuple[Fleet, tuple[str, ...]]:
    """Return *fleet* with machines where impacts have moved them, and a remark on each of these.

    Only where it has them where they were before: whoever wrote that may not know of the move.
    """
    known = reading.topology().virtual_machines
    kept: dict[VmName, DeclaredVirtualMachine] = {}
    remarks: list[str] = []
    for each in fleet.virtual_machines:
        vm, said = known.get(each.vm.name), each.vm.host
        if vm is None or vm.host == said:
            continue
        if reading.setting(_moved(vm.name)) == json.dumps([said, vm.host]):
            kept[vm.name] = replace(each, vm=replace(each.vm, host=vm.host))
            remarks.append(
                f"{vm.name} stays on {vm.host}, where its executor moved it; the file places it "
                f"on {said or 'no host'}."
            )
    machines = tuple(kept.get(each.vm.name, each) for each in fleet.virtual_machines)
    return replace(fleet, virtual_machines=machines), tuple(remarks)


def _moved(vm: VmName) -> str:
    """Return the setting that says from where to where impacts have moved *vm*."""
    return f"moved {vm}"


def say_move(before: Topology, after: Topology, name: VmName) -> str:
    """Return how a virtual machine changed its host, or nothing if it did not."""
    known, new = before.virtual_machines.get(name), after.virtual_machines.get(name)
    if known is None or new is None or new.host == known.host:
        return ""
    return f"{name} moved{f' from {known.host}' if known.host else ''} to {new.host}"


def _refused_placements(
    reading: Reading, context: Context, before: Topology, after: Topology
) -> Iterator[HostClosedError | HostUnderWayError]:
    coming = arrivals(before, after)
    for host, vms in coming.items():
        closure = after.hosts[host].closure
        if closure is not None:
            yield HostClosedError(host, closure, vms)
    if coming and _is_any_host_in_maintenance(reading):
        snapshot = replace(look(reading, context), topology=before)
        yield from refusals(find_joining(snapshot, after), snapshot, after)


def _is_any_host_in_maintenance(reading: Reading) -> bool:
    # Something may still run on a host whose operation is over.
    return bool(reading.operations_under_way())
