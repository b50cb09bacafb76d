"""/hosts: what carries virtual machines, and whether it takes more of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Operating, Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import CHANGES, Key, answer_seen, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import CloseRequest, EventView, HostPatch, View
from forewarn.desk.shapes import mirrors, several
from forewarn.domain.event import Share
from forewarn.domain.topology import split_by_update_domain
from forewarn.operations.context import Context
from forewarn.operations.hosts import (
    HostLoad,
    close_host,
    find_host,
    find_load,
    find_loads,
    open_host,
    remove_host,
)
from forewarn.operations.patches import patch_host
from forewarn.operations.repeats import RequestKey
from forewarn.operations.tasks import OFFERS, fetching_node
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventStatus

router = APIRouter(prefix="/hosts", tags=["places"], route_class=BodyRoute)


class HostView(View):
    """A host, the virtual machines on it, and how many events are in flight there."""

    name: str
    labels: Mapping[str, str]
    virtual_machines: tuple[str, ...]
    closed_at: datetime | None
    closed_by: str | None
    closed_reason: str | None
    events_scheduled: int
    events_started: int
    maintenance_ids: tuple[str, ...] = Field(description="The Maintenances of these events.")


@mirrors(Share)
class HostShareView(View):
    """The virtual machines on a host that share an update domain of a scope."""


class HostTaskView(View):
    """A task that the host has yet to fetch or finish. Times are real times."""

    task: str
    operation_id: str
    status: str
    offered_at: datetime
    heard_at: datetime | None
    reason: str


class HostDetailView(HostView):
    """A host with its update domains, the events in flight there, and its own work."""

    shares: tuple[HostShareView, ...]
    events: tuple[EventView, ...]
    tasks: tuple[HostTaskView, ...] = Field(
        description="The tasks that the host has yet to fetch or finish."
    )


@router.get("", **lists(several("hosts", HostView, "Every host.")))
def list_hosts(caller: Viewing, paging: Paged) -> Response:
    """Return every host."""
    loads = list(caller.read(find_loads).values())
    if paging.after is not None:
        hosts = [load.host for load in loads]
        loads = loads[hosts.index(find_host(hosts, paging.after)) + 1 :]
    return paging.answer("hosts", loads, lambda load: HostView(**_fields(load)), "host.name")


@router.get("/{name}", **shows(HostDetailView))
def show_host(caller: Viewing, name: str) -> Response:
    """Return one host."""
    return answer_seen(caller, lambda reading: _view(reading, name))


@router.patch("/{name}", name="host set", dependencies=CHANGES)
def change_host(caller: Administering, key: Key, name: str, request: HostPatch) -> HostDetailView:
    """Change labels of a host: only the named ones, and null removes one."""
    patch = request.model_dump(exclude_unset=True)
    return _change(caller, key, name, lambda tx, context: patch_host(tx, context, name, patch))


@router.post("/{name}/close", name="host close", dependencies=CHANGES)
def close(
    caller: Operating, key: Key, name: str, request: CloseRequest | None = None
) -> HostDetailView:
    """Close a host to new virtual machines; existing ones stay."""
    reason = request.reason if request else ""
    return _change(
        caller, key, name, lambda tx, context: close_host(tx, context, name, reason=reason)
    )


@router.post("/{name}/open", name="host open", dependencies=CHANGES)
def open_again(caller: Operating, key: Key, name: str) -> HostDetailView:
    """Open a closed host to virtual machines again."""
    return _change(caller, key, name, lambda tx, context: open_host(tx, context, name))


@router.delete("/{name}", name="host remove", dependencies=CHANGES)
def remove(caller: Administering, name: str) -> HostDetailView:
    """Remove a host that has no virtual machines and is not part of a Maintenance."""

    def operation(tx: Transaction, context: Context) -> HostDetailView:
        removed = _view(tx, name)
        remove_host(tx, context, name)
        return removed

    return caller.write(operation, current=lambda reading: _view(reading, name))


def _change(
    caller: Caller,
    key: RequestKey | None,
    name: str,
    change: Callable[[Transaction, Context], object],
) -> HostDetailView:
    return caller.change(key, HostDetailView, lambda reading: _view(reading, name), change)


def _view(reading: Reading, name: str) -> HostDetailView:
    topology = reading.topology()
    load = find_load(reading, name)
    shares = split_by_update_domain(topology, load.virtual_machines)
    tasks = tuple(
        {
            "task": task.name,
            "operation_id": task.subject,
            "status": OFFERS[task.state],
            "offered_at": task.reserved_at,
            "heard_at": task.heard_at,
            "reason": task.said.reason,
        }
        for task in reading.open_tasks(fetching_node(load.host.name))
    )
    parts = {"shares": shares, "events": load.events, "tasks": tasks}
    return HostDetailView.model_validate(_fields(load) | parts)


def _fields(load: HostLoad) -> dict[str, Any]:
    host, closure = load.host, load.host.closure
    statuses = Counter(event.event_status for event in load.events)
    found = (event.maintenance_id for event in load.events)
    return {
        "name": host.name,
        "labels": host.labels,
        "virtual_machines": load.virtual_machines,
        "closed_at": closure and closure.closed_at,
        "closed_by": closure and closure.closed_by,
        "closed_reason": closure and closure.closed_reason,
        "events_scheduled": statuses[EventStatus.SCHEDULED],
        "events_started": statuses[EventStatus.STARTED],
        "maintenance_ids": tuple(dict.fromkeys(filter(None, found))),
    }
