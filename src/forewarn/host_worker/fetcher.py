"""The loop of a host that does its own work: fetch, begin, report.

A task is taken from the server first, then written down, then begun; so it is begun at most once,
whoever is killed in between. Where it cannot be known whether it was, it is reported as unknown.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

import structlog

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import TaskKey
from forewarn.executors.command import Command
from forewarn.executors.host_tasks import HostOrder
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_log import TaskLog
from forewarn.feed.follower import back_off
from forewarn.feed.upstream import UpstreamRefusedError
from forewarn.host_worker.exchange import Exchange, OfferedTask
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
    "check the host, then skip it",
)


class _Taken:
    """The permit of a host: the server has it written down that the host took the task."""

    def obtain(self) -> bool:
        return True

    def is_valid(self) -> bool:
        return True


_TAKEN: Final = _Taken()

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
    _orders: dict[TaskKey, HostOrder] = field(init=False, default_factory=dict)
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
            for key, order in tuple(self._orders.items()):
                self._attend(key, order)
        except (UpstreamRefusedError, StoreUnavailableError) as error:
            return self._wait_after(error)
        if self._trouble or not self._was_heard:
            _log.info("server_reached")
        self._was_heard, self._trouble, self._failures = True, "", 0
        until_fetch = max(0.0, self._fetch_at - monotonic())
        return min(ATTEND_SECONDS, until_fetch) if self._orders else until_fetch

    def _fetch(self) -> None:
        for task in self.exchange.tasks():
            key = task.order.key
            if key not in self._orders and not (task.is_taken and key in self._lost):
                self._receive(task)

    def _receive(self, task: OfferedTask) -> None:
        key = task.order.key
        # Taken before, and remembered here: by this process or, before a crash, by another one.
        is_ours = task.is_taken and self.records.has(key)
        if not (is_ours or self.exchange.take(key, self._describe(task.order))):
            if task.is_taken:
                self.exchange.report(key, _NO_RECORD)
                self._lost.add(key)
            return
        _log.info("host_task_taken", operation_id=key[0], task=key[1])
        if not (self.records.has(key) or self.runner.takes(task.order)):
            reason = f"the host work file of the host names no program for {task.order.task.kind}"
            self.exchange.report(key, Impact(status=ImpactStatus.FAILED, reason=reason))
            return
        self._orders[key] = task.order

    def _describe(self, order: HostOrder) -> Mapping[str, object]:
        """Return how long the server waits for this host while it carries *order* out."""
        command = self.runner.find(order.about)
        if command is None:
            return {}
        described = self.runner.program.describe(order, command)
        seconds = min(command.timeout.total_seconds(), _LONGEST_TIMEOUT)
        return {"timeout_seconds": seconds, "restarts_host": described["restarts_host"]}

    def _attend(self, key: TaskKey, order: HostOrder) -> None:
        said = self._look(key, order)
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
            del self._orders[key], self._told[key]
        if said.is_lost:
            self._lost.add(key)

    def _look(self, key: TaskKey, order: HostOrder) -> Impact:
        """Return how far a task is, as it is reported."""
        try:
            found = self.runner.inquire(order)
            if found.status is ImpactStatus.NOT_BEGUN:  # just taken, or the disk was full
                found = self.runner.begin(order, _TAKEN) or self.runner.inquire(order)
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
