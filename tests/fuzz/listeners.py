"""Both listeners without sockets: connections read bytes, and what they answer is returned.

Time is virtual: when nothing is left to do but wait, it is later.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from hmac import new as make_hmac
from selectors import DefaultSelector, SelectorKey
from typing import Any, Final, cast

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from forewarn.clocks import SystemClock
from forewarn.connections.crowd import Origin
from forewarn.connections.guarded import GuardedProtocol
from forewarn.console.cookies import refuse_forged, session_of
from forewarn.console.problems import ForgedRequestError
from forewarn.control.authentication import Authentication, OriginCheck
from forewarn.control.http import configure
from forewarn.desk.refusals import Refusals
from forewarn.domain.access import Principal
from forewarn.domain.amending import build_topology
from forewarn.domain.errors import UnknownEventError
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.roles import Role
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.emulator.faults import MemoryFaults
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.asgi import HttpScope
from forewarn.metadata.asgi import Receive as MetadataReceive
from forewarn.metadata.asgi import Send as MetadataSend
from forewarn.metadata.board import Board
from forewarn.metadata.http import MetadataServer
from forewarn.metadata.identity import Identifier, Peer, find_peer
from forewarn.metadata.plain_polls import has_to_wait
from forewarn.ports.verbs import Receipt
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

TOKEN: Final = "open-sesame"  # noqa: S105
PROXY_SECRET: Final = "correct horse"  # noqa: S105
VM_ID: Final = "5E0D4C7A-0000-4000-8000-000000000001"
SIGNATURE: Final = make_hmac(PROXY_SECRET.encode(), VM_ID.encode(), sha256).hexdigest()
EVENT_ID: Final = EventId("602D9444-D2CD-49C7-8624-8643E7171297")
VM_ADDRESS: Final = "127.0.0.10"
PROXY_ADDRESS: Final = "127.0.0.66"
_VM: Final = VirtualMachine(
    name=VmName("web-0"),
    scope_id=ScopeId("virtual-machine/web-0"),
    addresses=(VM_ADDRESS,),
    vm_id=VM_ID,
)
_DOCUMENT: Final = Document(
    document_incarnation=7,
    events=(
        Event(
            event_id=EVENT_ID,
            event_status=EventStatus.SCHEDULED,
            event_type=EventType.FREEZE,
            resources=("web-0",),
            not_before=datetime(2026, 3, 2, 12, tzinfo=UTC),
        ),
    ),
)
_REQUEST_ID: Final = re.compile(rb"x-ms-request-id: [^\r]*\r\n")


class _Jumps(DefaultSelector):
    """Makes it later instead of waiting, except for threads."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.awaited: set[asyncio.Task[None]] = set()
        """What threads may work for; as long as there is any, time is real."""

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        step = min(0.001, timeout or 0) if self.awaited else timeout or 0
        ready = super().select(step if self.awaited else 0)
        self.now += 0 if ready else step
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumps = _Jumps()
        super().__init__(self.jumps)

    def time(self) -> float:
        return self.jumps.now


class _Wire(asyncio.Transport):
    """Our end of a connection, with what is *sent* on it."""

    def __init__(self, client: str) -> None:
        super().__init__({"peername": (client, 40000), "sockname": ("127.0.0.1", 80)})
        self.sent = b""
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self.sent += data

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@cache
def _loop() -> _Loop:
    return _Loop()


class Listener:
    """Accepts connections as *config* says; *threads* may answer its requests."""

    def __init__(self, config: uvicorn.Config, *, threads: bool = False) -> None:
        config.load()
        self._config = config
        self._threads = threads
        self._loop = _loop()

    def exchange(self, client: str, *parts: bytes) -> bytes:
        """Return the answers to *parts* from *client*, who has no more to say after them."""
        return self._loop.run_until_complete(self._exchange(client, parts))

    async def _exchange(self, client: str, parts: tuple[bytes, ...]) -> bytes:
        wire, state = _Wire(client), ServerState()
        make = cast("type[GuardedProtocol]", self._config.http_protocol_class)
        connection = make(self._config, state, {}, self._loop)
        self._loop.jumps.awaited = state.tasks if self._threads else set()
        connection.connection_made(wire)
        for part in parts:
            if not wire.is_closing():
                connection.data_received(part)
        await asyncio.sleep(1)
        if not wire.is_closing() and not connection.eof_received():
            wire.close()
        await asyncio.sleep(3)
        assert wire.is_closing() or not connection.is_idle(), "the connection ends"
        connection.connection_lost(None)
        await asyncio.sleep(1)
        assert not state.tasks, "each request ends"
        return _REQUEST_ID.sub(b"", wire.sent)


class _Verbs:
    """Knows one event."""

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> Receipt:
        del vm, where
        for event_id in event_ids:
            _require(event_id)
        return Receipt(scope_id=_VM.scope_id, document_incarnation=8)

    async def describe_event(self, vm: VmName, event_id: EventId) -> Mapping[str, object]:
        _require(event_id)
        return {"vm": vm, "event_id": event_id}

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> Mapping[str, object]:
        del where
        _require(event_id)
        return {"vm": vm, "event_id": event_id, "not_before": not_before.isoformat()}


def _require(event_id: EventId) -> None:
    if event_id != EVENT_ID:
        raise UnknownEventError(event_id)


class _WithoutShortCut:
    """The application without its answers to plain polls."""

    plain_polls = None

    def __init__(self, app: MetadataApp) -> None:
        self._app = app

    async def __call__(
        self, scope: HttpScope, receive: MetadataReceive, send: MetadataSend
    ) -> None:
        await self._app(scope, receive, send)

    def note_unreadable(self, status: int, peer: Peer) -> None:
        self._app.note_unreadable(status, peer)

    def find_origin(self, address: str | None) -> Origin:
        return self._app.find_origin(address)

    def stop_waiting(self) -> None:
        self._app.stop_waiting()


class MetadataListener:
    """The listener for virtual machines, by each of its three ways to answer a poll."""

    def __init__(self) -> None:
        board = Board()
        topology = build_topology(scopes=(standalone(_VM.name),), virtual_machines=(_VM,))
        board.put_up({_VM.scope_id: _DOCUMENT}, topology)
        app = MetadataApp(
            board=board,
            identity=Identifier(
                board,
                trust_path=True,
                trusted_proxies=(PROXY_ADDRESS,),
                proxy_secret=PROXY_SECRET,
            ),
            verbs=_Verbs(),
            polled=lambda _: None,
            faults=MemoryFaults(
                document_of=board.document_of, clock=SystemClock(), changed=lambda: None
            ),
        )
        self._polls = app.plain_polls
        self._polls.renew(b"")
        self.short = Listener(MetadataServer(app, (), is_hot=False).config)
        self.long = Listener(MetadataServer(_WithoutShortCut(app), (), is_hot=False).config)

    def hot(self, client: str, data: bytes) -> bytes | None:
        """Return the answer of the hot path to *data*, if it answers at once."""
        resolved = self._polls.resolve(data, find_peer((client, 40000), ("127.0.0.1", 80)))
        if resolved is None or has_to_wait(resolved.poll, resolved.page):
            return None
        return _REQUEST_ID.sub(b"", self._polls.write(resolved.poll, resolved.page))


class _NoRefusals(Refusals):
    """Counts nothing, so that no answer is late."""

    def __init__(self) -> None:
        pass

    def is_excessive(self, caller: str, *, more: bool = False) -> bool:
        del caller, more
        return False


def control_listener() -> Listener:
    """Return the listener for operators: all that reads heads, and a page that greets."""
    guarded = Authentication(_greet, authenticate=_authenticate, refusals=_NoRefusals())
    app = OriginCheck(guarded, names=("console.example",), own_host="10.0.0.1")
    return Listener(configure(app), threads=True)


def _authenticate(token: str) -> Principal | None:
    return Principal(name="alice", role=Role.ADMIN) if token == TOKEN else None


async def _greet(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    try:
        refuse_forged(request, session_of(request))
    except ForgedRequestError:
        note = "forged"
    else:
        note = "from our page"
    who = scope.get("state", {}).get("who", "anybody")
    await PlainTextResponse(f"Hello {who}, {note}.")(scope, receive, send)
