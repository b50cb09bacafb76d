"""A task as its runner gets it, and what a runner is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import (
    HostName,
    MaintenanceId,
    OperationId,
    VmName,
    check_name,
    is_meant,
)
from forewarn.domain.task import TaskKey
from forewarn.domain.topology import Host
from forewarn.operations.views import describe_change
from forewarn.protocol.dates import write_date
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventType, ResourceType

LONGEST: Final = timedelta(hours=1)
"""How long a task may take unless the operator says otherwise."""

PAUSED: Final = "it is waiting because the server is paused"
"""The reason of a task that does not begin because of a pause."""

_HEADERS: Final = ("Forewarn-Event-Id", "Forewarn-Virtual-Machine")
_HOST_HEADERS: Final = ("Forewarn-Operation-Id", "Forewarn-Operation-Task")


class InvalidTaskInputError(ForewarnError):
    """A description of a task that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """A task to carry out at most once for its *key*, as programs and webhooks get it.

    *kind* says which part of the work on *host* it is; an impact has none. *content* has JSON's
    types. *epoch* is the term of the leader that reserved it, and *status_url* is where to ask
    about its progress, once the target of a webhook has accepted it. One that *is_settled* has
    ended by an operator's word; runners only report on it.
    """

    key: TaskKey
    event_type: EventType
    host: HostName | None
    kind: HostTaskKind | None = None
    epoch: int
    content: Mapping[str, Any]
    variables: Mapping[str, object]
    status_url: str | None = None
    is_settled: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The key as headers of a request."""
        return dict(zip(_HOST_HEADERS if self.kind else _HEADERS, self.key, strict=True))

    @property
    def advice(self) -> str:
        """What an operator does if its result is lost."""
        if self.kind:
            return "check the host, then settle the task"
        return "check the virtual machine, then settle the task"

    @property
    def without_status_url(self) -> str:
        """What to say if the target of a webhook names no place to ask."""
        if self.kind:
            return "the target gave no status URL, so its result will not be known"
        return "complete the event when it has ended"

    def encode(self) -> bytes:
        """Return the content as JSON."""
        return json.dumps(self.content, separators=(",", ":")).encode()

    def environment(self) -> dict[str, str]:
        """Return the variables as any environment can have them.

        TASK_ID is the name by which operators know the task, and targets can fence by.
        """
        variables = {"TASK_ID": "/".join(self.key), **self.variables}
        return {name: _fit(str(value)) for name, value in variables.items()}

    def unassigned(self, executor: str) -> str:
        """Return the reason if the executor file has no such *executor* for it."""
        if self.kind:
            return f"the executor file has no {self.kind} for host {self.host}"
        where = f"on host {self.host}" if self.host else "without a host"
        return f"the executor file has no {executor} for a {self.event_type} {where}"


def impact_input(
    event: ScheduledEvent,
    vm: VmName,
    host: HostName | None,
    *,
    epoch: int,
    status_url: str | None = None,
) -> TaskInput:
    """Return the impact of *event* on *vm*, which runs on *host*."""
    duration = event.duration_in_seconds
    return TaskInput(
        key=(event.event_id, vm),
        event_type=event.event_type,
        host=host,
        epoch=epoch,
        content={**describe_change(event), "vm": vm, "host": host, "epoch": epoch},
        variables={
            "EVENT_ID": event.event_id,
            "EVENT_TYPE": event.event_type,
            "EVENT_STATUS": event.event_status,
            "EVENT_SOURCE": event.event_source,
            "EVENT_RESOURCETYPE": ResourceType.VIRTUAL_MACHINE,
            "EVENT_RESOURCES": " ".join(event.resources),
            "EVENT_NOTBEFORE": write_date(event.not_before, DateForm.RFC_1123),
            "EVENT_DURATION": -1 if duration is None else duration,
            "EVENT_DESCRIPTION": event.description,
            "EVENT_VM": vm,
            "EVENT_HOST": host or "",
            "EVENT_EPOCH": epoch,
        },
        status_url=status_url,
    )


def host_task_input(task: HostTask, *, epoch: int, status_url: str | None = None) -> TaskInput:
    """Return a part of the work on a host."""
    return TaskInput(
        key=(task.operation_id, task.name),
        event_type=task.event_type,
        host=task.host,
        kind=task.kind,
        epoch=epoch,
        content={
            "operation_id": task.operation_id,
            "maintenance_id": task.maintenance_id,
            "event_type": task.event_type,
            "host": task.host,
            "task": task.kind,
            "attempt": task.attempt,
            "vm": task.vm,
            "epoch": epoch,
        },
        variables={
            "OPERATION_ID": task.operation_id,
            "OPERATION_TASK": task.kind,
            "OPERATION_HOST": task.host,
            "OPERATION_ATTEMPT": task.attempt,
            "OPERATION_VM": task.vm or "",
            "OPERATION_EPOCH": epoch,
            "MAINTENANCE_ID": task.maintenance_id,
            "EVENT_TYPE": task.event_type,
        },
        status_url=status_url,
    )


def read_host_task(content: Mapping[str, Any]) -> TaskInput:
    """Return the part of the work on a host that has this *content*, or refuse it.

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
        return host_task_input(task, epoch=int(content["epoch"]))
    except (KeyError, TypeError, ValueError, ForewarnError) as error:
        raise InvalidTaskInputError(f"The server sent an invalid task: {error!r}.") from error


class Permit(Protocol):
    """The right to begin one task, which only its owner gets, and only once.

    *refusal* is how the task ends if there is no runner for it: failed, unless it has begun before.
    """

    @property
    def refusal(self) -> ImpactStatus: ...

    def obtain(self) -> bool:
        """Commit that the task begins; tell whether it may."""

    def is_valid(self) -> bool:
        """Tell whether it still may now."""


class Runner(Protocol):
    """Carries out tasks of this node, each at most once, also if the server dies in between.

    No method waits for a script or a target. A runner that *repeats* may be told to begin a task
    again of which it has no record, because the target recognizes it.
    """

    @property
    def repeats(self) -> bool: ...

    def begin(self, task: TaskInput, permit: Permit) -> Impact | None:
        """Begin *task*, unless it was begun before; None while that is under way.

        Nothing outside is touched before the *permit* is obtained.
        """

    def inquire(self, task: TaskInput) -> Impact:
        """Say how far *task* is; NOT_BEGUN if there is no record of it."""

    def close(self) -> None:
        """Wait until what is being begun has begun. What was begun is not stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """For which events and hosts something is meant; where nothing is named, for all.

    Hosts are named in any case, and may be patterns; they carry all of *labels*.
    """

    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def fits(self, event_type: EventType, host: Host | None) -> bool:
        """Tell whether it is meant for an event of this type on this host."""
        is_type = not self.event_types or event_type in self.event_types
        return is_type and self.is_for_host(host)

    def is_for_host(self, host: Host | None) -> bool:
        """Tell whether it is meant for events on this host, of whatever type."""
        name, labels = (host.name, host.labels) if host else ("", {})
        return is_meant(name, self.hosts) and self.labels.items() <= labels.items()


def begun_by_another(executor: str) -> Impact:
    """Say that a task is with an *executor* that cannot be asked."""
    reason = f"it was begun by the executor {executor!r}, which this server does not have"
    return Impact(status=ImpactStatus.UNKNOWN, reason=reason)


def next_second(now: datetime) -> datetime:
    """Return when to ask again: all that run at the same moment, in one turn of the loop."""
    return now.replace(microsecond=0) + timedelta(seconds=1)


def _name(content: Mapping[str, Any], key: str) -> str:
    name = content[key]
    if not isinstance(name, str):
        raise TypeError(key)
    check_name(name, key)
    return name


def _fit(value: str) -> str:
    """Return *value* as an environment can have it: without NUL and halves of characters."""
    return value.replace("\0", "").encode(errors="replace").decode()
