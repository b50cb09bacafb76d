"""A server that relays follow: a real store, and the control API on a socket."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import uvicorn
from tests.http.conftest import HandClock, Wall, make_services
from tests.http.metadata.conftest import NOW, migrated_database
from tests.ports import free_port
from tests.waiting import wait_until

from forewarn.control.app import create_app
from forewarn.control.http import configure
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.domain.amending import build_topology
from forewarn.domain.event import Draft, Happening, Share, schedule
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.roles import Role
from forewarn.domain.topology import (
    DeliveryScope,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
    make_scope_id,
    standalone,
)
from forewarn.feed.frames import FeedLine, Gone, Hello, Mark, Put, decode_line
from forewarn.feed.hub import Hub
from forewarn.feed.relay_services import RelayServices
from forewarn.metadata.board import Board
from forewarn.metadata.polls import Polls
from forewarn.metadata.store_feed import StoreFeed
from forewarn.metadata.verbs import StoreVerbs
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.recording import Deed, record_events
from forewarn.ports.metrics import Tally
from forewarn.ports.store import Transaction
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId, EventSource, EventType
from forewarn.storage.sqlite import open_sqlite

BEAT = 1.5
"""Followers give up after three of them: a busy machine may be silent for a second."""
TIMEOUT = 30.0
FEED = "/api/v1/front/feed"


def scope_of(name: str) -> ScopeId:
    return make_scope_id(ScopeKind.AVAILABILITY_SET, name)


def machine(
    name: str, host: str | None = None, *, scope: str = "", address: str = ""
) -> VirtualMachine:
    """Return a virtual machine of the availability set *scope*, or one by itself."""
    return VirtualMachine(
        name=VmName(name),
        scope_id=scope_of(scope) if scope else standalone(VmName(name)).scope_id,
        host=None if host is None else HostName(host),
        addresses=(address,) if address else (),
        vm_id=f"id-of-{name}",
    )


def fleet(*vms: VirtualMachine) -> Topology:
    """Return the fleet of *vms*, on hosts and in sets that they name."""
    scopes = {}
    for vm in vms:
        kind, _, name = vm.scope_id.partition("/")
        made = (
            standalone(vm.name)
            if kind == ScopeKind.VIRTUAL_MACHINE
            else DeliveryScope(kind=ScopeKind(kind), name=name)
        )
        scopes[made.scope_id] = made
    hosts = {vm.host: Host(name=vm.host) for vm in vms if vm.host is not None}
    return build_topology(scopes=scopes.values(), virtual_machines=vms, hosts=hosts.values())


class Center:
    """The server in the middle; its address is *port* on 127.0.0.1."""

    def __init__(self, *, most_remembered: int = 10_000, beat: float = BEAT) -> None:
        self._folder = TemporaryDirectory()
        self.path = Path(self._folder.name) / "forewarn.db"
        self.path.write_bytes(migrated_database())
        self.store = open_sqlite(self.path)
        self.board = Board()
        self.feed = StoreFeed(self.board, self.store)
        self.feed.begin()
        self._most_remembered, self._beat = most_remembered, beat
        self.clock, self.tally = HandClock(), Tally()
        self.polls = Polls(self.store, self.board, self.clock)
        self.polled: list[tuple[VmName, ...]] = []
        """Who has polled relays, for each time that one has told."""
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Answer on the port, the same as before."""
        self.hub = Hub(self.board, heartbeat=self._beat, most_remembered=self._most_remembered)
        self.board.listen(self.hub.note)
        relay_services = RelayServices(
            hub=self.hub, verbs=self._verbs, polled=self._note_polls, tally=self.tally
        )
        services = make_services(
            self.store, self.clock, Wall(), wakeups=[], ledger_watch=LedgerWatch(self.store)
        )
        self.services = replace(services, relay_services=relay_services)
        listener = socket.create_server(("127.0.0.1", self.port))
        server = self._server = uvicorn.Server(configure(create_app(self.services)))
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server._serve([listener])),  # noqa: SLF001
            daemon=True,
        )
        self._thread.start()
        wait_until(lambda: server.started, "the server to start")

    def stop(self) -> None:
        """Answer nobody any more."""
        self.hub.stop()
        self._server.should_exit = True
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the server did not stop while it was followed"

    def close(self) -> None:
        self.stop()
        self.store.close()
        self._folder.cleanup()

    def _verbs(self, host: HostName) -> StoreVerbs:
        return StoreVerbs(self.store, self.services.context, host=host)

    def _note_polls(self, vms: Iterable[VmName]) -> None:
        names = tuple(vms)
        self.polled.append(names)
        self.polls.note_all(names)

    def place(self, *vms: VirtualMachine) -> None:
        """Make *vms* the fleet."""
        self.store.write(lambda tx: tx.put_topology(fleet(*vms)))

    def publish(self, scope_id: ScopeId, incarnation: int) -> None:
        document = Document(document_incarnation=incarnation)
        self.store.write(lambda tx: tx.put_document(scope_id, document, at=NOW))

    def await_hub(self) -> None:
        """Wait until followers are about to be told of all that has changed."""
        hub = self.hub
        wait_until(lambda: hub._told == hub._sequence, "the hub")  # noqa: SLF001

    def announce(self, name: str) -> EventId:
        """Have the virtual machine called *name* rebooted."""
        context = self.services.context("alice")

        def work(tx: Transaction) -> EventId:
            vm = tx.topology().virtual_machines[VmName(name)]
            share = Share(
                scope_id=vm.scope_id, update_domain=vm.update_domain, resources=(vm.name,)
            )
            draft = Draft(
                event_type=EventType.REBOOT, event_source=EventSource.PLATFORM, share=share
            )
            event = schedule(
                draft, event_id=context.new_id(), now=context.now, notice=timedelta(minutes=15)
            )
            record_events(tx, context, [Deed(event=event, what=Happening.SCHEDULED)])
            return event.event_id

        return self.store.write(work)

    def relay_token(self, host: str) -> str:
        """Return the secret of a new token for a relay on *host*."""
        secret = f"secret-of-{host}"
        order = TokenOrder(name=f"relay-{host}", role=Role.RELAY, host=host)
        context = self.services.context("alice")
        self.store.write(lambda tx: create_token(tx, context, order, secret))
        return secret

    def ask(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and what the JSON of the answer says."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        content = None if body is None else json.dumps(body)
        connection.request(
            method, f"/api/v1/front/{path}", content, {"Authorization": f"Bearer {token}"}
        )
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    @contextmanager
    def follow(self, token: str, after: str = "") -> Generator["Listening"]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        query = f"?after={after}" if after else ""
        connection.request("GET", f"{FEED}{query}", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
        try:
            yield Listening(connection, answer)
        finally:
            answer.close()
            connection.close()


class Listening:
    """A stream of the feed, line by line, and what a follower would know by it."""

    def __init__(self, connection: HTTPConnection, answer: HTTPResponse) -> None:
        self.connection = connection
        self._answer = answer
        hello = self.line()
        assert isinstance(hello, Hello)
        self.hello = hello
        self.lines: list[FeedLine] = []
        self.sequence = 0
        self.machines: dict[VmName, VirtualMachine] = {}
        self.scopes: set[ScopeId] = set()
        self.incarnations: dict[ScopeId, int] = {}

    @property
    def place(self) -> str:
        return f"{self.hello.feed}:{self.sequence}"

    def line(self) -> FeedLine:
        text = self._answer.readline()
        assert text, "the feed has ended"
        line = decode_line(text)
        assert line is not None
        return line

    def until_mark(self, at_least: int = 0) -> list[FeedLine]:
        """Take in all lines up to the next mark of *at_least* that sequence, and return them."""
        heard: list[FeedLine] = []
        while True:
            line = self.line()
            heard.append(line)
            self._take(line)
            if isinstance(line, Mark) and line.sequence >= at_least:
                return heard

    def until(self, is_so: Callable[["Listening"], bool], what: str) -> None:
        for _ in range(10_000):
            if is_so(self):
                return
            self._take(self.line())
        pytest.fail(f"heard ten thousand lines, but not {what}")

    def is_over(self) -> bool:
        return self._answer.readline() == b""

    def _take(self, line: FeedLine) -> None:
        self.lines.append(line)
        match line:
            case Put():
                self.incarnations |= {
                    scope_id: document.document_incarnation
                    for scope_id, document in line.documents.items()
                }
                self.scopes |= line.scopes.keys()
                for vm in line.virtual_machines:
                    assert vm.scope_id in self.scopes, "a machine came before its document"
                    self.machines[vm.name] = vm
            case Gone():
                for name in line.virtual_machines:
                    self.machines.pop(name, None)
                for scope_id in line.scope_ids:
                    self.scopes.discard(scope_id)
                    self.incarnations.pop(scope_id, None)
            case Mark():
                self.sequence = line.sequence
            case Hello():
                pytest.fail("a second hello")


def names(vms: Mapping[VmName, object] | Iterable[str]) -> list[str]:
    return sorted(vms)


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    yield made
    made.close()
