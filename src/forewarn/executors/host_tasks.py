"""Tasks of host operations as orders, and a worker that has contractors carry them out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName, check_name
from forewarn.domain.topology import Host
from forewarn.executors.command import Command
from forewarn.executors.fetched import FetchedByHost
from forewarn.executors.orders import Contractor, Contractors, OrderKind
from forewarn.executors.records import OrderKey
from forewarn.executors.targets import ImpactTarget
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventType

OPERATION_ID: Final = "Forewarn-Operation-Id"
OPERATION_TASK: Final = "Forewarn-Operation-Task"

HOST_TASKS: Final = OrderKind(
    headers=(OPERATION_ID, OPERATION_TASK),
    advice="check the host, then skip it",
    untold="the target gave no status URL, so its result will not be known",
)

M = TypeVar("M", Command, ImpactTarget, FetchedByHost)


class InvalidOrderError(ForewarnError):
    """An order that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """What the operator has for the hosts of a *rule*: who does each task."""

    rule: HostWorkRule
    means: Mapping[HostTaskKind, Command | ImpactTarget | FetchedByHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOrder:
    """A task of a host operation."""

    task: HostTask
    epoch: int

    @property
    def key(self) -> OrderKey:
        return self.task.operation_id, self.task.name

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


def find_for_host(
    works: Sequence[HostWork], host_called: Callable[[HostName], Host], means: type[M]
) -> Callable[[Mapping[str, Any]], M | None]:
    """Return how to find the *means* for a task, from what an order is about."""

    def find(about: Mapping[str, Any]) -> M | None:
        host, kind = host_called(HostName(about["host"])), HostTaskKind(about["task"])
        work = next((each for each in works if each.rule.fits(host)), None)
        found = None if work is None else work.means.get(kind)
        return found if isinstance(found, means) else None

    return find


class ContractedHostWorker:
    """Has contractors carry tasks out: the one that is named for a task in the file of executors.

    There is one at least.
    """

    def __init__(self, works: Sequence[HostWork], contractors: Sequence[Contractor]) -> None:
        self._works = works
        self._contractors = Contractors(contractors)
        self._any = contractors[0]

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        """Which hosts have work, in the order of the file."""
        return tuple(work.rule for work in self._works)

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        """Give the order, unless it was given before."""
        order = HostOrder(task=task, epoch=epoch)
        return self._choose(order).begin(order)

    def inquire(self, task: HostTask) -> Impact:
        """Ask the contractor that was given the order, or would be."""
        order = HostOrder(task=task, epoch=0)
        return self._choose(order).inquire(order.key)

    def close(self) -> None:
        """Close the contractors. Tasks that were begun are not stopped."""
        self._contractors.close()

    def _choose(self, order: HostOrder) -> Contractor:
        # Whoever it is says why it cannot be done if nobody is meant to do it.
        return self._contractors.choose(order) or self._any
