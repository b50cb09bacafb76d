"""/front/host-work: what a host fetches, and how it says that it took it and how far it is.

Its token is that of the relay, and confines it to its host. As the routes for relays it is plain
ASGI, and no part of the OpenAPI document; docs/reference/feed.md describes it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from forewarn.control.front import FRONT_PREFIX, identify_relay, read_body
from forewarn.desk.schemas import RequestModel
from forewarn.desk.services import Services
from forewarn.domain.errors import InvalidError, says
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, name_key
from forewarn.domain.task import Task, TaskKey
from forewarn.operations.context import Context
from forewarn.operations.tasks import (
    OFFERS,
    find_fetched_tasks,
    report_fetched_task,
    take_task,
)
from forewarn.ports.entries import Actor
from forewarn.ports.store import Transaction

_PREFIX: Final = f"{FRONT_PREFIX}/host-work"
_LONGEST_REASON: Final = 500
_LONGEST_TIMEOUT: Final = 30 * 86400.0


@says("Host {host!r} cannot be reported; a host can only report machines on itself.")
class OtherHostError(InvalidError):
    """A host that says that a virtual machine is somewhere else."""

    host: str


class OfferTaking(RequestModel):
    """The ticket of the process that takes a task, and how long its program may run.

    A process that asks again sends the same ticket. With *restarts_host*, the server waits for the
    host until that time is over.
    """

    ticket: Annotated[StrictStr, Field(min_length=16, max_length=64, pattern=r"^[\w-]+$")]
    timeout_seconds: Annotated[float, Field(gt=0, le=_LONGEST_TIMEOUT)] | None = None
    restarts_host: bool = False


class OfferReport(RequestModel):
    """How far a task is; *host* if the virtual machine that it returned is on the host now."""

    status: Literal["running", "done", "failed", "unknown"]
    reason: Annotated[StrictStr, Field(max_length=_LONGEST_REASON)] = ""
    host: Annotated[StrictStr, Field(max_length=128)] | None = None


def host_offer_routes() -> tuple[BaseRoute, ...]:
    """Return the routes for hosts that do their own work."""
    task = f"{_PREFIX}/{{operation_id}}/{{task}}"
    return (
        Route(_PREFIX, _list, methods=["GET"]),
        Route(f"{task}/take", _take, methods=["POST"]),
        Route(f"{task}/report", _report, methods=["POST"]),
    )


async def _list(request: Request) -> Response:
    _, host = identify_relay(request)
    services: Services = request.app.state.services
    described = await asyncio.to_thread(
        services.store.read,
        lambda reading: [_describe(task) for task in find_fetched_tasks(reading, host)],
    )
    return JSONResponse({"host": host, "tasks": described})


async def _take(request: Request) -> Response:
    identify_relay(request)
    details = (await read_body(request, OfferTaking)).model_dump(exclude_none=True)
    return await _write(request, partial(take_task, details=details))


async def _report(request: Request) -> Response:
    _, host = identify_relay(request)
    report = await read_body(request, OfferReport)
    if report.host is not None and name_key(report.host) != name_key(host):
        raise OtherHostError(report.host)
    said = Impact(
        status=ImpactStatus(report.status),
        reason="".join(filter(str.isprintable, report.reason)),
        moved_to=None if report.host is None else host,
    )
    return await _write(request, partial(report_fetched_task, said=said))


def _describe(task: Task) -> dict[str, object]:
    order = {**task.details["order"], "epoch": task.epoch}
    return {"name": task.name, "status": OFFERS[task.state], "order": order}


async def _write(
    request: Request,
    work: Callable[[Transaction, Context, HostName, TaskKey], None],
) -> Response:
    name, host = identify_relay(request)
    services: Services = request.app.state.services
    key = str(request.path_params["operation_id"]), str(request.path_params["task"])
    where = request.client.host if request.client else ""
    asked = replace(services.context(name), where=where, actor=Actor.OPERATOR)
    await asyncio.wrap_future(services.store.submit(lambda tx: work(tx, asked, host, key)))
    return Response(status_code=204)
