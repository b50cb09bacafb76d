"""A task: one thing that is done outside for the server, at most once, by one owner.

The impact of an event on a virtual machine is a task, and so is each part of the work on a host.
The leader reserves a task in the transaction that makes it due. Its owner is a node, a server with
its state directory, or the host that fetches it. The owner commits `reserved -> begun` before it
touches anything, so no owner has begun a task that is still reserved, and a new leader may give it
to itself. The owner writes down the end whether or not it leads.

`ARROWS` are all changes of state there are. An owner may only change what is its own: same node,
same assignment; `operations.tasks` checks that in the transaction that makes the change.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

from forewarn.domain.errors import ConflictError, says
from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.names import HostName, VmName
from forewarn.domain.phrases import say_moment

TaskKey: TypeAlias = tuple[str, str]
"""The event and its virtual machine, or the host operation and the name of its task."""

MANUAL: Final = "manual"
SIMULATED: Final = "simulated"
FETCHED: Final = "host"
"""The runners without a process of the server: rows are all there is to them."""
ROWS_ONLY: Final = frozenset({MANUAL, SIMULATED})
"""The runners that run nothing outside of the database; the leader ends their tasks."""
ADOPTABLE: Final = frozenset({"webhook", "libvirt"})
"""The runners whose target recognizes a task that it was given before."""

_RECOGNIZED: Final = ADOPTABLE | ROWS_ONLY | {FETCHED, ""}
"""The runners that do nothing twice, whatever the database has forgotten; or that do nothing."""

STATUS_URL: Final = "status_url"
"""The detail of a task that says where to ask the target of a webhook how far it is."""

TIMEOUT_SECONDS: Final = "timeout_seconds"
"""The detail of a task that says how long it may run."""
RESTARTS_HOST: Final = "restarts_host"
"""The detail of work that may restart the host that does it."""
LATE: Final = "late"
"""The detail of a settled task that says what its owner reported of it afterwards."""

IN_DOUBT: Final = "the database was restored, so it may have begun since the backup"

SILENT_AFTER: Final = timedelta(seconds=10)
"""An owner that reports every second and was not heard of for so long is away."""
HOST_SILENT_AFTER: Final = timedelta(minutes=2)
"""The same for a host that fetches tasks: it reports one that runs once a minute or more often."""
OWNER_GRACE: Final = timedelta(minutes=5)
"""The default for how long an owner may be away before operators are paged."""

_SECOND: Final = timedelta(seconds=1)

BY_HAND: Final = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)


class TaskState(StrEnum):
    """How far a task is."""

    RESERVED = "reserved"
    BEGUN = "begun"
    UNKNOWN = "unknown"
    ENDED = "ended"
    SETTLED = "settled"
    WITHDRAWN = "withdrawn"


class Arrow(StrEnum):
    """What can happen to a task."""

    ASSIGN = "assign"
    BEGIN = "begin"
    GIVE_BACK = "give back"
    LOSE = "lose"
    END = "end"
    SETTLE = "settle"
    WITHDRAW = "withdraw"


ARROWS: Final[Mapping[tuple[TaskState, Arrow], TaskState]] = {
    (TaskState.RESERVED, Arrow.ASSIGN): TaskState.RESERVED,
    (TaskState.RESERVED, Arrow.BEGIN): TaskState.BEGUN,
    (TaskState.RESERVED, Arrow.LOSE): TaskState.UNKNOWN,
    (TaskState.RESERVED, Arrow.WITHDRAW): TaskState.WITHDRAWN,
    (TaskState.BEGUN, Arrow.ASSIGN): TaskState.BEGUN,
    (TaskState.BEGUN, Arrow.GIVE_BACK): TaskState.RESERVED,
    (TaskState.BEGUN, Arrow.LOSE): TaskState.UNKNOWN,
    (TaskState.BEGUN, Arrow.END): TaskState.ENDED,
    (TaskState.BEGUN, Arrow.SETTLE): TaskState.SETTLED,
    (TaskState.UNKNOWN, Arrow.GIVE_BACK): TaskState.RESERVED,
    (TaskState.UNKNOWN, Arrow.END): TaskState.ENDED,
    (TaskState.UNKNOWN, Arrow.SETTLE): TaskState.SETTLED,
}
"""Every change of state there is; any other pair is refused."""

OPEN: Final = (TaskState.RESERVED, TaskState.BEGUN, TaskState.UNKNOWN)
"""The states of a task that is not over."""


@says("The task {name!r} of {subject} is {state}, so it cannot be changed this way ({arrow}).")
class TaskStateError(ConflictError):
    """A change that the state of a task does not allow."""

    subject: str
    name: str
    state: TaskState
    arrow: Arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A node that can own tasks: the *name* of its machine, and when it was last heard of.

    Each start of a server raises the *generation* of its state directory. Only the newest one acts.
    """

    node: str
    name: str
    generation: int
    heard_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do, and how far it is.

    *vm* is the virtual machine that it is about, if it is about one, and *host* the host that
    carries it. *said* is the last word about it. *details* belong to the runner. All times are real
    times. A task that is *closed_at* no longer matters to any decision.
    """

    subject: str
    name: str
    vm: VmName | None = None
    host: HostName | None = None
    runner: str
    state: TaskState = TaskState.RESERVED
    node: str
    assignment: int = 1
    epoch: int
    said: Impact
    reserved_at: datetime
    begun_at: datetime | None = None
    heard_at: datetime | None = None
    ended_at: datetime | None = None
    closed_at: datetime | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return self.subject, self.name

    @property
    def task_id(self) -> str:
        """What an operator calls it."""
        return f"{self.subject}/{self.name}"

    @property
    def is_impact(self) -> bool:
        """Whether it is the impact of an event; otherwise it is part of a host operation."""
        return self.name == self.vm

    @property
    def is_check(self) -> bool:
        """Whether it only looks whether a host is back, and so can be repeated."""
        return not self.is_impact and self.name.startswith(f"{HostTaskKind.VERIFY}-")

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, or will."""
        return self.state not in OPEN

    @property
    def timeout(self) -> timedelta:
        """How long it may run; zero if that is not known."""
        return timedelta(seconds=self.details.get(TIMEOUT_SECONDS, 0))

    @property
    def times_out_at(self) -> datetime | None:
        """When its runner stops waiting for it, if that is known."""
        return self.begun_at + self.timeout if self.begun_at and self.timeout else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What the leader of *epoch*, on *node*, knows of the owners *at* a moment of real time.

    An owner that is not heard of for *grace* is not waited for any longer. What was made until
    *restored_at* may be older than its database. *records_lost_at* is when a server was last
    started without the records that the database knew of.
    """

    node: str
    at: datetime
    epoch: int = 0
    owners: Mapping[str, Owner] = field(default_factory=dict)
    grace: timedelta = OWNER_GRACE
    restored_at: datetime | None = None
    records_lost_at: datetime | None = None

    def away_since(self, task: Task) -> datetime | None:
        """Return since when the owner of *task* is away, if it is."""
        if task.node == self.node or task.runner in ROWS_ONLY:
            return None
        heard_at, silent_after = self._hear(task)
        return heard_at if self.at - heard_at >= silent_after else None

    def grace_for(self, task: Task) -> timedelta:
        """Return for how long the owner of *task* is waited for; a host may be restarting."""
        return max(self.grace, task.timeout) if task.details.get(RESTARTS_HOST) else self.grace

    def look_again_at(self, task: Task) -> datetime | None:
        """Return when *task* may change by itself, or its owner counts as away or as back."""
        if task.node == self.node or task.runner in ROWS_ONLY:
            return None
        if task.state is TaskState.RESERVED:
            return task.reserved_at + timedelta(seconds=task.details.get("within_seconds", 0))
        if task.is_over:
            return None
        heard_at, silent_after = self._hear(task)
        if self.away_since(task) is None:
            return heard_at + silent_after
        # That it is back changes no task.
        again_at = self.at + SILENT_AFTER
        is_lost = task.state is TaskState.UNKNOWN
        return again_at if is_lost else min(again_at, heard_at + self.grace_for(task))

    def _hear(self, task: Task) -> tuple[datetime, timedelta]:
        """Return when the owner of *task* was last heard of, and after how long it is away."""
        owner = self.owners.get(task.node)
        heard_at = owner.heard_at if owner else task.heard_at or task.begun_at or task.reserved_at
        return heard_at, HOST_SILENT_AFTER if task.runner == FETCHED else SILENT_AFTER

    def is_in_doubt(self, task: Task, made_at: datetime) -> bool:
        """Tell whether *task* may have begun, although a restored database says that it has not.

        What it is for was *made_at* that time. A server that has always had the database to itself
        knows from its own records. A target that recognizes a task may be given it once more, and a
        check may be repeated.
        """
        if self.restored_at is None or made_at > self.restored_at:
            return False
        if task.runner in _RECOGNIZED or task.is_check:
            return False
        has_lost = self.records_lost_at is not None and self.records_lost_at >= self.restored_at
        return has_lost or bool({task.node, *self.owners} - {self.node})

    def name_of(self, task: Task) -> str:
        """Return the name of the owner of *task* as people know it."""
        owner = self.owners.get(task.node)
        return owner.name if owner else task.node.rpartition(":")[0] or task.node


def assign(task: Task, node: str, *, epoch: int) -> Task:
    """Give *task* to *node*."""
    state = _follow(task, Arrow.ASSIGN)
    return replace(task, state=state, node=node, assignment=task.assignment + 1, epoch=epoch)


def begin(task: Task, now: datetime) -> Task:
    """Let its owner begin *task*; nothing outside is touched before this is committed."""
    state = _follow(task, Arrow.BEGIN)
    said = Impact(status=ImpactStatus.RUNNING)
    return replace(task, state=state, begun_at=now, heard_at=now, said=said)


def finish(task: Task, said: Impact, now: datetime) -> Task:
    """Return *task* as its owner says that it ended; what an operator said of it wins."""
    if verdict := task.details.get("verdict"):
        status = ImpactStatus.DONE if verdict["is_done"] else ImpactStatus.FAILED
        said = replace(said, status=status, reason=verdict["reason"])
    return replace(task, state=_follow(task, Arrow.END), said=said, ended_at=now)


def give_back(task: Task, now: datetime) -> Task:
    """Return *task* as its owner knows that it was not begun: it stopped just before.

    If an operator has said meanwhile how it ended, it is withdrawn.
    """
    said = Impact(status=ImpactStatus.NOT_BEGUN)
    reserved = replace(task, state=_follow(task, Arrow.GIVE_BACK), said=said, begun_at=None)
    verdict = task.details.get("verdict")
    return withdraw(reserved, **verdict, now=now) if verdict else reserved


def lose(task: Task, reason: str, *, is_final: bool = True) -> Task:
    """Return *task* as unknown.

    Unless that *is_final*, an owner that comes back may find that it is still running.
    """
    said = Impact(status=ImpactStatus.UNKNOWN, reason=reason)
    state = _follow(task, Arrow.LOSE)
    return replace(task, state=state, said=said, details={**task.details, "is_final": is_final})


def can_settle(task: Task, ownership: Ownership) -> bool:
    """Tell whether an operator's word ends *task*: it is unknown, or done by hand.

    A task whose owner was just heard of may still be running, and keeps its machines busy.
    """
    if task.state is TaskState.BEGUN:
        return _is_by_hand(task)
    is_lost = ownership.away_since(task) is not None or bool(task.details.get("is_final"))
    return task.state is TaskState.UNKNOWN and is_lost


def _is_by_hand(task: Task) -> bool:
    return task.runner == MANUAL or task.said.is_by_hand


def settle(task: Task, *, is_done: bool, reason: str, now: datetime) -> Task:
    """Return *task* as an operator says that it ended; see `can_settle`."""
    if task.state is TaskState.BEGUN and not _is_by_hand(task):
        raise TaskStateError(*task.key, task.state, Arrow.SETTLE)
    return _end(task, Arrow.SETTLE, is_done=is_done, reason=reason, now=now)


def take_word(task: Task, ownership: Ownership, *, is_done: bool, reason: str) -> Task:
    """Return *task* after an operator said how it ended.

    What is reserved is withdrawn, and what is unknown is settled. What runs goes on and keeps its
    machines busy; when it is over, the word of the operator counts.
    """
    now = ownership.at
    if task.is_over:
        return _correct(task, is_done=is_done, reason=reason)
    if task.state is TaskState.RESERVED:
        return withdraw(task, is_done=is_done, reason=reason, now=now)
    if can_settle(task, ownership):
        return settle(task, is_done=is_done, reason=reason, now=now)
    verdict = {"is_done": is_done, "reason": reason}
    return replace(task, details={**task.details, "verdict": verdict})


def _correct(task: Task, *, is_done: bool, reason: str) -> Task:
    """Return *task*, which is over, as an operator says that it ended."""
    status = ImpactStatus.DONE if is_done else ImpactStatus.FAILED
    if task.said.status is status:
        return task
    return replace(task, said=replace(task.said, status=status, reason=reason))


def conclude(task: Task, now: datetime) -> Task:
    """Return *task*, which is done by hand, as one that the work on its host has done."""
    return _end(task, Arrow.END, is_done=True, reason="", now=now)


def withdraw(task: Task, *, is_done: bool, reason: str, now: datetime) -> Task:
    """Return *task*, which no owner has begun, as one that no owner may begin any more."""
    return _end(task, Arrow.WITHDRAW, is_done=is_done, reason=reason, now=now)


def observe(task: Task, ownership: Ownership) -> Impact:
    """Return what is shown of *task*: its last word, and whether its owner is away.

    What is unknown is not given up as long as its owner, which is back, may still tell.
    """
    if task.state is TaskState.UNKNOWN and not can_settle(task, ownership):
        reason = task.said.reason
        if task.begun_at is not None:
            reason = f"{ownership.name_of(task)} is back, and has not reported its end yet"
        ask_again_at = ownership.at.replace(microsecond=0) + _SECOND
        return replace(task.said, reason=reason, ask_again_at=ask_again_at)
    if task.state is not TaskState.BEGUN or task.runner == SIMULATED:
        return task.said
    since, said = ownership.away_since(task), task.said
    if said.ask_again_at is not None:
        # It was asked again since, with the same answer.
        said = replace(said, ask_again_at=ownership.at.replace(microsecond=0) + _SECOND)
    if since is None:
        return said
    pages_at = since + ownership.grace_for(task)
    away = OwnerAway(name=ownership.name_of(task), since=since, pages_at=pages_at)
    return replace(said, away=away)


def may_report_late(task: Task) -> bool:
    """Tell whether the owner of *task*, which was settled without it, can still report on it."""
    return task.details.get(LATE) in {None, ImpactStatus.RUNNING}


def say_task(task: Task) -> str:
    """Return what *task* is, in a few words."""
    if task.is_impact:
        return f"the impact on {task.vm}"
    what = f"the {task.name.partition('-')[0]} on {task.host}"
    return f"{what} for {task.vm}" if task.vm else what


def next_tasks(tasks: Iterable[Task], ownership: Ownership, now: datetime) -> Iterator[Task]:
    """Yield each of *tasks* that the leader changes at *now*, as it is then."""
    for task in tasks:
        after = _next(task, ownership, now)
        if after != task:
            yield after


def _next(task: Task, ownership: Ownership, now: datetime) -> Task:
    if task.state is TaskState.RESERVED:
        return _next_reserved(task, ownership)
    if task.state is TaskState.UNKNOWN and task.is_check:
        return settle(task, is_done=False, reason=task.said.reason, now=ownership.at)
    if task.state is not TaskState.BEGUN:
        return task
    if task.runner == SIMULATED:
        return _simulated_end(task, ownership, now)
    if task.said.is_stuck:
        return lose(task, task.said.reason)
    since = ownership.away_since(task)
    if since is None or ownership.at - since < ownership.grace_for(task):
        return task
    if task.runner in ADOPTABLE:
        return assign(task, ownership.node, epoch=ownership.epoch)
    who = "the host" if task.runner == FETCHED else f"replica {ownership.name_of(task)}"
    said = f": {task.said.reason}" if task.said.reason else ""
    reason = f"{who} began it, and has been away since {say_moment(since)}{said}"
    return lose(task, reason, is_final=False)


def _next_reserved(task: Task, ownership: Ownership) -> Task:
    if task.runner == FETCHED:
        within = timedelta(seconds=task.details.get("within_seconds", 0))
        if ownership.at < task.reserved_at + within:
            return task
        reason = str(task.details.get("not_fetched", ""))
        return withdraw(task, is_done=False, reason=reason, now=ownership.at)
    if ownership.is_in_doubt(task, task.reserved_at):
        return lose(task, IN_DOUBT, is_final=False)
    if task.node == ownership.node:
        return task
    return assign(task, ownership.node, epoch=ownership.epoch)


def _simulated_end(task: Task, ownership: Ownership, now: datetime) -> Task:
    if not task.said.has_news(now):
        return task
    failure = str(task.details.get("failure", ""))
    status = ImpactStatus.FAILED if failure else ImpactStatus.DONE
    return finish(task, Impact(status=status, reason=failure), ownership.at)


def _end(task: Task, arrow: Arrow, *, is_done: bool, reason: str, now: datetime) -> Task:
    status = ImpactStatus.DONE if is_done else ImpactStatus.FAILED
    said = Impact(status=status, reason=reason)
    return replace(task, state=_follow(task, arrow), said=said, ended_at=now)


def _follow(task: Task, arrow: Arrow) -> TaskState:
    try:
        return ARROWS[task.state, arrow]
    except KeyError:
        raise TaskStateError(*task.key, task.state, arrow) from None
