"""The metadata endpoint as an ASGI callable.

Plain polls, which are nearly all requests, never get here: `PlainPolls` answers them. Every other
request takes this long way: who is calling, which path, which method, then its handler.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeAlias

import structlog

from forewarn.connections.crowd import Origin
from forewarn.domain.errors import UnknownEventError
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import (
    CLOSE,
    PREFERENCE_APPLIED,
    REFUSALS,
    REQUEST_ID,
    DisconnectedError,
    Header,
    HttpScope,
    MetadataAnswer,
    MetadataRefusedError,
    MetadataRequest,
    Receive,
    Send,
    answer_json,
    read_body,
    read_headers,
    read_parameters,
    require_dated_version,
    require_header,
)
from forewarn.metadata.board import Board, PrintedDocument
from forewarn.metadata.conditional import matches, preferred_wait
from forewarn.metadata.extension import answer_event, answer_postpone, answer_whoami
from forewarn.metadata.faulty import Faulty
from forewarn.metadata.identity import Identifier, Peer
from forewarn.metadata.instance import answer_instance
from forewarn.metadata.plain_polls import PARKED_PER_VM, PlainPolls
from forewarn.ports.faults import Faults
from forewarn.ports.metrics import Tally
from forewarn.ports.store import StoreUnavailableError
from forewarn.ports.verbs import Verbs
from forewarn.protocol.errors import MalformedStartRequestsError, Refusal
from forewarn.protocol.start_requests import decode_start_requests
from forewarn.protocol.versions import VERSIONS_BY_NAME
from forewarn.protocol.vocabulary import SCHEDULED_EVENTS_PATH, EventId, event_id

_log = structlog.get_logger(__name__)

Handler: TypeAlias = Callable[[MetadataRequest], Awaitable[MetadataAnswer]]

_INSTANCE: Final = "/metadata/instance"
_EXTENSION: Final = "/metadata/forewarn/v1"
_ADDED: Final[Mapping[Refusal, tuple[Header, ...]]] = {
    Refusal.BODY_TOO_LARGE: (CLOSE,),
    Refusal.TOO_MANY_WAITING: ((b"Retry-After", b"1"),),
    Refusal.UNAVAILABLE: ((b"Retry-After", b"1"),),
}


class MetadataApp:
    """Answers virtual machines."""

    def __init__(
        self,
        *,
        board: Board,
        identity: Identifier,
        verbs: Verbs,
        polled: Callable[[VmName], None],
        faults: Faults,
        tally: Tally | None = None,
    ) -> None:
        self._board = board
        self._identity = identity
        self._verbs = verbs
        self._polled = polled
        self._tally = tally or Tally()
        self._polls = self._tally.polls
        self._faults = faults
        self._faulty = Faulty(faults, board)
        self._request_ids = _request_ids()
        self.plain_polls = PlainPolls(
            board=board,
            identity=identity,
            polled=polled,
            faults=faults,
            tally=self._tally,
            request_ids=self._request_ids,
        )
        self._parked = self.plain_polls.parked
        self._resources: Mapping[str, Mapping[str, Handler]] = {
            SCHEDULED_EVENTS_PATH: {**_for_reading(self._read), "POST": self._request_start},
            "/metadata/versions": _for_reading(self._list_versions),
            _INSTANCE: _for_reading(self._describe_instance),
            "/metadata": _for_reading(self._refuse_root),
            "/metadata/identity/oauth2/token": _for_reading(self._refuse_token),
            "/metadata/attested/document": _for_reading(self._refuse_attestation),
            f"{_EXTENSION}/whoami": _for_reading(self._tell_who),
        }
        self._event = _for_reading(self._describe_event)
        self._event_postpone: Mapping[str, Handler] = {"POST": self._postpone}

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except (DisconnectedError, asyncio.CancelledError):
            return  # a server that stops has lost patience; the task ends here in any case
        if scope["method"] == "POST":
            self._tally.posts += 1
        if answer.status >= 400:
            self._tally.refusals[answer.status] += 1
        request_id = (REQUEST_ID, next(self._request_ids))
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [*answer.headers, request_id],
            }
        )
        body = answer.body
        if answer.seconds and scope["method"] != "HEAD":
            body = await self._faulty.drip(answer, scope["extensions"]["connection"], send)
        await send({"type": "http.response.body", "body": body})

    def note_unreadable(self, status: int, peer: Peer) -> None:
        """Take no note: the crowd has counted it."""

    def find_origin(self, address: str | None) -> Origin:
        """Return with whom a connection from *address* counts."""
        return self._identity.find_origin(address)

    def stop_waiting(self) -> None:
        """Answer every parked poll now, and park no more."""
        self.plain_polls.is_stopping = True
        self._faulty.stop_waiting()
        self._board.waiters.wake()

    async def _answer(self, scope: HttpScope, receive: Receive) -> MetadataAnswer:
        try:
            return await self._handle(scope, receive)
        except MetadataRefusedError as refused:
            return _refuse(refused.refusal)
        except StoreUnavailableError:
            return _refuse(Refusal.UNAVAILABLE)
        except DisconnectedError:
            raise
        except Exception:  # noqa: BLE001 - the top of a request
            _log.exception("metadata_request_failed", path=scope["path"])
            return _refuse(Refusal.FAILED)

    async def _handle(self, scope: HttpScope, receive: Receive) -> MetadataAnswer:
        headers = read_headers(scope["headers"])
        caller = self._identity.identify(scope, headers)
        request = MetadataRequest(
            method=scope["method"],
            path=caller.path.lower().rstrip("/"),
            parameters=read_parameters(scope["query_string"]),
            headers=headers,
            vm=caller.vm,
            address=caller.address,
            receive=receive,
            extensions=scope["extensions"],
        )
        is_new = "has_waited" not in request.extensions
        if is_new and request.vm is not None and request.vm.name in self._faults:
            answer = await self._faulty.interfere(request, request.vm)
            if answer is not None:
                return answer
        handlers = self._handlers(request.path)
        if handlers is None:
            raise MetadataRefusedError(_refuse_path(request))
        handler = handlers.get(request.method)
        if handler is None:
            answer = REFUSALS[Refusal.METHOD_NOT_ALLOWED]
            allow = (b"Allow", ", ".join(handlers).encode("ascii"))
            return replace(answer, headers=(*answer.headers, allow))
        answer = await handler(request)
        if request.vm is not None and request.vm.name in self._faults:
            return await self._faulty.damage(answer, request, request.vm)
        return answer

    def _handlers(self, path: str) -> Mapping[str, Handler] | None:
        if path in self._resources:
            return self._resources[path]
        if path.startswith(f"{_INSTANCE}/"):
            return self._resources[_INSTANCE]
        match path.removeprefix(f"{_EXTENSION}/events/").split("/"):
            case [identifier] if identifier and identifier != path:
                return self._event
            case [identifier, "postpone"] if identifier:
                return self._event_postpone
        return None

    async def _read(self, request: MetadataRequest) -> MetadataAnswer:
        require_header(request)
        version = self._require_version(request)
        vm = await self._require_vm(request)
        if request.method == "GET" and "has_waited" not in request.extensions:
            self._polled(vm.name)
            self._polls[version] += 1
        replay = request.extensions.get("replay")
        if replay is not None:
            return self._faulty.read_nothing(vm) or await replay(request)
        return await self._read_document(request, vm, version)

    async def _read_document(
        self, request: MetadataRequest, vm: VirtualMachine, version: str
    ) -> MetadataAnswer:
        if_none_match = request.headers.get(b"if-none-match", b"")
        page = self._board.page(vm, version)
        seconds = preferred_wait(request.headers.get(b"prefer", b""))
        applied: tuple[Header, ...] = ()
        if seconds is not None and if_none_match and request.method == "GET":
            applied = ((PREFERENCE_APPLIED, f"wait={seconds}".encode("ascii")),)
            if seconds and matches(if_none_match, page.etag):
                page = await self._wait_for_change(request, vm, page, version, seconds)
                applied += (CLOSE,) if self.plain_polls.is_stopping else ()
        if vm.name in self._faults:  # perhaps since it began to wait
            return self._faulty.read(vm, version, if_none_match)
        if matches(if_none_match, page.etag):
            return MetadataAnswer(status=304, headers=page.not_modified_headers + applied)
        return MetadataAnswer(body=page.body, headers=page.headers + applied)

    async def _wait_for_change(
        self,
        request: MetadataRequest,
        vm: VirtualMachine,
        page: PrintedDocument,
        version: str,
        seconds: int,
    ) -> PrintedDocument:
        def where_to_wait() -> ScopeId | None:
            known = self._board.vm_named(vm.name)
            if known is None or self.plain_polls.is_stopping or known.name in self._faults:
                return None
            return known.scope_id if self._board.page(known, version).etag == page.etag else None

        if self._parked[vm.name] >= PARKED_PER_VM:
            raise MetadataRefusedError(Refusal.TOO_MANY_WAITING)
        self._parked[vm.name] += 1
        try:
            await self._board.waiters.wait(
                where_to_wait, until=request.connection["impatient"], seconds=seconds
            )
        finally:
            self._parked[vm.name] -= 1
            if not self._parked[vm.name]:
                del self._parked[vm.name]
        if request.connection["lost"].is_set():
            raise DisconnectedError
        known = self._board.vm_named(vm.name)
        if known is None:
            raise MetadataRefusedError(Refusal.NOT_FOUND)
        return self._board.page(known, version)

    async def _request_start(self, request: MetadataRequest) -> MetadataAnswer:
        body = await read_body(request)
        name = (request.parameters or {}).get("api-version", "")
        version = VERSIONS_BY_NAME.get(name)
        if version is None or version.metadata_header_on_post:
            require_header(request)
        self._require_version(request)
        try:
            event_ids = decode_start_requests(body)
            vm = await self._require_vm(request)
            await self._verbs.request_start(vm.name, event_ids, where=request.address)
        except MalformedStartRequestsError:
            raise MetadataRefusedError(Refusal.BODY_MALFORMED) from None
        except UnknownEventError:
            if "replay" not in request.extensions:  # it may have been recorded
                raise MetadataRefusedError(Refusal.EVENT_UNKNOWN) from None
        return MetadataAnswer()

    async def _list_versions(self, request: MetadataRequest) -> MetadataAnswer:
        await self._require_caller(request)
        return answer_json({"apiVersions": list(VERSIONS_BY_NAME)})

    async def _describe_instance(self, request: MetadataRequest) -> MetadataAnswer:
        require_header(request)
        parameters = require_dated_version(request)
        vm = await self._require_vm(request)
        return answer_instance(
            vm,
            self._board.delivery_scope(vm),
            path=request.path.split("/")[3:],
            form=parameters.get("format", "json").lower(),
        )

    async def _refuse_root(self, request: MetadataRequest) -> MetadataAnswer:
        require_header(request)
        require_dated_version(request)
        await self._require_vm(request)
        raise MetadataRefusedError(Refusal.NOT_FOUND)

    async def _refuse_token(self, request: MetadataRequest) -> MetadataAnswer:
        require_header(request)
        if request.vm is None:  # is told the same: Azure's SDKs ask again after a 404
            self._identity.note_stranger(request.address)
        raise MetadataRefusedError(Refusal.IDENTITY_UNKNOWN)

    async def _refuse_attestation(self, request: MetadataRequest) -> MetadataAnswer:
        await self._require_caller(request)
        raise MetadataRefusedError(Refusal.NOT_ATTESTED)

    async def _tell_who(self, request: MetadataRequest) -> MetadataAnswer:
        return answer_whoami(await self._require_caller(request))

    async def _describe_event(self, request: MetadataRequest) -> MetadataAnswer:
        vm = await self._require_caller(request)
        return await answer_event(self._verbs, vm, _event_id_of(request))

    async def _postpone(self, request: MetadataRequest) -> MetadataAnswer:
        vm = await self._require_caller(request)
        return await answer_postpone(self._verbs, vm, _event_id_of(request), request)

    async def _require_caller(self, request: MetadataRequest) -> VirtualMachine:
        require_header(request)
        return await self._require_vm(request)

    async def _require_vm(self, request: MetadataRequest) -> VirtualMachine:
        """Return who asks; what is wrong whoever asks has been refused before."""
        welcome = request.extensions.get("welcome")
        vm = await welcome() if request.vm is None and welcome else request.vm
        if vm is None and not self._board.is_whole:
            raise MetadataRefusedError(Refusal.UNAVAILABLE)
        if vm is None:
            self._identity.note_stranger(request.address)
            raise MetadataRefusedError(Refusal.NOT_FOUND)
        return vm

    def _require_version(self, request: MetadataRequest) -> str:
        name = require_dated_version(request)["api-version"]
        if name not in VERSIONS_BY_NAME:
            raise MetadataRefusedError(Refusal.API_VERSION_UNKNOWN)
        return name


def _refuse(refusal: Refusal) -> MetadataAnswer:
    answer = REFUSALS[refusal]
    return replace(answer, headers=answer.headers + _ADDED.get(refusal, ()))


def _for_reading(handler: Handler) -> Mapping[str, Handler]:
    return {"GET": handler, "HEAD": handler}


def _refuse_path(request: MetadataRequest) -> Refusal:
    # Clients recognise a metadata server by what `/` answers without the header.
    if request.path == "" and not request.has_metadata_header():
        return Refusal.METADATA_HEADER_MISSING
    return Refusal.NOT_FOUND


def _event_id_of(request: MetadataRequest) -> EventId:
    return event_id(request.path.removeprefix(f"{_EXTENSION}/events/").partition("/")[0])


# Formatting each id would take as long as all else that is done for a poll.
_LAST_DIGITS: Final = tuple(f"{number:03x}".encode("ascii") for number in range(16**3))


def _request_ids() -> Iterator[bytes]:
    # GUIDs that cost little: random for this process, then counted.
    process = secrets.token_hex(10)
    prefix = "-".join((process[:8], process[8:12], f"4{process[12:15]}", f"8{process[15:18]}"))
    beginnings = (f"{prefix}-{number:09x}".encode("ascii") for number in count())
    return (beginning + digits for beginning in beginnings for digits in _LAST_DIGITS)
