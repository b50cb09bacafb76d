"""A server that runs: its parts, its threads and its sockets."""

import asyncio
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
import uvicorn

from forewarn.bootstrap.clock_control import clock_control
from forewarn.bootstrap.starting import ADMIN, Beginning, Listeners, make_rules, new_id
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.control.app import create_app
from forewarn.control.services import Services
from forewarn.domain.names import VmName
from forewarn.emulator.faults import MemoryFaults
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.http import MetadataServer, make_server
from forewarn.metadata.identity import Identity
from forewarn.metadata.polls import Polls
from forewarn.metadata.verbs import StoreVerbs
from forewarn.operations.context import Context
from forewarn.ports.changes import Change
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.store import Store
from forewarn.protocol.versions import served_versions
from forewarn.scheduler.scheduler import Scheduler
from forewarn.settings import ExecutorKind, Settings

log = structlog.get_logger()

SCHEDULER: Final = "scheduler"
_GRACE_SECONDS: Final = 5


def assemble(
    settings: Settings, store: Store, beginning: Beginning, listeners: Listeners
) -> "Service":
    """Put a server together on top of *store*; nothing is served yet."""
    wall, clock, rules = SystemClock(), beginning.clock, make_rules(settings)

    def context(who: str) -> Context:
        return Context(who=who, now=clock.now(), at=wall.now(), new_id=new_id, rules=rules)

    board = Board(served_versions(settings.preview_wire))
    board.take(
        store.read(lambda all_: Change(documents=all_.documents(), topology=all_.topology()))
    )
    store.listen(board.take)
    faults = MemoryFaults(document_of=board.document_of, clock=clock, changed=board.waiters.wake)
    store.listen(faults.note)
    scheduler = Scheduler(
        store=store,
        executor=_make_executor(settings, store, clock),
        context=lambda: context(SCHEDULER),
        epoch=beginning.epoch,
    )
    return Service(
        settings=settings,
        store=store,
        board=board,
        clock=clock,
        faults=faults,
        scheduler=scheduler,
        context=context,
        token=beginning.token,
        listeners=listeners,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything that runs in one server process."""

    settings: Settings
    store: Store
    board: Board
    clock: Clock
    faults: MemoryFaults
    scheduler: Scheduler
    context: Callable[[str], Context]
    token: str
    listeners: Listeners

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then let everything finish."""
        polls = Polls(self.store, self.board, self.clock)
        metadata = self._metadata_server(polls)
        control = self._control_server(metadata)
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
        verbs = StoreVerbs(self.store, self.context, self.changed)
        app = MetadataApp(
            board=self.board,
            identity=identity,
            verbs=verbs,
            polled=polls.note,
            faults=self.faults,
        )
        return make_server(app, self.listeners.metadata)

    def _control_server(self, metadata: MetadataServer) -> "ControlServer":
        services = Services(
            store=self.store,
            context=self.context,
            clock=clock_control(self.clock, self.store, self.scheduler),
            faults=self.faults,
            authenticate=self._authenticate,
            is_ready=lambda: metadata.started and not metadata.should_exit,
            changed=self.changed,
        )
        config = uvicorn.Config(
            create_app(services),
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        return ControlServer(config, self.listeners.control)

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


def _make_executor(settings: Settings, store: Store, clock: Clock) -> Executor:
    if settings.executor is ExecutorKind.MANUAL:
        return ManualExecutor()

    def failure_of(vm: VmName) -> str:
        known = store.read(lambda reading: reading.topology().virtual_machines.get(vm))
        return known.labels.get("simulated-failure", "") if known else ""

    return SimulatedExecutor(store, clock, speed=settings.speed, failure_of=failure_of)
