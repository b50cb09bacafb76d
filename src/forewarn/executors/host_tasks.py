"""Tasks of host operations as orders."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName, check_name
from forewarn.domain.task import TaskKey
from forewarn.executors.orders import OrderKind
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventType

OPERATION_ID: Final = "Forewarn-Operation-Id"
OPERATION_TASK: Final = "Forewarn-Operation-Task"

HOST_TASKS: Final = OrderKind(
    headers=(OPERATION_ID, OPERATION_TASK),
    advice="check the host, then skip it",
    untold="the target gave no status URL, so its result will not be known",
)


class InvalidOrderError(ForewarnError):
    """An order that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOrder:
    """A task of a host operation."""

    task: HostTask
    epoch: int
    status_url: str | None = None

    @property
    def key(self) -> TaskKey:
        return self.task.operation_id, self.task.name

    @property
    def kind(self) -> OrderKind:
        return HOST_TASKS

    @property
    def about(self) -> Mapping[str, str | None]:
        return {"task": self.task.kind, "host": self.task.host}

    def describe(self) -> dict[str, object]:
        task = self.task
        return {
            "operation_id": task.operation_id,
            "maintenance_id": task.maintenance_id,
            "event_type": task.event_type,
            "host": task.host,
            "task": task.kind,
            "attempt": task.attempt,
            "vm": task.vm,
            "epoch": self.epoch,
        }

    def variables(self) -> Mapping[str, object]:
        task = self.task
        return {
            "OPERATION_ID": task.operation_id,
            "OPERATION_TASK": task.kind,
            "OPERATION_HOST": task.host,
            "OPERATION_ATTEMPT": task.attempt,
            "OPERATION_VM": task.vm or "",
            "OPERATION_EPOCH": self.epoch,
            "MAINTENANCE_ID": task.maintenance_id,
            "EVENT_TYPE": task.event_type,
        }

    def nobody(self, means: str) -> str:
        del means  # a task may have either
        return f"the executor file has no {self.task.kind} for host {self.task.host}"


def read_order(content: Mapping[str, Any]) -> HostOrder:
    """Return the order that `describe` has described, or refuse with InvalidOrderError.

    It may come from anywhere, and its names become those of files.
    """
    try:
        kind = HostTaskKind(content["task"])
        task = HostTask(
            operation_id=OperationId(_name(content, "operation_id")),
            maintenance_id=MaintenanceId(_name(content, "maintenance_id")),
            event_type=EventType(content["event_type"]),
            host=HostName(_name(content, "host")),
            kind=kind,
            attempt=int(content["attempt"]),
            # Only a return is about a virtual machine, and it has to be.
            vm=VmName(_name(content, "vm")) if kind is HostTaskKind.RETURN else None,
        )
        return HostOrder(task=task, epoch=int(content["epoch"]))
    except (KeyError, TypeError, ValueError, ForewarnError) as error:
        raise InvalidOrderError(f"The server sent an invalid order: {error!r}.") from error


def _name(content: Mapping[str, Any], key: str) -> str:
    name = content[key]
    if not isinstance(name, str):
        raise TypeError(key)
    check_name(name, key)
    return name
