"""Maintenances: an operator's intent over many virtual machines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from forewarn.domain.brakes import open_tasks
from forewarn.domain.errors import (
    ConflictError,
    EmptySelectionError,
    NotFoundError,
    PlanError,
    UnknownCanaryError,
    UnknownHostError,
    says,
)
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import (
    Failure,
    Standings,
    check_places,
    find_failures,
    find_standings,
    resolve,
)
from forewarn.domain.host_operation import HostOperation, OperationOutcome, end
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceOrder,
    Resolution,
    Step,
    abort,
    own_events,
    own_operations,
    pause,
    plan_errors,
    remaining_steps,
    resume,
    set_course,
)
from forewarn.domain.names import HostName, MaintenanceId, VmName, name_key
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceState, MaintenanceStatus
from forewarn.domain.task import Task, TaskState, say_task
from forewarn.domain.topology import Host, Topology, VirtualMachine
from forewarn.domain.walk import Stage, Walks, calendar_errors, find_state, walk_all
from forewarn.operations.context import Context
from forewarn.operations.gates import GateNotFoundError
from forewarn.operations.inventory import find_vms
from forewarn.operations.recording import record_audit
from forewarn.operations.scopes import find_scope_ids, find_scopes
from forewarn.operations.snapshots import look
from forewarn.operations.tasks import end_by_hand
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError

Labelled = TypeVar("Labelled", VirtualMachine, Host)


@says("Unknown maintenance {maintenance_id!r}.")
class UnknownMaintenanceError(NotFoundError):
    """A Maintenance nobody has started."""

    maintenance_id: str


@says("The turn of host {host!r} in this Maintenance has not begun, or is over.")
class NoTurnError(ConflictError):
    """The turn of a host that has not begun, or is over."""

    maintenance_id: str
    host: str


@says(
    "{place} cannot be retried while {what} is not over ({task_id}). Wait until it has ended, or "
    "settle it if its state is unknown."
)
class TaskNotOverError(ConflictError):
    """Something to try again while the first try may still be running."""

    place: str
    what: str
    task_id: str


class UnknownLabelsError(NotFoundError):
    """Labels that nothing carries were selected."""

    def __init__(self, noun: str, labels: Mapping[str, str]) -> None:
        given = ", ".join(f"{key}={value}" for key, value in labels.items())
        super().__init__(f"No {noun} has the labels {given}.")
        self.labels = dict(labels)


class UnknownHostLabelsError(UnknownLabelsError):
    """Labels that no host carries were selected."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__("host", labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """Where a Maintenance is: what it has created, and what remains with what holds it back.

    *standings* say where it is with each host, or scope, and *failures* what has to be decided.
    *left_out* are the steps that it never begins, as it was aborted.
    """

    maintenance: Maintenance
    state: MaintenanceState
    events: tuple[ScheduledEvent, ...]
    operations: tuple[HostOperation, ...]
    stages: tuple[Stage, ...]
    standings: Standings
    failures: tuple[Failure, ...]
    left_out: tuple[Step, ...]

    @property
    def status(self) -> MaintenanceStatus:
        return self.state.status


def start_maintenance(
    tx: Transaction, context: Context, order: MaintenanceOrder, *, gates: Collection[str] = ()
) -> Maintenance:
    """Begin a Maintenance, or refuse with the reason it cannot be walked.

    *gates* are those that the server knows.
    """
    draft = draft_maintenance(look(tx, context), context, order, gates=gates)
    for error in draft.errors:
        raise error
    maintenance = draft.maintenance
    tx.put_maintenance(maintenance)
    record_audit(tx, context, "maintenance start", maintenance.maintenance_id)
    return maintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDraft:
    """A Maintenance before it is begun: its steps, and all that keeps it from being walked."""

    maintenance: Maintenance
    steps: tuple[Step, ...]
    errors: tuple[ForewarnError, ...]


def draft_maintenance(
    snapshot: Snapshot, context: Context, order: MaintenanceOrder, *, gates: Collection[str] = ()
) -> MaintenanceDraft:
    """Return the Maintenance that *order* asks for; what it selects has to be there."""
    by_host = order.hosts or order.host_labels
    if by_host and (order.scopes or order.virtual_machines or order.labels):
        raise PlanError("Select hosts, or scopes and virtual machines, but not both.")
    topology = snapshot.topology
    maintenance = Maintenance(
        maintenance_id=MaintenanceId(context.new_id().lower()),
        event_type=order.event_type,
        started_at=context.now,
        description=order.description,
        duration_in_seconds=order.duration_in_seconds,
        resources=_selected_vms(topology, order),
        hosts=_selected_hosts(topology, order),
    )
    canaries = _find_canaries(topology, order, remaining_steps(maintenance, topology, events=()))
    known = {name_key(gate): gate for gate in gates}
    found = {name: known.get(name_key(name)) for name in order.course.gates}
    course = replace(
        order.course,
        canary=tuple(dict.fromkeys(name for names in canaries.values() for name in names)),
        gates=tuple(dict.fromkeys(filter(None, found.values()))),
    )
    maintenance = set_course(maintenance, course)
    steps = remaining_steps(maintenance, topology, events=())
    errors: list[ForewarnError] = [] if steps else [EmptySelectionError()]
    errors += [GateNotFoundError(name) for name, gate in found.items() if gate is None]
    errors += [UnknownCanaryError(name) for name, names in canaries.items() if not names]
    errors += plan_errors(maintenance, topology, steps)
    errors += calendar_errors(maintenance, steps, snapshot, context.now)
    return MaintenanceDraft(maintenance=maintenance, steps=steps, errors=tuple(errors))


def pause_maintenance(tx: Transaction, context: Context, maintenance_id: str) -> None:
    """Begin no further step until somebody resumes."""
    tx.put_maintenance(pause(find_maintenance(tx, maintenance_id)))
    record_audit(tx, context, "maintenance pause", maintenance_id)


def resume_maintenance(tx: Transaction, context: Context, maintenance_id: str) -> None:
    """Continue after a pause, and ask shut gates again; failures still hold."""
    tx.put_maintenance(resume(find_maintenance(tx, maintenance_id), now=context.now))
    record_audit(tx, context, "maintenance resume", maintenance_id)


def retry_failures(
    tx: Transaction, context: Context, maintenance_id: str, places: Sequence[str] = ()
) -> None:
    """Try failed hosts or scopes again with new events: those at *places*, or all."""
    _resolve(tx, context, maintenance_id, Resolution.RETRY, places)


def skip_failures(
    tx: Transaction, context: Context, maintenance_id: str, places: Sequence[str] = ()
) -> None:
    """Skip failed hosts or scopes: those at *places*, or all.

    A host that is named is given up also while its turn is under way, so that a task of which
    nothing is heard does not hold the others for ever. Of an aborted Maintenance that is all there
    is to skip.
    """
    maintenance = find_maintenance(tx, maintenance_id)
    wanted = set(map(name_key, places))
    reason = f"skipped by {context.who}"
    given_up = _end_turns(tx, context, maintenance, wanted, OperationOutcome.FAILED, reason)
    if maintenance.is_aborted and given_up and given_up.keys() == wanted:
        named = ", ".join(operation.host for operation in given_up.values())
        record_audit(tx, context, "maintenance skip", maintenance_id, detail=named)
    else:
        _resolve(tx, context, maintenance_id, Resolution.SKIP, places)


def end_host_turn(
    tx: Transaction,
    context: Context,
    maintenance_id: str,
    host: str,
    outcome: OperationOutcome,
) -> None:
    """End the turn of a host, as an operator says: it has succeeded, or failed.

    What is reserved is withdrawn, and what is unknown is settled. Its events end when nothing of
    the host is running any more.
    """
    maintenance = find_maintenance(tx, maintenance_id)
    check_places(maintenance, (host,), find_places(tx, look(tx, context), maintenance))
    verb = "complete" if outcome is OperationOutcome.SUCCEEDED else "fail"
    reason = "" if outcome is OperationOutcome.SUCCEEDED else f"failed by {context.who}"
    ended = _end_turns(tx, context, maintenance, {name_key(host)}, outcome, reason)
    if not ended:
        raise NoTurnError(maintenance.maintenance_id, host)
    named = ended[name_key(host)].host
    record_audit(tx, context, f"maintenance {verb}", maintenance.maintenance_id, detail=named)


def _end_turns(
    tx: Transaction,
    context: Context,
    maintenance: Maintenance,
    wanted: Collection[str],
    outcome: OperationOutcome,
    reason: str,
) -> dict[str, HostOperation]:
    """End the operations that have begun on the hosts that are *wanted*; return them by these."""
    ended: dict[str, HostOperation] = {}
    is_done = outcome is OperationOutcome.SUCCEEDED
    for operation in tx.operations_of([maintenance.maintenance_id]):
        if name_key(operation.host) not in wanted or not operation.has_begun or operation.is_over:
            continue
        end_by_hand(
            tx,
            context,
            _open_tasks(tx, operation),
            is_done=is_done,
            reason=reason or f"completed by {context.who}",
        )
        tx.put_operation(end(operation, outcome, now=context.now, reason=reason))
        ended[name_key(operation.host)] = operation
    return ended


def _open_tasks(reading: Reading, operation: HostOperation) -> list[Task]:
    """Return what is not over of *operation*, and of its events."""
    events = reading.operation_events(operation.operation_id)
    subjects = {operation.operation_id, *(event.event_id for event in events)}
    return [task for task in reading.tasks() if task.subject in subjects and not task.is_over]


def _resolve(
    tx: Transaction,
    context: Context,
    maintenance_id: str,
    resolution: Resolution,
    places: Sequence[str],
) -> None:
    maintenance = find_maintenance(tx, maintenance_id)
    of_it = [maintenance.maintenance_id]
    failures = find_failures(maintenance, tx.events_of(of_it), tx.operations_of(of_it))
    snapshot = look(tx, context)
    check_places(maintenance, places, find_places(tx, snapshot, maintenance))
    resolved = resolve(maintenance, failures, resolution, places)
    decided = resolved.resolutions.items() - maintenance.resolutions.items()
    if resolution is Resolution.RETRY:
        _check_nothing_runs(
            snapshot, [each for each in failures if (each.key, resolution) in decided]
        )
    tx.put_maintenance(resolved)
    named = [failure.place for failure in failures if (failure.key, resolution) in decided]
    record_audit(tx, context, f"maintenance {resolution}", maintenance_id, detail=", ".join(named))


def _check_nothing_runs(snapshot: Snapshot, failures: Iterable[Failure]) -> None:
    """Refuse to try *failures* again while a task of theirs is not over."""
    for failure in failures:
        for task in open_tasks(failure, snapshot):
            raise TaskNotOverError(failure.place, say_task(task), task.task_id)


def abort_maintenance(tx: Transaction, context: Context, maintenance_id: str) -> None:
    """Begin no further step, ever, and withdraw what has not started."""
    maintenance = find_maintenance(tx, maintenance_id)
    tx.put_maintenance(abort(maintenance))
    snapshot = look(tx, context)
    of_it = [maintenance.maintenance_id]
    subjects = {
        *(event.event_id for event in tx.events_of(of_it)),
        *(operation.operation_id for operation in tx.operations_of(of_it)),
    }
    reserved = [
        task
        for task in snapshot.rows.values()
        if task.subject in subjects and task.state is TaskState.RESERVED
    ]
    end_by_hand(tx, context, reserved, is_done=False, reason="the maintenance was aborted")
    record_audit(tx, context, "maintenance abort", maintenance_id)


def report_maintenance(
    reading: Reading, context: Context, maintenance_id: str
) -> MaintenanceReport:
    """Say where a Maintenance is, what it has done and what remains."""
    maintenance = find_maintenance(reading, maintenance_id)
    snapshot = look(reading, context)
    return _report(reading, snapshot, walk_all(snapshot, context.now), context, maintenance)


def report_maintenances(
    reading: Reading,
    context: Context,
    *,
    older_than: str | None = None,
    limit: int | None = None,
) -> tuple[MaintenanceReport, ...]:
    """Say where every Maintenance is, or the newest before one that was seen, oldest first."""
    seen = None if older_than is None else find_maintenance(reading, older_than).maintenance_id
    snapshot = look(reading, context)
    walks = walk_all(snapshot, context.now)
    return tuple(
        _report(reading, snapshot, walks, context, maintenance)
        for maintenance in reading.maintenances(older_than=seen, limit=limit)
    )


def find_maintenance(reading: Reading, maintenance_id: str) -> Maintenance:
    """Return the Maintenance, or refuse if nobody has started it."""
    maintenance = reading.maintenance(MaintenanceId(maintenance_id))
    if maintenance is None:
        raise UnknownMaintenanceError(maintenance_id)
    return maintenance


def find_places(reading: Reading, snapshot: Snapshot, maintenance: Maintenance) -> Standings:
    """Say where *maintenance* is with each of its hosts, or scopes."""
    events, operations = _begun(reading, snapshot, maintenance)
    left = _left(snapshot, maintenance, events, operations)
    return find_standings(maintenance, events, operations, waiting=(step.place for step in left))


def _left(
    snapshot: Snapshot,
    maintenance: Maintenance,
    events: Iterable[ScheduledEvent],
    operations: Iterable[HostOperation],
) -> tuple[Step, ...]:
    """Return the steps that *maintenance* has not begun, also if it never will."""
    if maintenance.finished_at and not maintenance.is_aborted:
        return ()
    return remaining_steps(maintenance, snapshot.topology, events, operations)


def _report(
    reading: Reading, snapshot: Snapshot, walks: Walks, context: Context, maintenance: Maintenance
) -> MaintenanceReport:
    events, operations = _begun(reading, snapshot, maintenance)
    is_over = maintenance.is_aborted or maintenance.finished_at
    return MaintenanceReport(
        maintenance=maintenance,
        state=find_state(maintenance, snapshot, context.now, walks),
        events=events,
        operations=operations,
        stages=walks.get(maintenance.maintenance_id, ()),
        standings=find_places(reading, snapshot, maintenance),
        failures=() if is_over else find_failures(maintenance, events, operations),
        left_out=(
            _left(snapshot, maintenance, events, operations) if maintenance.is_aborted else ()
        ),
    )


def _begun(
    reading: Reading, snapshot: Snapshot, maintenance: Maintenance
) -> tuple[tuple[ScheduledEvent, ...], tuple[HostOperation, ...]]:
    """Return the events and the host operations of *maintenance*, also when it is over."""
    if maintenance.finished_at is None:
        events = tuple(own_events(maintenance, snapshot.events.values()))
        return events, tuple(own_operations(maintenance, snapshot.operations.values()))
    key = maintenance.maintenance_id
    return reading.events_of([key]), reading.operations_of([key])


def _find_canaries(
    topology: Topology, order: MaintenanceOrder, steps: Iterable[Step]
) -> dict[str, tuple[str, ...]]:
    """Return what each name stands for that is to go first: ids of scopes, and hosts."""
    walked = list(steps)
    scope_ids = {scope_id for step in walked for scope_id in step.scope_ids}
    hosts = {step.host for step in walked}
    return {
        wanted: (
            *(scope_id for scope_id in find_scope_ids(topology, wanted) if scope_id in scope_ids),
            *(host for host in hosts if host and name_key(host) == name_key(wanted)),
        )
        for wanted in order.course.canary
    }


def _selected_vms(topology: Topology, order: MaintenanceOrder) -> tuple[VmName, ...]:
    names = dict.fromkeys(vm.name for vm in find_vms(topology, order.virtual_machines))
    vms = topology.virtual_machines.values()
    scope_ids = {scope.scope_id for scope in find_scopes(topology, *order.scopes)}
    names |= dict.fromkeys(vm.name for vm in vms if vm.scope_id in scope_ids)
    if order.labels:
        found = _labelled(vms, order.labels)
        if not found:
            raise UnknownLabelsError("virtual machine", order.labels)
        names |= dict.fromkeys(vm.name for vm in found)
    return tuple(names)


def _selected_hosts(topology: Topology, order: MaintenanceOrder) -> tuple[HostName, ...]:
    known = {name_key(host): host for host in topology.hosts}
    try:
        names = dict.fromkeys(known[name_key(host)] for host in order.hosts)
    except KeyError as error:
        raise UnknownHostError(str(error.args[0])) from None
    if order.host_labels:
        found = _labelled(topology.hosts.values(), order.host_labels)
        if not found:
            raise UnknownHostLabelsError(order.host_labels)
        names |= dict.fromkeys(host.name for host in found)
    return tuple(names)


def _labelled(all_: Iterable[Labelled], labels: Mapping[str, str]) -> list[Labelled]:
    return [each for each in all_ if labels.items() <= each.labels.items()]
