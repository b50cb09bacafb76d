"""What a host asks its server: which tasks there are, to have one, and to hear how far it is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from forewarn.domain.impact import Impact
from forewarn.domain.task import TaskKey
from forewarn.executors.host_tasks import HostOrder, InvalidOrderError, read_order
from forewarn.feed.upstream import UpstreamRefusedError

_LONGEST_REASON: Final = 500
_TAKEN: Final = frozenset({"taken", "unknown"})
"""What a task was taken with: *unknown* is one that the server has not heard of for long."""
_GONE: Final = frozenset({404, 409})
"""How the server answers about a task that is not, or no longer, for whoever asks."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTask:
    """A task as the server lists it; a process of this host has taken it if it *is_taken*."""

    order: HostOrder
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


def _read(listed: list[Any]) -> Iterator[OfferedTask]:
    for each in listed:
        try:
            order = read_order(each["order"])
            yield OfferedTask(order=order, is_taken=each["status"] in _TAKEN)
        except (InvalidOrderError, KeyError, TypeError) as error:
            _log.error("host_task_invalid", error=str(error))
