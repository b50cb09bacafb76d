"""A whole server inside this process: a real socket, a real database, virtual time.

Nothing happens by itself here. Time stands still until it is advanced, and whatever a call or a
virtual machine's request makes due is done before either returns.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, ParamSpec, Self, TypeVar

from forewarn.bootstrap.replica import Outside, Replica, assemble
from forewarn.bootstrap.runners import choose_runners
from forewarn.bootstrap.start import begin
from forewarn.clocks import SystemClock
from forewarn.domain.access import ADMIN
from forewarn.domain.names import name_key
from forewarn.domain.topology import VirtualMachine
from forewarn.executors.task_log import TaskLog
from forewarn.files.fleet import Fleet
from forewarn.metadata.http import MetadataServer, open_listener
from forewarn.notifications.outbox import Notifications
from forewarn.operations.context import Context
from forewarn.outbound.client import Outbound
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import Actor
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId
from forewarn.settings import make_settings
from forewarn.settings_table import ClockKind, LogLevel
from forewarn.storage.sqlite import open_sqlite

P = ParamSpec("P")
T = TypeVar("T")

__tracebackhide__ = True

LOCALHOST: Final = "127.0.0.1"
_EVERYWHERE: Final = {"0.0.0.0": LOCALHOST, "::": "::1"}  # noqa: S104 - which of it is this machine
_END_SECONDS: Final = 10
_MOST_NAMES: Final = 10


def in_one_frame(function: Callable[P, T]) -> Callable[P, T]:
    """Have what is refused blamed on the line of the test that called *function*.

    How we found out is of no interest to the author of the test. pytest shows no frames of this
    package: its modules have `__tracebackhide__`.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ForewarnError as refused:
            raise refused.with_traceback(None) from None

    return call


class EmulatorClosedError(ForewarnError):
    """The emulator is not running."""

    def __init__(self) -> None:
        super().__init__("The emulator is not running; use it inside its `with` block.")


class UnknownNameError(ForewarnError):
    """A virtual machine or a scenario that the emulator does not have, with some that it has."""

    def __init__(self, noun: str, name: str, known: Sequence[str]) -> None:
        more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
        names = f"{', '.join(known[:_MOST_NAMES]) or 'none'}{more}"
        super().__init__(f"Unknown {noun} {name!r}; known: {names}.")


class ServerMissingError(ForewarnError):
    """The control API is asked for, and what it needs is not installed."""

    def __init__(self, problem: ImportError) -> None:
        super().__init__(f"control_url needs: pip install 'forewarn[server]' ({problem}).")


class Engine:
    """A server with its sockets and its threads. Make one with `start_engine`."""

    def __init__(
        self,
        replica: Replica,
        metadata: MetadataServer,
        address: str,
        background: "_Background",
        closing: ExitStack,
    ) -> None:
        self._replica = replica
        self._metadata = metadata
        self._address = address
        self._background = background
        self._closing = closing
        self._control_port: int | None = None
        self._starting_control = threading.Lock()
        self.is_running = True
        self.announced_at: dict[EventId, datetime] = {}
        """When each event was first in a document, in real time."""

    def note(self, change: StoreChange) -> None:
        """Remember which events *change* announces."""
        if change.incarnations:
            documents = self._replica.store.read(
                lambda reading: reading.documents(change.incarnations)
            )
            now = SystemClock().now()
            for document in documents.values():
                for event in document.events:
                    self.announced_at.setdefault(event.event_id, now)

    @property
    def replica(self) -> Replica:
        """The parts of the server."""
        if not self.is_running:
            raise EmulatorClosedError
        return self._replica

    @property
    def address(self) -> str:
        """HOST:PORT where virtual machines are answered."""
        if not self.is_running:
            raise EmulatorClosedError
        return self._address

    @in_one_frame
    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees."""
        return self.replica.store.read(look)

    @in_one_frame
    def write(self, work: Callable[[Transaction, Context], T]) -> T:
        """Do *work*, and then everything that it makes due."""
        replica = self.replica
        result = replica.store.write(
            lambda tx: work(tx, replace(replica.context(ADMIN), actor=Actor.OPERATOR))
        )
        replica.settle()
        return result

    def find_vm(self, name: str) -> VirtualMachine:
        """Return the virtual machine called *name*, or refuse with the names that there are."""
        topology = self.read(lambda reading: reading.topology())
        vm = topology.directory.by_name.get(name_key(name))
        if vm is None:
            raise UnknownNameError("virtual machine", name, tuple(topology.virtual_machines))
        return vm

    def control_port(self) -> int:
        """Return where operators are answered; the control API is started when first asked for."""
        with self._starting_control:
            if self._control_port is None:
                self._control_port = self._start_control(self.replica)
            return self._control_port

    def close(self) -> None:
        """Stop serving and leave nothing behind."""
        self.is_running = False
        self._closing.close()

    def _start_control(self, replica: Replica) -> int:
        # FastAPI takes longer to load than all the rest, and few tests need it.
        try:
            from forewarn.bootstrap.operators import control_server  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ServerMissingError(error) from error

        with ExitStack() as closing:
            listener = closing.enter_context(open_listener(LOCALHOST, 0))
            port: int = listener.getsockname()[1]
            server = control_server(replica, [listener], is_ready=lambda: self._metadata.started)
            closing.pop_all()  # from here on the server closes it

        def stop() -> None:
            server.should_exit = True

        self._background.run(server.serve(), stop=stop)
        return port


def start_engine(
    settings: dict[str, Any],
    fleet: Fleet | None,
    now: datetime,
    *,
    notifications: Notifications | None = None,
    listen: tuple[str, int] = (LOCALHOST, 0),
) -> Engine:
    """Start a server with *settings* and *fleet*, in which it is *now*.

    Messages for the targets of *notifications* are written, and not sent by themselves.
    """
    with ExitStack() as closing:
        folder = closing.enter_context(TemporaryDirectory(prefix="forewarn-"))
        url = f"sqlite:///{Path(folder) / 'forewarn.db'}"
        # What a test prints is its own.
        ours = {
            "database": url,
            "clock": ClockKind.VIRTUAL,
            "log_level": LogLevel.ERROR,
            "trust_path": True,
            "journal": True,
        }
        chosen = make_settings({**ours, **settings})
        store = open_sqlite(chosen.database_path, is_durable=False)
        closing.callback(store.close)
        beginning = begin(store, chosen, fleet, now)
        outbound = Outbound()
        closing.callback(outbound.close)
        make = choose_runners(chosen, outbound)
        records = TaskLog(Path(folder) / "tasks")
        runners = closing.enter_context(make(store, beginning.clock, records))
        outside = Outside(
            runners=runners,
            outbound=outbound,
            notifications=notifications or Notifications(),
        )
        replica = assemble(chosen, store, beginning, outside)
        replica.candidate.campaign()
        listener = closing.enter_context(open_listener(*listen))
        background = closing.enter_context(_Background())
        metadata = replica.metadata_server([listener])
        background.run(metadata.run_until_stopped(), stop=metadata.stop)
        address = _address_of(listener)
        engine = Engine(replica, metadata, address, background, closing.pop_all())
        store.listen(engine.note)
        return engine


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Background:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._running: list[tuple[Future[None], Callable[[], None]]] = []
        # A daemon, so that a program that forgot to close can end.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="forewarn-emulator", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def run(self, coroutine: Coroutine[Any, Any, None], *, stop: Callable[[], None]) -> None:
        """Run *coroutine*; *stop* makes it end."""
        self._running.append((asyncio.run_coroutine_threadsafe(coroutine, self._loop), stop))

    def __exit__(self, *error: object) -> None:
        try:
            for _running, stop in self._running:
                self._loop.call_soon_threadsafe(stop)
            for running, _stop in self._running:
                running.result(_END_SECONDS)
        finally:
            ending = self._loop.shutdown_default_executor()
            asyncio.run_coroutine_threadsafe(ending, self._loop).result(_END_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
