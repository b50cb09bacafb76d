"""The fleet: declaring it, changing it, and what may not change while an event is in flight."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from forewarn.domain.amending import amend
from forewarn.domain.errors import (
    UnknownVirtualMachineError,
)
from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.domain.topology import (
    FleetKeys,
    Topology,
    VirtualMachine,
)
from forewarn.files.fleet import Fleet
from forewarn.operations.context import Context
from forewarn.operations.declaring import declare, own_scope
from forewarn.operations.differences import Alteration, Difference, find_differences
from forewarn.operations.incarnations import keep_incarnations_rising, note_departures
from forewarn.operations.placements import find_misplaced, tell_arrivals
from forewarn.operations.recording import record_audit
from forewarn.operations.safeguards import (
    ApplyOptions,
    Busy,
    SkippedEntry,
    TooManyRemovalsError,
    check_not_emptied,
    find_busy,
    leave_as_is,
    needed_removals,
)
from forewarn.ports.entries import Membership
from forewarn.ports.store import PreparedTopology, Reading, Transaction

_USUAL_OPTIONS: Final = ApplyOptions()
_APPLY: Final = "fleet apply"
DISCOVER: Final = "fleet discover"
_MOST_LINES: Final = 10
"""How many differences that were discovered the audit tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """What a declaration changed, entry by entry; *changed_scopes* have other settings now.

    *needed_removals* is how many have to be allowed by number, 0 where they are few.
    *undeclared_hosts* are new, though a declaration that has hosts does not have them.
    """

    differences: tuple[Difference, ...] = ()
    changed_scopes: tuple[ScopeId, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    needed_removals: int = 0
    undeclared_hosts: tuple[HostName, ...] = ()

    @property
    def added(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.ADDED)

    @property
    def changed(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.CHANGED)

    @property
    def removed(self) -> tuple[VmName, ...]:
        return self._machines(Alteration.REMOVED)

    def _machines(self, alteration: Alteration) -> tuple[VmName, ...]:
        return tuple(
            VmName(each.name)
            for each in self.differences
            if each.table == "virtual_machine" and each.alteration is alteration
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a declaration makes of a fleet, before anything is written."""

    before: Topology
    after: Topology
    change: FleetChange
    prepared: PreparedTopology | None = None


def find_vm(topology: Topology, name: str) -> VirtualMachine:
    """Return the virtual machine called *name*, in any case, or refuse."""
    (vm,) = find_vms(topology, [name])
    return vm


def find_vms(topology: Topology, names: Iterable[str]) -> list[VirtualMachine]:
    """Return the virtual machines called *names*, in any case, or refuse the first unknown one."""
    found: list[VirtualMachine] = []
    for name in names:
        exact = topology.virtual_machines.get(VmName(name))
        vm = exact or topology.directory.by_name.get(name_key(name))
        if vm is None:
            raise UnknownVirtualMachineError(name)
        found.append(vm)
    return found


def apply_fleet(
    tx: Transaction,
    context: Context,
    fleet: Fleet,
    *,
    options: ApplyOptions = _USUAL_OPTIONS,
    action: str = _APPLY,
    plan: FleetPlan | None = None,
) -> FleetChange:
    """Make the fleet as declared. What is not declared stays, unless it is to be pruned.

    A *plan* that was made before need not be made while others wait, unless the fleet has changed.
    """
    before = tx.topology()
    is_stale = plan is None or plan.before is not before
    if plan is None or is_stale or _find_refused(tx, context, before, plan.after, options):
        plan = plan_fleet(tx, context, fleet, options)
    if plan.change.needed_removals > options.allow_removals:
        raise TooManyRemovalsError(plan.change.needed_removals, len(before.virtual_machines))
    after = plan.after
    if after.revision_of(before):
        note_departures(tx, before, after)
        tx.put_topology(after, plan.prepared)
        keep_incarnations_rising(tx, context, before, after)
        tell_arrivals(tx, context, before, after)
        _record_moves(tx, context, before, after)
        detail = _detail(action, plan.change, options)
        record_audit(tx, context, action, _subject(action, fleet, plan.change), detail=detail)
    return plan.change


def plan_fleet(
    reading: Reading, context: Context, fleet: Fleet, options: ApplyOptions = _USUAL_OPTIONS
) -> FleetPlan:
    """Return what `apply_fleet` would change, or refuse what cannot be.

    How many removals are allowed is not looked at, so that they can be seen before.
    """
    before = reading.topology()
    after = declare(before, fleet, context, prune=options.prune, remove=options.remove)
    check_not_emptied(fleet, before, options)
    skipped = Busy()
    # Without some machines, others may get update domains that are refused in turn.
    while refused := _find_refused(reading, context, before, after, options):
        if not options.skip_busy:
            refused.refuse()
        skipped |= refused
        rest = leave_as_is(fleet, before, skipped)
        after = declare(before, rest, context, prune=options.prune, remove=options.remove)
    change = _compare(before, after)
    needed = needed_removals(before, change.removed)
    change = replace(
        change,
        skipped=skipped.skipped(),
        needed_removals=needed,
        undeclared_hosts=_undeclared_hosts(before, after, fleet),
    )
    return FleetPlan(before=before, after=after, change=change)


def _undeclared_hosts(before: Topology, after: Topology, fleet: Fleet) -> tuple[HostName, ...]:
    if not fleet.hosts:  # all hosts are only implied
        return ()
    declared = {host.name for host in fleet.hosts}
    put = after.revision_of(before).put.hosts
    return tuple(name for name in put if name not in before.hosts and name not in declared)


def _find_refused(
    reading: Reading, context: Context, before: Topology, after: Topology, options: ApplyOptions
) -> Busy:
    """Return what cannot be where *after* has it, and why."""
    busy = find_busy(reading, before, after)
    if options.as_is:
        return busy
    return Busy(machines=find_misplaced(reading, context, before, after)) | busy


def remove_vm(tx: Transaction, context: Context, name: str) -> FleetChange:
    """Take a virtual machine out of the fleet."""
    before = tx.topology()
    vm = find_vm(before, name)
    gone = FleetKeys(virtual_machines=(vm.name,), scopes=own_scope(before, vm))
    after = amend(before, gone=gone)
    find_busy(tx, before, after).refuse()
    note_departures(tx, before, after)
    tx.put_topology(after)
    _record_moves(tx, context, before, after)
    record_audit(tx, context, "vm remove", vm.name)
    return _compare(before, after)


def _compare(before: Topology, after: Topology) -> FleetChange:
    return FleetChange(
        differences=find_differences(before, after),
        changed_scopes=tuple(
            scope_id
            for scope_id in after.revision_of(before).put.scopes
            if scope_id in before.scopes
        ),
    )


def _record_moves(tx: Transaction, context: Context, before: Topology, after: Topology) -> None:
    old, new, revision = before.virtual_machines, after.virtual_machines, after.revision_of(before)
    left = revision.gone.virtual_machines
    joined = (
        name
        for name in revision.put.virtual_machines
        if name not in old or old[name].scope_id != new[name].scope_id
    )
    # Who comes back in the same moment, under the same name in another case, has not left.
    moves = {**dict.fromkeys(left), **{name: new[name].scope_id for name in joined}}
    tx.put_memberships(
        Membership(vm=name, since=context.now, scope_id=scope_id)
        for name, scope_id in moves.items()
    )


def _detail(action: str, change: FleetChange, options: ApplyOptions) -> str:
    if action != DISCOVER:
        return "existing placement recorded" if options.as_is else ""
    lines = [str(each) for each in change.differences[:_MOST_LINES]]
    more = len(change.differences) - len(lines)
    return "; ".join([*lines, *([f"and {more} more"] if more else [])])


def _subject(action: str, fleet: Fleet, change: FleetChange) -> str:
    if action not in {_APPLY, DISCOVER}:  # of one machine, one host or one set
        vms, hosts, scopes = fleet.virtual_machines, fleet.hosts, fleet.scopes
        return (vms[0].vm if vms else hosts[0] if hosts else scopes[0]).name
    return (
        f"{len(change.added)} added, {len(change.changed)} changed, "
        f"{len(change.removed)} removed, {len(change.changed_scopes)} scopes changed"
    )
