"""What is done outside: reserved by the leader, begun and ended by its owner, settled by operators.

All transactions are in one order, over all replicas, so each of these verbs is a compare-and-set.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from forewarn.domain import task as rules
from forewarn.domain.errors import ConflictError, NotFoundError, says
from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName, name_key
from forewarn.domain.phrases import say_moment, say_names
from forewarn.domain.task import (
    FETCHED,
    MANUAL,
    ROWS_ONLY,
    Owner,
    Ownership,
    Task,
    TaskKey,
    TaskState,
    say_task,
)
from forewarn.operations.context import Context
from forewarn.operations.incidents import Incident, note_incident
from forewarn.operations.pausing import find_pause
from forewarn.operations.recording import record_audit
from forewarn.operations.restoring import RECORDS_LOST_AT, RESTORED_AT
from forewarn.ports.entries import Actor, AuditEntry
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId


@says("Another server was started with a copy of the state directory {node}; stop one of them.")
class OwnerReplacedError(ConflictError):
    """A node that a later start of the same state directory has replaced."""

    node: str
    generation: int


@says("Replica {node} was forgotten, and has to register again.")
class OwnerForgottenError(ConflictError):
    """A node that an operator gave up, and that is back."""

    node: str
    generation: int


@says("Unknown task {task!r} of operation {operation_id!r} for this host.")
class UnknownFetchedTaskError(NotFoundError):
    """A task that is not for this host to fetch."""

    operation_id: str
    task: str


@says("The task {task!r} of operation {operation_id!r} cannot be taken: {problem}.")
class TakingRefusedError(ConflictError):
    """A task that another process took, or that may not begin now."""

    operation_id: str
    task: str
    problem: str


@says("The task {task!r} of operation {operation_id!r} was not taken; take it first.")
class NotTakenError(ConflictError):
    """A report about a task that was not taken."""

    operation_id: str
    task: str


@says("The task {task_id} cannot be settled: {problem}.")
class NotSettleableError(ConflictError):
    """A task whose end is not an operator's to tell."""

    task_id: str
    problem: str


@says("Unknown task {task_id!r}; it never existed, or it is over.")
class UnknownTaskError(NotFoundError):
    """A task that never was, or is over."""

    task_id: str


@says("Unknown replica {name!r}. Known: {known}.")
class UnknownOwnerError(NotFoundError):
    """A replica that never owned a task."""

    name: str
    known: str


@says("Replica {name} cannot be forgotten: {problem}.")
class OwnerPresentError(ConflictError):
    """A replica to forget that may be there."""

    name: str
    problem: str


def find_ownership(reading: Reading, context: Context) -> Ownership:
    """Return what is known of the owners of tasks."""
    known = _know_owners(reading, context.rules.node, context.at)
    return replace(known, epoch=reading.lease_epoch(), grace=context.rules.owner_grace)


def _know_owners(reading: Reading, node: str, at: datetime) -> Ownership:
    return Ownership(
        node=node,
        at=at,
        owners={each.node: each for each in reading.owners()},
        restored_at=_moment(reading, RESTORED_AT),
        records_lost_at=_moment(reading, RECORDS_LOST_AT),
    )


def _moment(reading: Reading, setting: str) -> datetime | None:
    text = reading.setting(setting)
    return datetime.fromisoformat(text) if text else None


def find_impacts(reading: Reading) -> dict[tuple[EventId, VmName], Impact]:
    """Return what was last said of each impact."""
    return {
        (EventId(task.subject), VmName(task.name)): task.said
        for task in reading.tasks()
        if task.is_impact
    }


def begin_task(tx: Transaction, owner: Owner, task: Task, now: datetime) -> bool:
    """Let *owner* begin its *task*; tell whether it may.

    Nothing begins during a pause, or when what it is for is over, or where it may have been begun
    before the database was restored. All transactions are in one order, over all replicas, so
    nothing begins once a pause is committed.
    """
    known = _find_own(tx, owner, task)
    if known is None or known.state is not TaskState.RESERVED or _hindrance(tx, known):
        return False
    if _know_owners(tx, owner.node, now).is_in_doubt(known, known.reserved_at):
        return False
    tx.put_task(rules.begin(known, now))
    return True


def is_still_begun(reading: Reading, owner: Owner, task: Task) -> bool:
    """Tell whether *owner* may still do what it began."""
    known = _find_own(reading, owner, task)
    return known is not None and known.state is TaskState.BEGUN


def report_tasks(
    tx: Transaction, owner: Owner, words: Iterable[tuple[Task, Impact]], now: datetime
) -> None:
    """Write down what *owner* says of its tasks, whether or not it leads."""
    for task, said in words:
        known = _find_own(tx, owner, task)
        if known is None:
            continue
        if known.state is TaskState.SETTLED:
            _note_late(tx, "Replica", owner.name, known, said, now)
        elif not known.is_over and (after := _report(known, said, now)) != known:
            tx.put_task(after)


def _note_late(
    tx: Transaction, kind: str, owner: str, task: Task, said: Impact, now: datetime
) -> None:
    """Write down what *owner* says of a *task* that was settled without it; the outcome stays."""
    tx.put_task(replace(task, details={**task.details, rules.LATE: said.status}))
    if said.status not in {ImpactStatus.RUNNING, ImpactStatus.DONE, ImpactStatus.FAILED}:
        return
    tx.append_audit(
        AuditEntry(
            at=now,
            maintenance_time=now,
            who=owner,
            actor=Actor.SERVER,
            action="task late",
            subject=task.task_id,
            detail=str(said.status),
        )
    )
    agrees = said.status is task.said.status
    settled = "as it was settled" if agrees else f"but it was settled as {task.said.status}"
    sentence = f"{kind} {owner} reports {say_task(task)} as {said.status}, {settled}."
    advice = "wait until it ends, or stop it there; then " * (said.status is ImpactStatus.RUNNING)
    hint = "" if agrees else f"{advice}check what it has done"
    note_incident(tx, Incident(at=now, sentence=sentence, hint=hint, about=task.task_id))


def note_replaced(tx: Transaction, owner: Owner, now: datetime) -> None:
    """Report that *owner* acts no more, because its state directory is used by another server."""
    sentence = (
        f"Two servers on {owner.name} use copies of one state directory; only the one that started "
        "last begins and reports tasks."
    )
    hint = "stop both, give each server a state directory of its own, and start them again"
    note_incident(tx, Incident(at=now, sentence=sentence, hint=hint))


def give_back_task(tx: Transaction, owner: Owner, task: Task, now: datetime) -> None:
    """Return a task to where it was before *owner* began it, which stopped just before it did."""
    known = _find_own(tx, owner, task)
    if known is not None and known.state in {TaskState.BEGUN, TaskState.UNKNOWN}:
        tx.put_task(rules.give_back(known, now))


def lose_own_tasks(tx: Transaction, node: str, reason: str, now: datetime) -> None:
    """Make the open tasks of *node* unknown: its records do not tell how far they are.

    There are no records of what is done by hand, or simulated.
    """
    tx.put_setting(RECORDS_LOST_AT, now.isoformat())
    for task in tx.open_tasks(node):
        if task.state is not TaskState.UNKNOWN and task.runner not in ROWS_ONLY:
            tx.put_task(rules.lose(task, reason))


def end_by_hand(
    tx: Transaction, context: Context, tasks: Iterable[Task], *, is_done: bool, reason: str
) -> tuple[Task, ...]:
    """Take an operator's word for how *tasks* ended; return those that are still running."""
    ownership = find_ownership(tx, context)
    after = [rules.take_word(each, ownership, is_done=is_done, reason=reason) for each in tasks]
    for task in after:
        tx.put_task(task)
    return tuple(task for task in after if not task.is_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """A task that is not over, with its *owner* as people know it.

    *away_since* is when the owner was last heard of, if it is away. *reason* is what is known of
    the task now.
    """

    task: Task
    reason: str
    owner: str
    away_since: datetime | None
    maintenance_id: MaintenanceId | None
    can_settle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSelection:
    """Which tasks are meant: all that have everything that is given."""

    task_ids: tuple[str, ...] = ()
    host: str | None = None
    maintenance_id: str | None = None
    owner: str | None = None

    def fits(self, report: TaskReport) -> bool:
        """Tell whether *report* is about one of them."""
        return (
            (not self.task_ids or report.task.task_id in self.task_ids)
            and (self.host is None or name_key(report.task.host or "") == name_key(self.host))
            and (self.maintenance_id is None or report.maintenance_id == self.maintenance_id)
            and (self.owner is None or name_key(report.owner) == name_key(self.owner))
        )


def find_tasks(
    reading: Reading, context: Context, selection: TaskSelection
) -> tuple[TaskReport, ...]:
    """Return the tasks of *selection* that are not over, in the order of their reservation."""
    ownership = find_ownership(reading, context)
    reports = (
        TaskReport(
            task=task,
            reason=rules.observe(task, ownership).reason,
            owner="operator" if task.runner == MANUAL else ownership.name_of(task),
            away_since=ownership.away_since(task),
            maintenance_id=_maintenance_of(reading, task),
            can_settle=rules.can_settle(task, ownership),
        )
        for task in reading.tasks()
        if not task.is_over
    )
    return tuple(filter(selection.fits, reports))


def settle_selected(
    tx: Transaction, context: Context, selection: TaskSelection, *, is_done: bool
) -> tuple[Task, ...]:
    """Settle the tasks of *selection* whose end is an operator's to tell.

    Those that are named have to be among them.
    """
    reports = find_tasks(tx, context, selection)
    known = {report.task.task_id for report in reports}
    for task_id in selection.task_ids:
        if task_id not in known:
            raise UnknownTaskError(task_id)
    chosen = [each.task for each in reports if each.can_settle or selection.task_ids]
    return settle_tasks(tx, context, chosen, is_done=is_done)


def _maintenance_of(reading: Reading, task: Task) -> MaintenanceId | None:
    if task.is_impact:
        event = reading.event(EventId(task.subject))
        return event.maintenance_id if event else None
    operation = reading.host_operation(OperationId(task.subject))
    return operation.maintenance_id if operation else None


def forget_owner(tx: Transaction, context: Context, name: str) -> tuple[Task, ...]:
    """Stop waiting for replica *name*, which is gone for good; return what it may have begun.

    It is refused as long as the replica may only be away for a moment. One that has lost its disk
    is forgotten although the new one has its name.
    """
    ownership = find_ownership(tx, context)
    key = name_key(name)
    found = [each for each in ownership.owners.values() if key in {name_key(each.name), each.node}]
    if not found:
        raise UnknownOwnerError(name, say_names([each.name for each in ownership.owners.values()]))
    gone = [each for each in found if not _say_presence(each, ownership)]
    if not gone:
        raise OwnerPresentError(found[0].name, _say_presence(found[0], ownership))
    reason = f"replica {found[0].name} was forgotten by {context.who}"
    lost = [
        replace(_forget(task, reason), heard_at=owner.heard_at)
        for owner in gone
        for task in tx.open_tasks(owner.node)
        if task.state is not TaskState.RESERVED and task.runner not in ROWS_ONLY
    ]
    for task in lost:
        tx.put_task(task)
    for owner in gone:
        tx.remove_owner(owner.node)
    record_audit(tx, context, "replica forget", found[0].name)
    return tuple(lost)


def _say_presence(owner: Owner, ownership: Ownership) -> str:
    """Return why *owner* may still run tasks; empty if it was silent for long enough."""
    if owner.node == ownership.node:
        return "it answers this request"
    until = owner.heard_at + ownership.grace
    problem = (
        f"it was heard of at {say_moment(owner.heard_at)} and may still run its tasks; if its "
        f"machine is off, try again at {say_moment(until)}"
    )
    return problem if ownership.at < until else ""


def _forget(task: Task, reason: str) -> Task:
    if task.state is TaskState.UNKNOWN:
        return replace(task, details={**task.details, "is_final": True})
    return rules.lose(task, reason)


def settle_tasks(
    tx: Transaction, context: Context, tasks: Sequence[Task], *, is_done: bool
) -> tuple[Task, ...]:
    """Settle *tasks*, or refuse if one of them is neither unknown nor done by hand."""
    ownership = find_ownership(tx, context)
    for task in tasks:
        if not rules.can_settle(task, ownership):
            raise NotSettleableError(task.task_id, _say_state(task, ownership))
    outcome = "done" if is_done else "failed"
    settled = tuple(
        rules.settle(each, is_done=is_done, reason=f"settled by {context.who}", now=context.at)
        for each in tasks
    )
    for task in settled:
        tx.put_task(task)
        record_audit(tx, context, "task settle", task.task_id, detail=outcome)
    return settled


def _say_state(task: Task, ownership: Ownership) -> str:
    if task.state is TaskState.RESERVED:
        return "it has not begun; the server begins it, or withdraws it with its event"
    return f"{ownership.name_of(task)} is carrying it out and may report its end; wait for it"


def find_fetched_tasks(reading: Reading, host: HostName) -> tuple[Task, ...]:
    """Return what *host* can take now, and what it has taken and not ended."""
    is_paused = find_pause(reading) is not None
    return tuple(
        task
        for task in reading.open_tasks(fetching_node(host))
        if task.state is not TaskState.RESERVED or not (is_paused or _hindrance(reading, task))
    )


def take_task(
    tx: Transaction, context: Context, host: HostName, key: TaskKey, details: Mapping[str, Any]
) -> None:
    """Have *host* take one of its tasks, or refuse.

    *details* have the `ticket` with which it may ask again, and what `grace_for` depends on.
    """
    task = _find_fetched(tx, host, key)
    if task.state is not TaskState.RESERVED:
        if task.state is TaskState.BEGUN and task.details.get("ticket") == details["ticket"]:
            return
        raise TakingRefusedError(*key, f"it is {OFFERS[task.state]}")
    if hindrance := _hindrance(tx, task):
        raise TakingRefusedError(*key, hindrance)
    taken = rules.begin(task, context.at)
    tx.put_task(replace(taken, details={**task.details, **details}))
    _audit_fetched(tx, context, "host work take", taken)


def report_fetched_task(
    tx: Transaction, context: Context, host: HostName, key: TaskKey, said: Impact
) -> None:
    """Write down what *host* says of a task that it took; of what is over, only late news."""
    task = _find_fetched(tx, host, key)
    if task.state is TaskState.RESERVED:
        raise NotTakenError(*key)
    if (
        task.state is TaskState.SETTLED
        and rules.may_report_late(task)
        and said.status != task.details.get(rules.LATE)
    ):
        _note_late(tx, "Host", host, task, said, context.at)
    if task.is_over:
        return
    after = replace(_report(task, said, context.at), heard_at=context.at)
    tx.put_task(after)
    if after.is_over or (said.is_lost and not task.said.is_lost):
        _audit_fetched(tx, context, f"host work {said.status}", after)


OFFERS: Final = {
    TaskState.RESERVED: "offered",
    TaskState.BEGUN: "taken",
    TaskState.UNKNOWN: "unknown",
    TaskState.ENDED: "over",
    TaskState.SETTLED: "settled by an operator",
    TaskState.WITHDRAWN: "withdrawn",
}
"""How far a task is, in the words of the host that fetches it."""


def _report(task: Task, said: Impact, now: datetime) -> Task:
    if said.status_url is not None:
        task = replace(task, details={**task.details, rules.STATUS_URL: said.status_url})
        said = replace(said, status_url=None)
    if task.state is TaskState.RESERVED:
        if said.status is ImpactStatus.NOT_BEGUN:
            return replace(task, said=said)
        # The records of its owner know of it; the database, which was restored, does not.
        task = rules.begin(task, now)
    if said.is_over:
        return rules.finish(task, said, now)
    if said.status is ImpactStatus.NOT_BEGUN:
        return task  # it has begun since that was said
    if task.state is not TaskState.UNKNOWN:
        return replace(task, said=said)
    # Whether it will never tell. While it runs after all, no operator's word ends it.
    is_running = said.status is ImpactStatus.RUNNING
    is_final = said.is_stuck or (bool(task.details.get("is_final")) and not is_running)
    return replace(task, details={**task.details, "is_final": is_final})


def _find_own(reading: Reading, owner: Owner, task: Task) -> Task | None:
    """Return what is known of *task* if it still is *owner*'s; refuse one that was replaced."""
    newest = next((each for each in reading.owners() if each.node == owner.node), None)
    if newest is None:
        raise OwnerForgottenError(owner.node, owner.generation)
    if newest.generation != owner.generation:
        raise OwnerReplacedError(owner.node, owner.generation)
    known = reading.task(task.key)
    is_own = known is not None and (known.node, known.assignment) == (owner.node, task.assignment)
    return known if is_own else None


def fetching_node(host: HostName) -> str:
    """Return *host* as the owner of the tasks that it fetches."""
    return f"{name_key(host)}:{FETCHED}"


def _find_fetched(reading: Reading, host: HostName, key: TaskKey) -> Task:
    """Return a task of *host*; what others are to fetch does not exist for it."""
    task = reading.task(key)
    if task is None or task.runner != FETCHED or task.node != fetching_node(host):
        raise UnknownFetchedTaskError(*key)
    return task


def _hindrance(reading: Reading, task: Task) -> str:
    """Return why *task* may not begin now; empty if it may."""
    if find_pause(reading) is not None:
        return "the server is paused"
    # An operator may have completed the event or skipped the host meanwhile.
    if task.is_impact:
        event = reading.event(EventId(task.subject))
        return "" if event is not None and event.is_in_flight else "its event is over"
    operation = reading.host_operation(OperationId(task.subject))
    return "its operation is over" if operation is None or operation.is_over else ""


def _audit_fetched(tx: Transaction, context: Context, action: str, task: Task) -> None:
    if task.name.startswith(HostTaskKind.VERIFY):
        return  # it changes nothing, and is tried again and again
    said = f": {task.said.reason}" if task.said.reason else ""
    detail = f"{task.name} of operation {task.subject}{said}"
    record_audit(tx, context, action, str(task.host), detail=detail)
