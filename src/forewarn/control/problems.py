"""Every refusal as a problem document (RFC 9457), from one table of errors and statuses."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from forewarn.connections.limits import StreamLimitError
from forewarn.connections.origins import HostRefusedError, OriginRefusedError
from forewarn.control.fastapi_parts import methods_of
from forewarn.desk.caller import PreconditionFailedError
from forewarn.desk.refusals import kind_of
from forewarn.desk.services import BusyError
from forewarn.domain.access import (
    AccessError,
    SignInLinksError,
    TokenExpiredError,
    TokenRevokedError,
)
from forewarn.domain.errors import ConflictError, InvalidError, NotFoundError, says
from forewarn.operations.access import redact
from forewarn.outbound.client import NoAnswerError
from forewarn.ports.leadership import NotLeadingError
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.invalid_values import say_invalid
from forewarn.wording.statuses import name_of_status

_log = structlog.get_logger(__name__)


class UnauthorizedError(ForewarnError):
    """No token, or one that nobody was given."""

    def __init__(self, *, given: bool) -> None:
        problem = "Unknown token." if given else "The request has no bearer token."
        super().__init__(
            f"{problem} The admin token is in admin.token in the state directory; "
            "use it with forewarn token create to create others."
        )


class ApiVersionError(ForewarnError):
    """No api-version, or one that is not a date."""

    def __init__(self, given: str | None) -> None:
        problem = "is missing" if given is None else f"{given[:40]!r} is not a valid date"
        super().__init__(f"The api-version {problem}; use api-version=2023-10-01-preview.")


class ResourceTypeError(NotFoundError):
    """A type of resources that has no scheduled events."""

    def __init__(self, resource_type: str) -> None:
        super().__init__(
            f"Microsoft.Compute/{resource_type[:40]} has no scheduled events; use "
            "virtualMachines, virtualMachineScaleSets or availabilitySets."
        )


@says("A virtual machine called {vm!r} already exists.")
class VirtualMachineExistsError(ConflictError):
    """A virtual machine is added under a name that is taken."""

    vm: str


STATUSES: Final[Mapping[type[ForewarnError], HTTPStatus]] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    InvalidError: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    TokenExpiredError: HTTPStatus.UNAUTHORIZED,
    TokenRevokedError: HTTPStatus.UNAUTHORIZED,
    AccessError: HTTPStatus.FORBIDDEN,
    OriginRefusedError: HTTPStatus.FORBIDDEN,
    HostRefusedError: HTTPStatus.MISDIRECTED_REQUEST,
    ApiVersionError: HTTPStatus.BAD_REQUEST,
    PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
    BusyError: HTTPStatus.TOO_MANY_REQUESTS,
    StreamLimitError: HTTPStatus.TOO_MANY_REQUESTS,
    SignInLinksError: HTTPStatus.TOO_MANY_REQUESTS,
    NotLeadingError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    NoAnswerError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of each kind of error, and of those below it."""


def refusals() -> Iterator[type[ForewarnError]]:
    """Yield what the control API refuses with: each error with a status, or of such a base."""
    bases = (NotFoundError, ConflictError, InvalidError)
    for error in STATUSES:
        yield from error.__subclasses__() if error in bases else (error,)


_HTTP_KINDS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.NOT_FOUND: "not-found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method-not-allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body-too-large",
}

_HEADERS: Final[Mapping[HTTPStatus, Mapping[str, str]]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Bearer realm="forewarn"'},
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "10"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
_MEMBERS: Final = (
    "table", "index", "entry", "key", "vm", "vms", "host", "name", "scope", "setting", "address",
    "event_id", "event_ids", "event_status", "in_flight", "limit", "earliest", "maintenance_id",
    "line", "scenario", "run_id", "role", "needed", "notification_id", "target", "since",
    "gate", "zone", "labels", "update_domain", "removals",
)  # fmt: skip
"""The attributes of errors that a problem document carries on, where there are any."""


_ARM_CODES: Final[Mapping[str, str]] = {
    "unauthorized": "AuthenticationFailed",
    "token-expired": "AuthenticationFailed",
    "token-revoked": "AuthenticationFailed",
    "role-too-low": "AuthorizationFailed",
    "unknown-resource": "ResourceNotFound",
    "unknown-event": "NotFound",
    "resource-type": "InvalidResourceType",
    "api-version": "InvalidApiVersionParameter",
}
"""What Azure Resource Manager calls the kinds that it has, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refusal, before it has the path it is about."""

    kind: str
    status: HTTPStatus
    detail: str
    members: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


_FAILURE: Final = Problem(
    kind="internal",
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="Internal server error; see the server's log.",
)


def status_of(error: type[ForewarnError]) -> HTTPStatus:
    """Return the status of *error*: that of the nearest of its bases that has one."""
    kinds = (kind for kind in error.__mro__ if kind in STATUSES)
    return STATUSES.get(next(kinds, ForewarnError), HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_of(error: ForewarnError) -> Problem:
    """Return the problem that *error* is to the caller."""
    status = status_of(type(error))
    members = {name: getattr(error, name, None) for name in _MEMBERS}
    if mistakes := getattr(error, "mistakes", None):
        members["mistakes"] = [_mistake(each) for each in mistakes]
    return Problem(
        kind=kind_of(error),
        status=status,
        detail=str(error),
        members={name: value for name, value in members.items() if value is not None},
        headers=_HEADERS.get(status, {}),
    )


def _mistake(error: ForewarnError) -> dict[str, object]:
    problem = problem_of(error)
    return {"type": _urn(problem), "detail": problem.detail, **problem.members}


def respond(problem: Problem, path: str) -> Response:
    """Return *problem* as the answer to a request for *path*."""
    if is_arm_path(path):
        code = _ARM_CODES.get(problem.kind, problem.kind.title().replace("-", ""))
        error = {"error": {"code": code, "message": problem.detail}}
        return JSONResponse(error, problem.status, dict(problem.headers))
    return Response(
        problem_document(problem, path),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )


def problem_document(problem: Problem, path: str) -> bytes:
    """Return *problem* as JSON, as the answer to a request for *path*."""
    document = {
        "type": _urn(problem),
        "title": name_of_status(problem.status),
        "status": problem.status.value,
        "detail": problem.detail,
        "instance": path,
        **problem.members,
    }
    # ASCII, because what is refused may be text that has no encoding.
    return json.dumps(document, default=_plain).encode("ascii")


def is_arm_path(path: str) -> bool:
    """Tell whether *path* is one of Azure Resource Manager, where errors have its envelope."""
    return path.lower().startswith("/subscriptions/")


def handle_problems(app: FastAPI) -> None:
    """Have *app* answer every error with a problem document."""
    for kind in (ForewarnError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(ClientDisconnect, _give_up)


def _give_up(_request: Request, _disconnect: Exception) -> Response:
    return Response(status_code=400)  # which nobody reads


def _refuse(request: Request, error: Exception) -> Response:
    match error:
        case ForewarnError():
            problem = problem_of(error)
        case RequestValidationError():
            problem = problem_of_request(error)
        case HTTPException():
            problem = _problem_of_path(request, error)
        case _:
            problem = _FAILURE
    if problem.status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("control_request_failed", path=redact(request.url.path), exc_info=error)
        return respond(_FAILURE, request.url.path)
    request.state.problem = problem  # for the audit
    return respond(problem, request.url.path)


def problem_of_request(error: RequestValidationError) -> Problem:
    """Return the problem that a request has that is not like its schema."""
    errors = [
        {"location": _location(found), "detail": f"{say_invalid(found)}."}
        for found in error.errors()[:10]
    ]
    return Problem(
        kind="invalid-request",
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        detail=" ".join(f"{found['location']}: {found['detail']}" for found in errors[:1]),
        members={"errors": errors},
    )


def _problem_of_path(request: Request, error: HTTPException) -> Problem:
    status = HTTPStatus(error.status_code)
    is_method = status is HTTPStatus.METHOD_NOT_ALLOWED
    return Problem(
        kind=_HTTP_KINDS.get(status, "bad-request"),
        status=status,
        detail=f"{error.detail.removesuffix('.')}.",
        headers={"Allow": ", ".join(methods_of(request))} if is_method else error.headers or {},
    )


def _location(found: Mapping[str, Any]) -> str:
    # What is no JSON is located by a number of characters, which the message has too.
    parts = found["loc"][:1] if found.get("type") == "json_invalid" else found["loc"]
    named = [str(part) for part in parts]
    return ".".join(named[1:] or named)


def _urn(problem: Problem) -> str:
    return f"urn:forewarn:problem:{problem.kind}"


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
