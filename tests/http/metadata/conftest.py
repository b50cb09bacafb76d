"""The service under test, on real sockets, and a client that shows every byte.

How the service is started is in the one class `Service`; the tests know its address, its helpers
and nothing else.
"""

import contextlib
import functools
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import uvloop
from tests.needs import has_ipv6, need_ipv6

from forewarn.clocks import SystemClock, VirtualClock
from forewarn.connections.guarded import GuardedProtocol
from forewarn.connections.limits import Limits
from forewarn.domain.amending import build_topology
from forewarn.domain.event import Draft, Happening, Share, schedule
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.policy import Policy
from forewarn.domain.profile import Profile
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    VirtualMachine,
    standalone,
)
from forewarn.emulator.faults import MemoryFaults
from forewarn.emulator.journal import MemoryJournal
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.hot_path import HotPath
from forewarn.metadata.http import App, MetadataServer, open_listener, open_unix_listener
from forewarn.metadata.identity import Identifier
from forewarn.metadata.journaled import JournaledApp
from forewarn.metadata.store_feed import StoreFeed
from forewarn.metadata.verbs import StoreVerbs
from forewarn.operations.context import Context
from forewarn.operations.events import cancel_event, complete_event, start_event
from forewarn.operations.recording import Deed, record_events
from forewarn.ports.store import Transaction
from forewarn.ports.verbs import Verbs
from forewarn.protocol.vocabulary import EventId, EventSource, EventType, event_id
from forewarn.storage.sqlite import open_sqlite
from forewarn.storage.transaction import SqlTransaction

TIMEOUT = 45.0
"""Seconds that nothing takes that ends by itself, however busy the machine is."""
SECRET = "correct horse"  # noqa: S105
VERSION = "2020-07-01"
POLL = f"/metadata/scheduledevents?api-version={VERSION}"
WEB = ScopeId("availability-set/web")

FLEET = build_topology(
    scopes=(
        DeliveryScope(
            kind=ScopeKind.AVAILABILITY_SET,
            name="web",
            policy=Policy(postpone_until=timedelta(hours=1)),
        ),
        DeliveryScope(kind=ScopeKind.SCALE_SET, name="batch", placement_group="pg-1"),
        standalone(VmName("solo")),
        standalone(VmName("here")),
    ),
    virtual_machines=(
        VirtualMachine(
            name=VmName("web-0"),
            scope_id=WEB,
            update_domain=1,
            fault_domain=1,
            addresses=("127.0.0.10", "FD00:0::A", "10.1.1.1"),
            vm_id="5E0D4C7A-0000-4000-8000-000000000001",
            zone="2",
            location="cellar",
            resource_group="shop",
            subscription_id="s-1",
            tags={"tier": "web", "owner": "ann"},
            profile=Profile(
                vm_size="Standard_D2s_v5",
                os_type="Linux",
                publisher="Debian",
                offer="debian-12",
                sku="12-gen2",
                version="0.20260101.1",
                az_environment="AzurePublicCloud",
                user_data="aGVsbG8=",
                computer_name="web-zero",
                mac_address="00:0d:3a-12:34:56",
                subnet="10.1.1.0/24",
            ),
        ),
        VirtualMachine(name=VmName("Web-1"), scope_id=WEB, addresses=("127.0.0.11",)),
        VirtualMachine(
            name=VmName("batch_0"),
            scope_id=ScopeId("scale-set/batch/pg-1"),
            addresses=("127.0.0.12",),
        ),
        VirtualMachine(
            name=VmName("solo"), scope_id=ScopeId("virtual-machine/solo"), vm_id="id-of-solo"
        ),
        VirtualMachine(name=VmName("here"), scope_id=ScopeId("virtual-machine/here")),
    ),
)


NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def context(who: str) -> Context:
    return Context(who=who, now=NOW, at=NOW, new_id=lambda: event_id(str(uuid4())))


@functools.cache
def migrated_database() -> bytes:
    """Return an empty database with today's schema; making it takes longer than copying it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        open_sqlite(path).close()
        return path.read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Service:
    """A running metadata endpoint with a small fleet; `web-0` is at 127.0.0.10."""

    is_hot: ClassVar[bool] = True

    def __init__(
        self,
        *,
        unix_path: Path | None = None,
        default_vm: str | None = None,
        trust_path: bool = True,
        trusted_proxies: tuple[str, ...] = (),
        limits: Limits | None = None,
        verbs: Verbs | None = None,
        around: Callable[[App], App] = lambda app: app,
        is_journaled: bool = False,
    ) -> None:
        self._folder = TemporaryDirectory()
        database = Path(self._folder.name) / "forewarn.db"
        database.write_bytes(migrated_database())
        self.store = open_sqlite(database)
        self.board = Board()
        StoreFeed(self.board, self.store).begin()
        self.store.write(lambda tx: tx.put_topology(FLEET))
        self.clock = VirtualClock(NOW)
        self.faults = MemoryFaults(
            document_of=self.board.document_of, clock=self.clock, changed=self.board.look_again
        )
        self.store.listen(self.faults.note)
        self.polls: list[VmName] = []
        identity = Identifier(
            self.board,
            default_vm=default_vm,
            trust_path=trust_path,
            trusted_proxies=trusted_proxies,
            proxy_secret=SECRET,
        )
        self.journal = MemoryJournal(self.clock, SystemClock())
        app = MetadataApp(
            board=self.board,
            identity=identity,
            verbs=verbs or StoreVerbs(self.store, context),
            polled=self.polls.append,
            faults=self.faults,
        )
        self.plain_polls = app.plain_polls
        self._app = JournaledApp(app, identity, self.journal) if is_journaled else app
        hosts = ("127.0.0.1", "::1", "::") if has_ipv6() else ("127.0.0.1",)
        listeners = [open_listener(host, 0) for host in hosts]
        self._ports_v6: list[int]
        self.port, *self._ports_v6 = (at.getsockname()[1] for at in listeners)
        self.unix_path = unix_path
        if unix_path is not None:
            listeners.append(open_unix_listener(unix_path))
        self._server = MetadataServer(around(self._app), listeners, limits, is_hot=self.is_hot)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, "the server starts")

    @property
    def port_v6(self) -> int:
        """The port on ::1."""
        need_ipv6()
        return self._ports_v6[0]

    @property
    def port_dual(self) -> int:
        """The port of the listener of both families."""
        need_ipv6()
        return self._ports_v6[1]

    def stop(self) -> None:
        self.begin_to_stop()
        self.await_stop()

    def begin_to_stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has stopped already
            self._loop.call_soon_threadsafe(self._server.stop)

    def await_stop(self) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the server stops"
        self.store.close()
        self._folder.cleanup()

    @property
    def parked(self) -> int:
        return len(self.board.waiters)

    @property
    def connections(self) -> int:
        hot = self._server.hot_path
        return len(self._server.server_state.connections) + (0 if hot is None else len(hot))

    @property
    def hot_path(self) -> HotPath:
        assert self._server.hot_path is not None
        return self._server.hot_path

    @property
    def queued(self) -> int:
        """How many requests wait behind another of their connection."""
        connections = tuple(self._server.server_state.connections)
        return sum(len(each.pipeline) for each in connections if isinstance(each, GuardedProtocol))

    @property
    def requests(self) -> int:
        """How many are being answered."""
        return len(self._server.server_state.tasks)

    @contextlib.contextmanager
    def loop_held(self) -> Iterator[None]:
        """Let the event loop do nothing meanwhile, so that what happens is one to it."""
        holding, letting_go = threading.Event(), threading.Event()

        def hold() -> None:
            holding.set()
            letting_go.wait(TIMEOUT)

        self._loop.call_soon_threadsafe(hold)
        assert holding.wait(TIMEOUT), "the event loop is held"
        try:
            yield
        finally:
            letting_go.set()

    def create(
        self,
        event_type: EventType = EventType.REBOOT,
        resources: tuple[str, ...] = ("web-0",),
        *,
        description: str = "",
    ) -> EventId:
        vm = FLEET.virtual_machines[VmName(resources[0])]
        share = Share(
            scope_id=vm.scope_id,
            update_domain=vm.update_domain,
            resources=tuple(map(VmName, resources)),
        )
        draft = Draft(
            event_type=event_type,
            event_source=EventSource.PLATFORM,
            share=share,
            description=description,
        )
        identifier = event_id(str(uuid4()))
        notice = timedelta(minutes=15)
        event = schedule(draft, event_id=identifier, now=NOW, notice=notice)
        deed = Deed(event=event, what=Happening.SCHEDULED)
        self.store.write(lambda tx: record_events(tx, context("test"), [deed]))
        return identifier

    def start(self, identifier: EventId) -> None:
        self.store.write(lambda tx: start_event(tx, context("test"), identifier))

    def complete(self, identifier: EventId) -> None:
        self.store.write(lambda tx: complete_event(tx, context("test"), identifier))

    def cancel(self, identifier: EventId) -> None:
        self.store.write(lambda tx: cancel_event(tx, context("test"), identifier))

    def move(self, vm: str, scope_id: ScopeId) -> None:
        """Put *vm* into another delivery scope."""
        vms = {
            name: replace(known, scope_id=scope_id) if name == vm else known
            for name, known in FLEET.virtual_machines.items()
        }
        topology = replace(FLEET, virtual_machines=vms)
        self.store.write(lambda tx: tx.put_topology(topology))

    def remove(self, vm: str) -> None:
        """Take *vm* out of the fleet."""
        kept = {name: vm_ for name, vm_ in FLEET.virtual_machines.items() if name != vm}
        topology = replace(FLEET, virtual_machines=kept)
        self.store.write(lambda tx: tx.put_topology(topology))

    def approvers(self, identifier: EventId) -> tuple[str, ...]:
        event = self.store.read(lambda reading: reading.event(identifier))
        assert event
        return tuple(approval.name for approval in event.approvals)

    def make_read_only(self) -> None:
        """Have SQLite refuse to write, as on a disk that was remounted read-only."""

        def refuse_from_now_on(tx: Transaction) -> None:
            assert isinstance(tx, SqlTransaction)
            tx._connection.exec_driver_sql("PRAGMA query_only = ON")  # noqa: SLF001

        self.store.write(refuse_from_now_on)

    def connect(self, source: str = "127.0.0.10", *, port: int | None = None) -> socket.socket:
        """Open a connection that comes from *source*."""
        host = "::1" if ":" in source else "127.0.0.1"
        default = self.port_v6 if ":" in source else self.port
        return socket.create_connection(
            (host, port or default), timeout=TIMEOUT, source_address=(source, 0)
        )

    def request(
        self,
        target: str = POLL,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        source: str = "127.0.0.10",
        metadata: str | None = "true",
    ) -> Reply:
        """Send one request, with the Metadata header unless told otherwise, and read its answer."""
        given = dict(headers or {}) | ({} if metadata is None else {"Metadata": metadata})
        if body or method == "POST":
            given.setdefault("Content-Length", str(len(body)))
        with self.connect(source) as connection:
            connection.sendall(compose(method, target, given) + body)
            return read_reply(connection, method)

    def post(self, body: bytes, target: str = POLL, **options: Any) -> Reply:
        return self.request(target, method="POST", body=body, **options)

    def approve(self, *identifiers: str, **options: Any) -> Reply:
        requests = [{"EventId": identifier} for identifier in identifiers]
        return self.post(json.dumps({"StartRequests": requests}).encode(), **options)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._server.run_until_stopped())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def compose(method: str, target: str, headers: Mapping[str, str], protocol: str = "1.1") -> bytes:
    """Return the bytes of a request head."""
    lines = [f"{method} {target} HTTP/{protocol}", "Host: anything"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


GET = compose("GET", POLL, {"Metadata": "true"})
"""A plain poll."""


def read_reply(connection: socket.socket, method: str = "GET") -> Reply:
    """Read one answer; for several on one connection use `Replies`."""
    response = HTTPResponse(connection, method=method)
    response.begin()
    return _as_reply(response)


@dataclass(frozen=True, slots=True)
class Replies:
    """Reads one answer after the other from one connection."""

    connection: socket.socket
    _shared: list[Any] = field(default_factory=list)

    def next(self, method: str = "GET") -> Reply:
        if not self._shared:
            self._shared.append(self.connection.makefile("rb"))
        response = HTTPResponse(self.connection, method=method)
        response.fp.close()
        response.fp = _Unclosed(self._shared[0])  # type: ignore[assignment]
        response.begin()
        return _as_reply(response)


class _Unclosed:
    def __init__(self, file: Any) -> None:
        self._file = file

    def close(self) -> None:
        """Leave the file open for the next answer."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _as_reply(response: HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(status=response.status, headers=headers, body=response.read())


def read_all(connection: socket.socket) -> bytes:
    """Read until the other end closes."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return bytes(received)


def sign(vm_id: str, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), vm_id.encode(), hashlib.sha256).hexdigest()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Wait for *condition*, at most *timeout* seconds."""
    pause = threading.Event()
    for _ in range(int(timeout / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    pytest.fail(f"waited {timeout} s in vain: {what}")


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Service]:
    """Run a service of one's own."""
    service = Service(**options)
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module", params=[True, False], ids=["hot", "long"], autouse=True)
def _road(request: pytest.FixtureRequest) -> None:
    """Run every test over both roads: with the hot path, and without."""
    Service.is_hot = request.param


@pytest.fixture(scope="session")
def stopping() -> Generator[list[Service], None, None]:
    """Let services end while the next test runs."""
    services: list[Service] = []
    yield services
    for service in services:
        service.await_stop()


@pytest.fixture
def service(stopping: list[Service]) -> Generator[Service, None, None]:
    """Start a service for one test."""
    fresh = Service()
    yield fresh
    fresh.begin_to_stop()
    stopping.append(fresh)


@pytest.fixture(scope="module")
def quiet_service(_road: None) -> Generator[Service, None, None]:
    """Share one among tests that change nothing."""
    with running() as running_service:
        yield running_service
