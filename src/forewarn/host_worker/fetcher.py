"""The loop of a host that does its own work: fetch, begin, report.

A task is taken from the server first, then written down, then begun; so it is begun at most once,
whoever is killed in between. Where it cannot be known whether it was, it is reported as unknown.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

import structlog

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import elapsed_seconds
from forewarn.executors.command import Command
from forewarn.executors.processes import PERMIT_SECONDS, ProcessRunner
from forewarn.executors.task_input import InvalidTaskInputError, TaskInput, read_host_task
from forewarn.executors.task_log import TaskLog
from forewarn.feed.follower import back_off
from forewarn.feed.upstream import UpstreamRefusedError
from forewarn.host_worker.restarts import judge
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.errors import ForewarnError

FETCH_SECONDS: Final = 5.0
"""How often the server is asked for tasks; up to a fifth sooner or later."""
ATTEND_SECONDS: Final = 1.0
HEARTBEAT_SECONDS: Final = 20.0
"""How often a task that runs is reported although nothing has changed."""

_LONGEST_TIMEOUT: Final = 30 * 86400.0
"""The longest timeout that a server accepts."""

_LASTING: Final = frozenset({401, 403, 404, 421})
"""Refusals that do not go away by themselves."""
_NO_RECORD: Final = Impact(
    status=ImpactStatus.UNKNOWN,
    reason="the host took it, and has no record of it, so it may have been begun; "
    "check the host, then settle the task",
)
_TOO_LATE: Final = Impact(
    status=ImpactStatus.UNKNOWN,
    reason="the host took it, but did not begin it in time, and will not; settle it as failed",
)
_LONGEST_REASON: Final = 500
_TAKEN_STATUSES: Final = frozenset({"taken", "unknown"})
"""What a task was taken with: *unknown* is one that the server has not heard of for long."""
_GONE: Final = frozenset({404, 409})
"""How the server answers about a task that is not, or no longer, for whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTask:
    """A task as the server lists it; a process of this host has taken it if it *is_taken*."""

    task: TaskInput
    is_taken: bool


class WorkServer(Protocol):
    """Whoever answers as the routes below /api/v1/front/ do."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return what the server answers; UpstreamRefusedError, or StoreUnavailableError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Asks *server*, and takes tasks with a *ticket*.

    All methods raise StoreUnavailableError if the server cannot be reached, and
    UpstreamRefusedError if it refuses the token.
    """

    server: WorkServer
    ticket: str

    def tasks(self) -> tuple[OfferedTask, ...]:
        """Return what this host is to do, or is doing."""
        answer = self.server.ask("GET", "host-work")
        listed = answer.get("tasks") if isinstance(answer, dict) else None
        return tuple(_read(listed if isinstance(listed, list) else []))

    def take(self, key: TaskKey, details: Mapping[str, object]) -> bool:
        """Tell whether the task is ours to begin; *details* say how long that can take."""
        return self._post(key, "take", {"ticket": self.ticket, **details})

    def report(self, key: TaskKey, said: Impact) -> bool:
        """Tell the server how far it is; False if it wants to know no more."""
        body = {"status": said.status, "reason": said.reason[:_LONGEST_REASON]}
        host = {} if said.moved_to is None else {"host": said.moved_to}
        return self._post(key, "report", {**body, **host})

    def _post(self, key: TaskKey, verb: str, body: object) -> bool:
        operation_id, task = key
        try:
            self.server.ask("POST", f"host-work/{operation_id}/{task}/{verb}", body)
        except UpstreamRefusedError as error:
            if error.status not in _GONE:
                raise
            _log.warning("host_task_refused", task=task, verb=verb, error=str(error))
            return False
        return True


@dataclass(slots=True)
class _Taken:
    """A *task*, and the permit to begin it: the server has written down that this host took it.

    The server is asked to *confirm* that once more if it was more than 10 seconds ago.
    """

    task: TaskInput
    confirm: Callable[[], bool]
    at: float
    is_refused: bool = False
    refusal: ImpactStatus = ImpactStatus.FAILED

    def obtain(self) -> bool:
        is_recent = elapsed_seconds() - self.at <= PERMIT_SECONDS
        self.is_refused = not (is_recent or self.confirm())
        return not self.is_refused

    is_valid = obtain


_log = structlog.get_logger(__name__)


class WorkRefusedError(ForewarnError):
    """A server that has no work for this token, and will not have any later."""


@dataclass(slots=True)
class _Told:
    """What the server was last told of a task, and when."""

    said: Impact
    at: float


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class WorkFetcher:
    """Has *runner* do what the server lists, in the boot *boot_id*, and reports it.

    *chance* is between 0 and 1, and spreads the requests of many hosts, each of which fetches
    *every* so many seconds.
    """

    exchange: Exchange
    runner: ProcessRunner[Command]
    records: TaskLog
    boot_id: str
    chance: Callable[[], float]
    every: float = FETCH_SECONDS
    _tasks: dict[TaskKey, _Taken] = field(init=False, default_factory=dict)
    _told: dict[TaskKey, _Told] = field(init=False, default_factory=dict)
    _lost: set[TaskKey] = field(init=False, default_factory=set)
    _fetch_at: float = field(init=False, default=0.0)
    _failures: int = field(init=False, default=0)
    _trouble: str = field(init=False, default="")
    _was_heard: bool = field(init=False, default=False)

    def run(self, stopping: threading.Event) -> None:
        """Fetch and report until *stopping*."""
        while not stopping.wait(self.round()):
            pass

    def round(self) -> float:
        """Do what is due, and return how many seconds there are until more is."""
        try:
            if monotonic() >= self._fetch_at:
                self._fetch()
                self._fetch_at = monotonic() + self.every * (0.8 + 0.4 * self.chance())
            for key, taken in tuple(self._tasks.items()):
                self._attend(key, taken)
        except (UpstreamRefusedError, StoreUnavailableError) as error:
            return self._wait_after(error)
        if self._trouble or not self._was_heard:
            _log.info("server_reached")
        self._was_heard, self._trouble, self._failures = True, "", 0
        until_fetch = max(0.0, self._fetch_at - monotonic())
        return min(ATTEND_SECONDS, until_fetch) if self._tasks else until_fetch

    def _fetch(self) -> None:
        for offered in self.exchange.tasks():
            key = offered.task.key
            if key not in self._tasks and not (offered.is_taken and key in self._lost):
                self._receive(offered)

    def _receive(self, offered: OfferedTask) -> None:
        key, at = offered.task.key, elapsed_seconds()
        take = partial(self.exchange.take, key, self._describe(offered.task))
        # Taken before, and remembered here: by this process or, before a crash, by another one.
        is_ours = offered.is_taken and self.records.has(key)
        if not (is_ours or take()):
            if offered.is_taken:
                self.exchange.report(key, _NO_RECORD)
                self._lost.add(key)
            return
        _log.info("host_task_taken", operation_id=key[0], task=key[1])
        if not (self.records.has(key) or self.runner.find(offered.task)):
            reason = f"the host work file of the host names no program for {offered.task.kind}"
            self.exchange.report(key, Impact(status=ImpactStatus.FAILED, reason=reason))
            return
        self._tasks[key] = _Taken(offered.task, take, at)

    def _describe(self, task: TaskInput) -> Mapping[str, object]:
        """Return how long the server waits for this host while it carries *task* out."""
        command = self.runner.find(task)
        if command is None:
            return {}
        described = self.runner.program.describe(task, command)
        seconds = min(command.timeout.total_seconds(), _LONGEST_TIMEOUT)
        return {"timeout_seconds": seconds, "restarts_host": described["restarts_host"]}

    def _attend(self, key: TaskKey, taken: _Taken) -> None:
        said = self._look(key, taken)
        told = self._told.get(key)
        is_news = told is None or told.said != said
        if told is not None and not is_news and monotonic() < told.at + HEARTBEAT_SECONDS:
            return
        is_wanted = self.exchange.report(key, said)
        if is_news:
            _log.info(
                "host_task_changed", task=key[1], status=said.status.value, reason=said.reason
            )
        self._told[key] = _Told(said, monotonic())
        if said.is_over or said.is_lost or not is_wanted:
            del self._tasks[key], self._told[key]
        if said.is_lost:
            self._lost.add(key)

    def _look(self, key: TaskKey, taken: _Taken) -> Impact:
        """Return how far a task is, as it is reported."""
        task = taken.task
        try:
            found = self.runner.inquire(task)
            if found.status is ImpactStatus.NOT_BEGUN and taken.is_refused:
                found = _TOO_LATE
            if found.status is ImpactStatus.NOT_BEGUN:  # just taken, or the disk was full
                found = self.runner.begin(task, taken) or self.runner.inquire(task)
                if found.status is ImpactStatus.NOT_BEGUN:
                    found = replace(found, status=ImpactStatus.RUNNING)  # it waits for a place
            found = judge(found, self.records.begun(key), self.boot_id)
        except OSError as error:
            found = Impact(status=ImpactStatus.RUNNING, reason=f"it cannot be begun: {error}")
        # When to ask again is our own business.
        return Impact(status=found.status, reason=found.reason, moved_to=found.moved_to)

    def _wait_after(self, error: UpstreamRefusedError | StoreUnavailableError) -> float:
        """Log *error* once, and return how long to wait; give up if nothing would ever change."""
        is_refusal = isinstance(error, UpstreamRefusedError) and error.status in _LASTING
        if is_refusal and not self._was_heard:
            raise WorkRefusedError(
                f"The server refuses this host: {error} Use a token from forewarn token create "
                "--relay HOST, and a server of this release or a later one."
            ) from error
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("server_not_reached", error=self._trouble)
        self._failures += 1
        return back_off(self._failures, self.chance())


def _read(listed: list[Any]) -> Iterator[OfferedTask]:
    for each in listed:
        try:
            task = read_host_task(each["order"])
            yield OfferedTask(task=task, is_taken=each["status"] in _TAKEN_STATUSES)
        except (InvalidTaskInputError, KeyError, TypeError) as error:
            _log.error("host_task_invalid", error=str(error))
