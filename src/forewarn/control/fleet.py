"""/fleet: all of it, in the structure of the fleet file.

A fleet may have a hundred thousand virtual machines, and polls are answered while it is read,
checked and written: on threads, in steps after each of which others get their turn.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from forewarn.control.bodies import BodyRoute
from forewarn.control.bulk import ImportStep, Progress, calmly, follow, let_go, read_declaration
from forewarn.control.caller import Administering, Viewing
from forewarn.control.problems import Problem, problem_document, problem_of, problem_of_request
from forewarn.control.routes import TAKES_IF_MATCH, answer_seen, shows
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import DifferenceView, FleetChangeView, FleetRequest
from forewarn.files.declarations import declare_fleet
from forewarn.files.fleet import Fleet, examine_fleet
from forewarn.operations.inventory import FleetChange, apply_fleet, plan_fleet
from forewarn.operations.safeguards import ApplyOptions
from forewarn.ports.store import Reading
from forewarn.protocol.errors import ForewarnError

router = APIRouter(prefix="/fleet", tags=["fleet"], route_class=BodyRoute)


def _schema(request: type[BaseModel]) -> dict[str, Any]:
    # What it refers to is in the answers, too, and so among the components.
    schema = request.model_json_schema(ref_template="#/components/schemas/{model}")
    del schema["$defs"]
    return schema


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LINES: Final = "application/x-ndjson"
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _schema(FleetRequest)}},
    }
}
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": FleetChangeView,
        "description": "The changes. Clients that accept application/x-ndjson get lines of JSON: "
        "the progress, and in the last line the changes or the problem.",
        "content": {_LINES: {"schema": {"type": "string"}}},
    }
}


@router.get("", **shows(dict[str, JsonValue]))
def show_fleet(caller: Viewing) -> Response:
    """Return the whole fleet, in a form that can be applied again."""
    return answer_seen(caller, _shown)


@router.post(
    "",
    name="fleet apply",
    openapi_extra=_BODY,
    responses=_ANSWER,
    dependencies=[TAKES_IF_MATCH],
)
async def apply(caller: Administering, request: Request) -> Response:
    """Apply a declared fleet, completely or not at all, or report what would change."""
    body = [chunk async for chunk in request.stream()]
    if _LINES in request.headers.get("accept", ""):
        audit = request.state.audit  # which may outlive the request
        lines = follow(lambda progress: _answer(request, caller, body, progress, audit))
        return StreamingResponse(lines, media_type=_LINES)
    answer = await run_in_threadpool(_apply, caller, body, lambda *_: None)
    return Response(answer, media_type="application/json")


def _answer(
    request: Request,
    caller: Caller,
    body: list[bytes],
    progress: Progress,
    audit: Callable[[Problem], None],
) -> bytes:
    """Return the change or the problem, which is in the audit then, whoever still listens."""
    try:
        return _apply(caller, body, progress)
    except ForewarnError as refusal:
        problem = problem_of(refusal)
    except RequestValidationError as refusal:
        problem = problem_of_request(refusal)
    audit(problem)
    return problem_document(problem, request.url.path)


def _apply(caller: Caller, body: list[bytes], progress: Progress) -> bytes:
    with calmly(sum(map(len, body))):
        order = read_declaration(body, progress)
        fleet = examine_fleet(order.fleet)
        let_go(order.fleet)
        progress(ImportStep.CHECKING, len(fleet.virtual_machines))
        change = _change(caller, fleet, order, progress)
        return _encode_change(change)


def _change(caller: Caller, fleet: Fleet, order: FleetRequest, progress: Progress) -> FleetChange:
    context = caller.context()
    options = ApplyOptions(
        prune=order.prune,
        skip_busy=order.skip_busy,
        allow_removals=order.allow_removals,
        as_is=order.as_is,
    )
    plan = caller.read(
        lambda reading: plan_fleet(reading, context, fleet, options),
        current=_shown if order.dry_run else None,
    )
    if order.dry_run:
        return plan.change
    # Whoever else has something to write waits for the transaction, so that as little as can be is
    # done in it.
    prepared = caller.read(lambda reading: reading.prepare_topology(plan.after))
    plan = replace(plan, prepared=prepared)
    progress(ImportStep.WRITING, len(fleet.virtual_machines))
    return caller.write(
        lambda tx, context: apply_fleet(tx, context, fleet, options=options, plan=plan),
        current=_shown,
    )


def _encode_change(change: FleetChange) -> bytes:
    # Difference by difference, as all at once would hold up the polls.
    differences = (
        DifferenceView.model_validate(each).model_dump_json() for each in change.differences
    )
    told = {name: getattr(change, name) for name in FleetChangeView.model_fields}
    told["skipped"] = [asdict(each) for each in change.skipped]
    members = {key: _encode(value) for key, value in told.items() if key != "differences"}
    members["differences"] = f"[{','.join(differences)}]"
    return f"{{{','.join(f'{_encode(key)}:{text}' for key, text in members.items())}}}".encode()


def _shown(reading: Reading) -> bytes:
    # Entry by entry: one call that encodes everything would hold up the polls.
    tables = (
        f"{_encode(table)}:[{','.join(map(_encode, entries))}]"
        for table, entries in declare_fleet(reading.topology()).items()
    )
    return f"{{{','.join(tables)}}}".encode()
