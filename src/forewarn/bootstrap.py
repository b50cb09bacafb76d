"""The one place where the parts are put together, and the life of a server from start to stop."""

import asyncio
import os
import secrets
import signal
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog
import uvicorn

from forewarn.clocks import SystemClock, VirtualClock
from forewarn.control.app import create_app
from forewarn.control.services import ClockControl, ClockError, Services
from forewarn.domain.names import VmName
from forewarn.domain.publication import republish
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.http import (
    MetadataServer,
    make_server,
    open_listener,
    open_unix_listener,
)
from forewarn.metadata.identity import Identity
from forewarn.metadata.polls import Polls
from forewarn.metadata.verbs import StoreVerbs
from forewarn.operations.context import Context, Rules
from forewarn.operations.fleet import FleetError, line_of, read_fleet_file
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.changes import Change
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.store import Store, StoreUnavailableError, Transaction
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.versions import PreviewWire, served_versions
from forewarn.protocol.vocabulary import EventId, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.settings import (
    ADMIN_TOKEN_FILE,
    ClockKind,
    ExecutorKind,
    Settings,
    UnixAddress,
    parse_address,
)
from forewarn.storage.sqlite import open_sqlite
from forewarn.telemetry import configure_logging

log = structlog.get_logger()

ADMIN = "admin"
SCHEDULER = "scheduler"


class StartError(ForewarnError):
    """The server cannot start."""


def serve(settings: Settings) -> None:
    """Run a server until it is told to stop."""
    configure_logging(settings.log_format)
    store = open_sqlite(settings.database_path, migrate=settings.migrate)
    try:
        service = assemble(settings, store)
        asyncio.run(service.run())
    finally:
        store.close()


def assemble(settings: Settings, store: Store) -> "Service":
    """Put a server together on top of *store*; nothing listens yet."""
    wall = SystemClock()
    clock = _open_clock(settings, store, wall.now())
    rules = Rules(
        notice=settings.notice,
        speed=settings.speed,
        user_initiated_limit=settings.user_initiated_limit,
    )

    def context(who: str) -> Context:
        return Context(who=who, now=clock.now(), at=wall.now(), new_id=_new_id, rules=rules)

    _adopt_wire(store, settings.preview_wire, clock.now())
    if settings.fleet is not None:
        _apply_fleet_file(store, context(ADMIN), settings.fleet)
    board = Board(served_versions(settings.preview_wire))
    board.take(
        store.read(lambda all_: Change(documents=all_.documents(), topology=all_.topology()))
    )
    store.listen(board.take)
    scheduler = Scheduler(
        store=store,
        executor=_make_executor(settings, store, clock),
        context=lambda: context(SCHEDULER),
        epoch=store.write(lambda tx: tx.next_epoch()),
    )
    return Service(
        settings=settings,
        store=store,
        board=board,
        clock=clock,
        scheduler=scheduler,
        context=context,
        token=_admin_token(settings.state_directory),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything that runs in one server process."""

    settings: Settings
    store: Store
    board: Board
    clock: Clock
    scheduler: Scheduler
    context: Callable[[str], Context]
    token: str

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then let everything finish."""
        polls = Polls(self.store, self.board, self.clock)
        metadata = self._metadata_server(polls)
        control = self._control_server()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            metadata.stop()
            control.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
                loop.add_signal_handler(number, stop)
        threads = [
            threading.Thread(target=self.scheduler.run, name="scheduler"),
            threading.Thread(target=polls.run, name="polls"),
        ]
        for thread in threads:
            thread.start()
        log.info("serving", metadata=self.settings.metadata, control=self.settings.control)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(metadata.run_until_stopped())
                group.create_task(control.serve())
        finally:
            self.scheduler.stop()
            polls.stop()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            log.info("stopped")

    def changed(self) -> None:
        """Have the scheduler look again; under the virtual clock, before anybody is answered."""
        if isinstance(self.clock, VirtualClock):
            self.scheduler.settle()
        else:
            self.scheduler.wake()

    def _metadata_server(self, polls: Polls) -> MetadataServer:
        identity = Identity(
            self.board,
            default_vm=self.settings.default_vm,
            trusted_proxies=self.settings.trusted_proxies,
            proxy_secret=self.settings.proxy_secret or "",
        )
        identity.check_default_vm()
        verbs = StoreVerbs(self.store, self.context, self.changed)
        app = MetadataApp(board=self.board, identity=identity, verbs=verbs, polled=polls.note)
        return make_server(app, [_listen(address) for address in self.settings.metadata])

    def _control_server(self) -> "ControlServer":
        services = Services(
            store=self.store,
            context=self.context,
            clock=_clock_control(self),
            authenticate=self._authenticate,
            is_ready=lambda: True,
            changed=self.changed,
        )
        config = uvicorn.Config(
            create_app(services), lifespan="off", log_config=None, access_log=False
        )
        return ControlServer(config, _listen(self.settings.control))

    def _authenticate(self, token: str) -> str | None:
        return ADMIN if secrets.compare_digest(token.encode(), self.token.encode()) else None


class ControlServer(uvicorn.Server):
    """uvicorn on an open socket, leaving the signals to the service."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        await self._serve(sockets or [self._listener])


@dataclass(frozen=True, slots=True)
class _RealClockControl:
    clock: Clock
    kind: str = "real"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:  # noqa: ARG002 - nothing to advance
        raise ClockError


@dataclass(frozen=True, slots=True)
class _VirtualClockControl:
    clock: VirtualClock
    store: Store
    scheduler: Scheduler
    kind: str = "virtual"

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, duration: timedelta) -> datetime:
        return self.scheduler.advance(duration, move_to=self._move_to)

    def _move_to(self, moment: datetime) -> None:
        # Written first: after a restart time goes on from here, and never back.
        self.store.write(lambda tx: tx.put_setting("virtual_now", moment.isoformat()))
        self.clock.move_to(moment)


def _clock_control(service: Service) -> ClockControl:
    if isinstance(service.clock, VirtualClock):
        return _VirtualClockControl(service.clock, service.store, service.scheduler)
    return _RealClockControl(service.clock)


def _open_clock(settings: Settings, store: Store, now: datetime) -> Clock:
    known = store.read(lambda reading: reading.setting("clock"))
    if known is not None and known != settings.clock:
        raise StartError(
            f"{settings.database_path} was made under the {known} clock; "
            f"serve it with --clock {known}, or take another database."
        )
    virtual_now = store.read(lambda reading: reading.setting("virtual_now"))
    start = datetime.fromisoformat(virtual_now) if virtual_now else now.replace(microsecond=0)

    def keep(tx: Transaction) -> None:
        tx.put_setting("clock", settings.clock)
        if settings.clock is ClockKind.VIRTUAL:
            tx.put_setting("virtual_now", start.isoformat())

    store.write(keep)
    return VirtualClock(start) if settings.clock is ClockKind.VIRTUAL else SystemClock()


def _adopt_wire(store: Store, preview_wire: PreviewWire, now: datetime) -> None:
    # Equal incarnations mean equal bytes, so another way of writing them needs new numbers.
    def adopt(tx: Transaction) -> None:
        known = tx.setting("preview_wire")
        if known is not None and known != preview_wire:
            for scope_id, document in tx.documents().items():
                tx.put_document(scope_id, republish(document), at=now)
        tx.put_setting("preview_wire", preview_wire)

    store.write(adopt)


def _apply_fleet_file(store: Store, context: Context, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"The fleet file {path} cannot be read: {error}.") from error
    try:
        fleet = read_fleet_file(text)
        store.write(lambda tx: apply_fleet(tx, context, fleet))
    except StoreUnavailableError:
        raise
    except ForewarnError as error:
        entry = error.entry if isinstance(error, FleetError) else getattr(error, "vm", None)
        key = error.key if isinstance(error, FleetError) else None
        line = line_of(text, entry, key)
        raise StartError(f"{path}{f':{line}' if line else ''}: {error}") from error


def _make_executor(settings: Settings, store: Store, clock: Clock) -> Executor:
    if settings.executor is ExecutorKind.MANUAL:
        return ManualExecutor()

    def failure_of(vm: VmName) -> str:
        known = store.read(lambda reading: reading.topology().virtual_machines.get(vm))
        return known.labels.get("simulated-failure", "") if known else ""

    return SimulatedExecutor(store, clock, speed=settings.speed, failure_of=failure_of)


def _admin_token(directory: Path) -> str:
    path = directory / ADMIN_TOKEN_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise StartError(f"The admin token {path} cannot be kept: {error}.") from error
    if not token:
        raise StartError(f"The admin token {path} is empty; remove it to have a new one made.")
    return token


def _listen(address: str) -> socket.socket:
    where = parse_address(address)
    try:
        if isinstance(where, UnixAddress):
            return open_unix_listener(where.path)
        return open_listener(where.host, where.port)
    except OSError as error:
        raise StartError(f"Cannot listen on {address}: {error.strerror or error}.") from error


def _new_id() -> EventId:
    return event_id(str(uuid.uuid4()))
